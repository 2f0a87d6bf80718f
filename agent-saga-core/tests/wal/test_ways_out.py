"""What stands in the way of a log is told with what to do about it."""

from __future__ import annotations

import errno

import pytest

from agent_saga import AgentKit, SagaAborted
from agent_saga.wal.directory import cannot_begin, way_out


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "ulimit -n"),
        (errno.ENOSPC, "Free space"),
        (errno.EROFS, "Choose a directory"),
    ],
)
def test_too_many_open_files_are_no_full_disk(number, says):
    assert says in cannot_begin("/log", OSError(number, "no")).fix


def test_a_log_that_cannot_grow_says_why():
    assert "ulimit" in way_out(OSError(errno.EMFILE, "too many"), "Free space.")
    assert way_out(OSError(errno.ENOSPC, "full"), "Free space.") == "Free space."


def test_a_kit_whose_log_is_a_plain_file_says_to_rename_it(tmp_path):
    """Its kill switch lies beside its log, and is looked at first."""
    (tmp_path / "log").write_text("mine")
    kit = AgentKit("x", wal=str(tmp_path / "log"))
    ran = []
    tool = kit.safe_tool(lambda: ran.append(1), "COMPENSABLE", name="t", compensate=lambda r: None)
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        tool()
    assert ran == []
    assert "rename that file" in str(caught.value)
    assert "rename that file" in str(kit.status())
    assert (tmp_path / "log").read_text() == "mine"

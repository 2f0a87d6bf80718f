"""What a kit says of itself must be true now."""

from __future__ import annotations

import shutil

import pytest

from agent_saga import AgentKit, SagaAborted


def test_a_kit_whose_log_was_removed_is_not_ready(tmp_path):
    kit = AgentKit("x", wal=str(tmp_path / "log"))
    ran = []
    tool = kit.safe_tool(lambda: ran.append(1), "COMPENSABLE", name="t", compensate=lambda r: None)
    with kit.transaction():
        tool()
    assert kit.status().ready
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(SagaAborted), kit.transaction():
        tool()
    assert ran == [1]
    status = kit.status()
    assert not status.ready
    assert "start this program again" in status.blockers[0]

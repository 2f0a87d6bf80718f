"""Temporary files in memory: only where there is enough of it, and nothing stays behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools import memory, stages, tree


@pytest.fixture
def known(tmp_path, monkeypatch):
    """What this machine says of its memory; it has enough."""
    known = tmp_path / "meminfo"
    known.write_text(f"MemTotal: 1 kB\nMemAvailable:  {memory.NEEDED // 1024} kB\n")
    monkeypatch.setattr(memory, "_KNOWN", known)
    monkeypatch.setattr(memory, "FOLDER", tmp_path / "memory")
    memory.FOLDER.mkdir()
    return known


def test_a_stage_gets_a_folder_in_memory_that_goes_with_it(known):
    with memory.temporary(on_disk=False) as told:
        folder = Path(told["TMPDIR"])
        assert folder.parent == memory.FOLDER
        (folder / "left").write_text("behind")
    assert list(memory.FOLDER.iterdir()) == []


def test_what_asks_for_a_disk_gets_none(known):
    with memory.temporary(on_disk=True) as told:
        assert told == {}


@pytest.mark.parametrize("said", ["MemAvailable: 4096 kB\n", "MemTotal: 1 kB\n", "strange\n", None])
def test_without_enough_memory_it_stays_on_the_disk(known, said):
    known.unlink() if said is None else known.write_text(said)
    with memory.temporary(on_disk=False) as told:
        assert told == {}


def test_where_there_is_no_such_folder_it_stays_on_the_disk(known):
    memory.FOLDER.rmdir()
    with memory.temporary(on_disk=False) as told:
        assert told == {}


@pytest.mark.parametrize(
    ("stage", "all_on_disk", "in_memory"),
    [
        (stages.Stage("tests", None), False, True),
        (stages.Stage("wheels", None, disk=True), False, False),
        (stages.Stage("tests", None), True, False),
    ],
)
def test_a_stage_that_asks_for_a_disk_has_one(
    known, tmp_path, monkeypatch, stage, all_on_disk, in_memory
):
    environ = {k: v for k, v in os.environ.items() if k != "TMPDIR"}
    runner = stages.Runner(Path(sys.executable), tree.ROOT, tmp_path, environ, 60, disk=all_on_disk)
    seen = []
    monkeypatch.setattr(
        runner._processes, "run", lambda _command, _cwd, environ, _log: seen.append(environ) or 0
    )
    assert runner._stage(stage).code == 0
    assert ("TMPDIR" in seen[0]) is in_memory

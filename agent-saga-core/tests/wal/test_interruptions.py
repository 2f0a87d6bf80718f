"""Ctrl-C and the end of a program in the middle of the log's work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent_saga.wal.os_port import OsPort


class Interrupted(OsPort):
    """A port whose n-th write is interrupted before, or behind, the system call."""

    def __init__(self, nth: int, *, behind: bool) -> None:
        self.left = nth
        self.behind = behind

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self.left -= 1
        if self.left == 0 and not self.behind:
            raise KeyboardInterrupt
        count = super().pwrite(fd, data, offset)
        if self.left == 0:
            raise KeyboardInterrupt
        return count


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("nth", [1, 2, 3, 7])
def test_an_interrupted_drain_can_be_repeated(open_log, look, nth, behind):
    log = open_log(port=Interrupted(nth + 2, behind=behind))
    interrupted = 0
    for n in range(10):
        log.append("STEP_COMMITTED", payload={"n": n})
        try:
            log.drain()
        except KeyboardInterrupt:
            interrupted += 1
            log.drain()
    log.close()
    assert interrupted == 1
    records, damages = look()
    assert damages == []
    assert [r.data["n"] for r in records if r.event == "STEP_COMMITTED"] == list(range(10))
    assert [r.seq for r in records] == list(range(1, len(records) + 1))


def test_a_batch_that_ended_its_segment_is_not_written_again(open_log, look, monkeypatch):
    """Ctrl-C right behind the write that sealed a segment, before it is known to be written."""
    log = open_log()
    write, interrupted = log._write, []

    def interrupt(batch):
        write(batch)
        if batch.seals and not interrupted:
            interrupted.append(batch)
            raise KeyboardInterrupt

    monkeypatch.setattr(log, "_write", interrupt)
    while not interrupted:
        log.append("STEP_COMMITTED", payload={"about": "x" * 2000})
        try:
            log.drain()
        except KeyboardInterrupt:
            log.drain()
    log.append("STEP_COMMITTED")
    log.close()
    lines = [
        line
        for segment in sorted(Path(log.path).rglob("seg-*.jsonl"))
        for line in segment.read_bytes().rstrip(b"\0").splitlines()
    ]
    assert len(set(lines)) == len(lines)
    records, damages = look()
    assert damages == []
    assert [r.seq for r in records] == list(range(1, len(lines) + 1))


FORGETFUL = """
import sys
from agent_saga.wal.file import FileWAL
log = FileWAL(sys.argv[1])
log.append("STEP_COMMITTED", payload={"n": 1})
"""

AT_EXIT = """
import atexit, sys
from agent_saga.wal.file import FileWAL
log = FileWAL(sys.argv[1])
log.append("STEP_INTENT")
atexit.register(lambda: log.append("STEP_COMMITTED", payload={"n": 1}))
"""


@pytest.mark.crash
@pytest.mark.parametrize("script", [FORGETFUL, AT_EXIT], ids=["forgetful", "at exit"])
def test_a_program_that_does_not_close_its_log_loses_nothing(tmp_path, look, script):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path / "log")],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stderr == ""
    records, damages = look()
    assert damages == []
    events = [r.event for r in records if r.event != "MARK"]  # a slow program has one
    assert events[-2:] == ["STEP_COMMITTED", "WRITER_CLOSE"]

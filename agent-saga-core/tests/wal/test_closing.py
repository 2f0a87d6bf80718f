"""The end of a log beside threads that still use it: what is given back, and when."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from agent_saga.errors import SagaFenced, WALError, WALStalled
from agent_saga.wal.file import FileWAL
from agent_saga_testing.faults import FaultyPort


def begun(open_log) -> tuple[FileWAL, FaultyPort]:
    port = FaultyPort()
    log = open_log(port=port)
    log.append("STEP_INTENT")
    log.barrier_sync()
    return log, port


def lock_is_free(log: FileWAL) -> bool:
    port = FileWAL(log.path).port
    fd = port.open(f"{log.path}/writers/{log.writer}/lock", os.O_RDWR)
    try:
        return port.flock(fd)
    finally:
        port.close(fd)


class Late:
    """A thread whose write the disk holds up while the log is closed."""

    def __init__(self, log: FileWAL, port: FaultyPort) -> None:
        self.log = log
        self.hang = port.hang("pwrite")
        log.append("STEP_COMMITTED", payload={"n": 1})
        self.error: WALError | None = None
        self.thread = threading.Thread(target=self._drain)
        self.thread.start()
        self.hang.reached.wait()
        log.stall_after = 0.2  # only from here on

    def _drain(self) -> None:
        try:
            self.log.drain()
        except WALError as error:
            self.error = error

    def comes_back(self) -> None:
        self.hang.release()
        self.thread.join()


def test_the_lock_is_kept_while_the_write_of_another_thread_may_still_land(open_log):
    log, port = begun(open_log)
    late = Late(log, port)
    with pytest.raises(WALStalled):
        log.close(0.2)
    assert not lock_is_free(log)
    late.comes_back()
    assert late.error is None
    with pytest.raises(WALStalled):
        log.close(0.2)  # nobody syncs it any more
    assert lock_is_free(log)
    assert port._open == set()


def test_a_write_that_is_held_up_lands_in_no_file_that_is_opened_after_the_log_was_closed(
    open_log, tmp_path: Path
):
    """A descriptor's number is given to the next file that is opened."""
    log, port = begun(open_log)
    late = Late(log, port)
    with pytest.raises(WALStalled):
        log.close(0.2)
    mine = tmp_path / "mine"
    files = [mine.open("w+b") for _ in range(20)]
    late.comes_back()
    assert mine.stat().st_size == 0
    for file in files:
        file.close()


@pytest.mark.parametrize("announced", [True, False], ids=["looks at most once", "looks now"])
def test_no_effect_begins_once_the_lock_was_given_back(open_log, announced):
    """Whoever takes the saga over then may believe that this process acts no more."""
    log, _ = begun(open_log)
    log.check_fence("saga", 0, log.seq)
    seq = log.append("STEP_INTENT", saga="saga")
    log.barrier_sync(seq)
    log.close()
    assert lock_is_free(log)
    with pytest.raises(SagaFenced, match="was closed"):
        log.check_fence("saga", 0, seq if announced else None)

"""A system call that does not come back: every wait ends, and nothing is said that is not true."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from agent_saga.errors import WALError
from agent_saga.wal.damage import Damage
from agent_saga.wal.file import FileWAL
from agent_saga.wal.reader import scan_log
from agent_saga_testing.faults import CALLS, FaultyPort

STEPS = 3
NTH = {"open": 9, "close": 8, "fsync": 12, "pwrite": 6, "fdatasync": 4, "stat": 8, "fallocate": 4}


def use(log: FileWAL, confirmed: list[int]) -> None:
    for number in range(STEPS):
        seq = log.append("STEP_COMMITTED", payload={"n": number})
        log.drain()
        log.wait_durable(seq)
        confirmed.append(number)
        log.check_fence("saga", 1)
    log.close(0.2)


def points() -> list[tuple[str, int]]:
    return [(name, nth) for name in CALLS for nth in range(1, NTH.get(name, 2) + 1)]


@pytest.mark.parametrize(("name", "nth"), points())
def test_a_hang_at_any_call_ends_no_wait_of_anybody_else(tmp_path: Path, name: str, nth: int):
    port = FaultyPort()
    hang = port.hang(name, nth=nth)
    log = FileWAL(tmp_path / "log", port=port, stall_after=0.05, mark_after=3600)
    confirmed: list[int] = []
    ended: list[BaseException | None] = []

    def caller() -> None:
        try:
            use(log, confirmed)
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=caller)
    thread.start()
    while thread.is_alive() and not hang.reached.is_set():
        thread.join(0.01)
    if not hang.reached.is_set():
        hang.release()  # a slow machine gave up before; the next one to call must not hang
    others = threading.Thread(target=somebody_else, args=(log,))
    others.start()
    others.join(60)
    assert not others.is_alive()
    hang.release()
    thread.join(60)
    assert not thread.is_alive()
    assert ended[0] is None or isinstance(ended[0], WALError)
    port.heal()
    read = list(scan_log(tmp_path / "log", verify=True))
    assert [one for one in read if isinstance(one, Damage) and one.kind != "torn-tail"] == []
    found = [one.data["n"] for one in read if getattr(one, "event", "") == "STEP_COMMITTED"]
    assert found[: len(confirmed)] == confirmed


def somebody_else(log: FileWAL) -> None:
    with contextlib.suppress(WALError):
        log.wait_durable(log.append("STEP_UNKNOWN"), 0.05)
    with contextlib.suppress(WALError):
        log.drain()

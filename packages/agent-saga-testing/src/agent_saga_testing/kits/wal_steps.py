"""What the log kit does in other processes; importable, so that they can."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from agent_saga.domain.records import Ev
from agent_saga.wal.base import BaseWAL
from agent_saga.wal.format import Record

__all__ = ["OWN_EVENTS", "WALOpener", "append_many", "hand_over_then_wait", "ours", "step"]

WALOpener = Callable[..., BaseWAL]
"""Opens the log under test; takes the options of `BaseWAL`."""

OWN_EVENTS = frozenset({Ev.WRITER_OPEN, Ev.WRITER_CLOSE, Ev.SEGMENT_SEAL, Ev.MARK})
"""The records that a log writes by itself."""


def step(log: BaseWAL, number: int, event: str = Ev.STEP_COMMITTED, *, saga: str = "saga") -> int:
    """Append the record of one numbered step."""
    return log.append(event, saga=saga, epoch=1, step=f"step-{number}", payload={"n": number})


def ours(log: BaseWAL) -> list[Record]:
    """Read back the records that a test appended, without the log's own."""
    return [record for record in log.read_all() if record.event not in OWN_EVENTS]


def append_many(opener: WALOpener, saga: str, count: int) -> list[int]:
    """Append and make durable so many steps of a saga, in this process; return their sequences."""
    log = opener()
    seqs = []
    for number in range(count):
        seqs.append(step(log, number, saga=saga))
        log.barrier_sync()
    log.close()
    return seqs


def hand_over_then_wait(opener: WALOpener, marker: str, count: int) -> None:
    """Hand steps to the operating system without a sync, say so, and wait to be killed."""
    log = opener()
    for number in range(count):
        step(log, number)
        log.drain()
    Path(marker).touch()
    threading.Event().wait()

"""The processes of the tests that kill: an agent that writes, and one that compacts.

The agent tells of each batch once it is durable: which sagas it has left open, and which ended.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from agent_saga.domain.records import Ev
from agent_saga.errors import WALError
from agent_saga.wal import segments
from agent_saga.wal.encoding import masked
from agent_saga.wal.file import FileWAL

SMALL = 32 * 1024


def agent(path: Path, name: str) -> None:
    """Write sagas for ever; every seventh stays open."""
    wal = FileWAL(path)
    number, starter = 0, os.getppid()
    while os.getppid() == starter:  # else nobody is left to kill it
        told = []
        for _ in range(20):
            number += 1
            saga = f"{name}-{number}"
            stays = number % 7 == 0
            one_saga(wal, saga, ends=not stays)
            told.append(("open " if stays else "done ") + saga)
        wal.barrier_sync()
        tell("\n".join(told))
        time.sleep(0.04)  # so that what is written can be checked in time


def tell(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def one_saga(wal: FileWAL, saga: str, *, ends: bool) -> None:
    begin = {"about": {"name": "n", "labels": {}}, "salt": "c2FsdHNhbHRzYWx0c2E"}
    call = {"tool": "charge", "semantics": "COMPENSABLE"}
    inverse = {"handler": "refund", "kwargs": {}}
    write(wal, Ev.SAGA_BEGIN, saga, **begin)
    write(wal, Ev.STEP_INTENT, saga, "a", call=call, nth=1, args={"pad": "x" * 200})
    write(wal, Ev.STEP_COMMITTED, saga, "a", result=1, inverse=inverse)
    if ends:
        write(wal, Ev.SAGA_COMMITTED, saga, unsettled=[], counts={})


def write(wal: FileWAL, event: str, saga: str, step: str = "", **payload: object) -> None:
    wal.append(event, saga=saga, epoch=1, step=step, payload=masked(payload)[0])


def compactor(path: Path) -> None:
    """Compact again and again; what is refused is tried again."""
    wal, starter = FileWAL(path), os.getppid()
    while os.getppid() == starter:
        try:
            done = wal.compact(grace_seconds=0)
            tell(f"left {done.sagas}")
        except WALError as error:
            tell(f"refused {error.code}")
        time.sleep(0.01)


if __name__ == "__main__":
    segments.FIRST_SIZE = segments.LAST_SIZE = SMALL  # type: ignore[misc]
    if sys.argv[1] == "agent":
        agent(Path(sys.argv[2]), sys.argv[3])
    else:
        compactor(Path(sys.argv[2]))

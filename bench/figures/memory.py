"""Memory while many sagas run in one process: it must not grow with their number.

Watched in a process of its own: after the first fifth of the sagas and after the last one. The
count of living objects is exact; what the operating system says is judged with room for its pages.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import resource
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from bench.measure import Effort, Figure
from bench.workload import ARGUMENTS, Work, work

GROUP = "memory"
TASKS = 64
_OBJECTS = 500
_MEBIBYTES = 4.0


def figures(effort: Effort) -> list[Figure]:
    """Measure the group."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=watch, args=(theirs, effort.sagas))
    process.start()
    before, after = ours.recv(), ours.recv()
    process.join()
    sagas = f"over the last four fifths of {effort.sagas:,} sagas"
    return [
        Figure(
            GROUP,
            f"growth in objects {sagas}",
            after[0] - before[0],
            "",
            _OBJECTS,
            kind="counter",
            detail=f"{before[0]} to {after[0]}",
        ),
        Figure(
            GROUP,
            f"growth in memory {sagas}",
            after[1] - before[1],
            "MiB",
            _MEBIBYTES,
            prototype="flat",
            detail=f"{before[1]:.1f} to {after[1]:.1f} MiB",
        ),
    ]


def watch(pipe: Connection, sagas: int) -> None:
    """Run sagas, and say twice how much memory is in use."""
    with work() as w:
        asyncio.run(_run(w, sagas // 5))
        pipe.send(_use())
        asyncio.run(_run(w, sagas - sagas // 5))
        pipe.send(_use())


async def _run(w: Work, sagas: int) -> None:
    async def some() -> None:
        for _ in range(sagas // TASKS):
            async with w.kit.transaction():
                await w.look(**ARGUMENTS)
                await w.charge(**ARGUMENTS)

    await asyncio.gather(*[some() for _ in range(TASKS)])


def _use() -> tuple[int, float]:
    gc.collect()
    return len(gc.get_objects()), _resident()


def _resident() -> float:
    """Return the resident memory in MiB; its peak where the present one cannot be read."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text("ascii").split()[1]) * resource.getpagesize() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)

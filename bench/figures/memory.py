"""Memory while many sagas run in one process: it must not grow with their number.

Watched in a process of its own: after the first fifth of the sagas and after the last one, while
the tasks that ran them live on; what is kept for the life of a task grows with its sagas. The
counts of living objects and of the interpreter's blocks are exact but for what is filled just now;
what the operating system says is judged with room for its pages.
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
_BLOCKS = 2000
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
        *[
            Figure(
                GROUP,
                f"growth in {what} {sagas}",
                after[at] - before[at],
                "",
                bound,
                kind="counter",
                detail=f"{before[at]} to {after[at]}",
            )
            for at, (what, bound) in enumerate((("objects", _OBJECTS), ("blocks", _BLOCKS)))
        ],
        Figure(
            GROUP,
            f"growth in memory {sagas}",
            after[2] - before[2],
            "MiB",
            _MEBIBYTES,
            prototype="flat",
            detail=f"{before[2]:.1f} to {after[2]:.1f} MiB",
        ),
    ]


def watch(pipe: Connection, sagas: int) -> None:
    """Run sagas, and say twice how much memory is in use."""
    with work() as w:
        asyncio.run(_watched(w, pipe, (sagas // 5, sagas - sagas // 5)))


async def _watched(w: Work, pipe: Connection, shares: tuple[int, ...]) -> None:
    met = asyncio.Barrier(TASKS + 1)

    async def some() -> None:
        for share in shares:
            await _run(w, share // TASKS)
            await met.wait()  # until all have run their share …
            await met.wait()  # … and the memory has been looked at

    async with asyncio.TaskGroup() as tasks:
        for _ in range(TASKS):
            tasks.create_task(some())
        for _ in shares:
            await met.wait()
            pipe.send(_use())
            await met.wait()


async def _run(w: Work, sagas: int) -> None:
    for _ in range(sagas):
        async with w.kit.transaction():
            await w.look(**ARGUMENTS)
            await w.charge(**ARGUMENTS)


def _use() -> tuple[int, int, float]:
    """Return the living objects, the blocks of the interpreter's allocator, and MiB of memory."""
    gc.collect()
    return len(gc.get_objects()), sys.getallocatedblocks(), _resident()


def _resident() -> float:
    """Return the resident memory in MiB; its peak where the present one cannot be read."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text("ascii").split()[1]) * resource.getpagesize() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)

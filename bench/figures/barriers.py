"""Barriers, COMPENSABLE steps and whole sagas, beside one synced write and one hop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agent_saga import SagaAborted, SagaTool
from agent_saga.wal.encoding import masked
from bench import floors
from bench.measure import Effort, Figure, Samples, interleaved, p50, p50_async
from bench.workload import ARGUMENTS, Work, check_clean, work

GROUP = "barrier"
STEPS = 10
_now = time.perf_counter_ns
_ABOUT = masked({"about": "x" * 80})[0]


def figures(effort: Effort) -> list[Figure]:
    """Measure the group."""
    with _cases(effort) as cases:
        samples = interleaved(cases, effort.rounds, ("F", "H", "Hs"))
    return [_barrier(samples), *_steps(samples), *_sagas(samples)]


@contextmanager
def _cases(effort: Effort) -> Iterator[dict[str, Callable[[], float]]]:
    calls, sagas = int(40 * effort.calls), max(2, int(5 * effort.calls))
    with (
        work() as w,
        floors.synced_file(w.folder) as file,
        floors.hops() as hops,
        asyncio.Runner() as runner,
    ):
        yield {
            "F": lambda: p50(file.line, calls, floor=True),
            "H": lambda: runner.run(p50_async(hops.hop, calls, floor=True)),
            "Hs": lambda: p50(hops.wait, calls, floor=True),
            "B": lambda: runner.run(p50_async(barrier_of(w), calls)),
            "async": lambda: runner.run(_in_saga(w, w.charge, calls)),
            "durable": lambda: runner.run(_in_saga(w, w.charge_durable, calls)),
            "sync": lambda: _in_saga_sync(w, calls),
            "saga": lambda: runner.run(p50_async(lambda: _saga(w), sagas)),
            "undo": lambda: runner.run(_unwound(w, sagas)),
        }


def barrier_of(w: Work) -> Callable[[], Awaitable[None]]:
    """Return what appends one record to the log and waits until it is on disk."""

    async def barrier() -> None:
        seq = w.wal.append("SCOPE_OPEN", saga="bench", payload=_ABOUT)
        await w.wal.barrier(seq)

    return barrier


async def _in_saga(w: Work, tool: SagaTool[..., Any], calls: int) -> float:
    async with w.kit.transaction():
        return await p50_async(lambda: tool(**ARGUMENTS), calls)


def _in_saga_sync(w: Work, calls: int) -> float:
    with w.kit.transaction():
        return p50(lambda: w.charge_sync(**ARGUMENTS), calls)


async def _saga(w: Work) -> None:
    async with w.kit.transaction():
        for _ in range(STEPS):
            await w.charge(**ARGUMENTS)


async def _unwound(w: Work, sagas: int) -> float:
    """Return the median time from the failure of a boundary to its report."""
    times = []
    for _ in range(sagas):
        failed = 0
        try:
            async with w.kit.transaction():
                for _ in range(STEPS):
                    await w.charge(**ARGUMENTS)
                await w.wal.barrier()
                failed = _now()
                raise ValueError("undo it")
        except SagaAborted as aborted:
            times.append(_now() - failed)
            check_clean(aborted)
    return sorted(times)[len(times) // 2]


def _barrier(samples: Samples) -> Figure:
    return Figure(
        GROUP,
        "one barrier, asyncio, idle",
        samples.ratio("B", "F", "H"),
        "(F+H)",
        1.55,
        prototype="1.21-1.28",
        stretch="1.25",
        detail=samples.microseconds("B", "F", "H"),
    )


def _steps(samples: Samples) -> list[Figure]:
    return [
        Figure(
            GROUP,
            "COMPENSABLE step, asyncio",
            samples.ratio("async", "F", "H"),
            "(F+H)",
            2.2,
            prototype="1.64-1.81",
            stretch="1.6",
            detail=samples.microseconds("async"),
        ),
        Figure(
            GROUP,
            "COMPENSABLE step, sync",
            samples.ratio("sync", "F", "Hs"),
            "(F+Hs)",
            2.1,
            prototype="1.75",
            stretch="1.6",
            detail=samples.microseconds("sync", "Hs"),
        ),
        Figure(
            GROUP,
            'COMPENSABLE step, asyncio, commit="durable"',
            samples.ratio("durable", "F", "H"),
            "(F+H)",
            4.1,
            prototype="3.1-3.5",
            stretch="3.0",
            detail=samples.microseconds("durable"),
        ),
    ]


def _sagas(samples: Samples) -> list[Figure]:
    return [
        Figure(
            GROUP,
            f"saga of {STEPS} COMPENSABLE steps, committed",
            samples.ratio("saga", "B"),
            "B",
            21.0,
            prototype="17.7",
            stretch="14",
            detail=samples.microseconds("saga", "B"),
        ),
        Figure(
            GROUP,
            f"unwinding {STEPS} steps, each undo durable before the next",
            samples.ratio("undo", "B"),
            "B",
            17.0,
            prototype="14.0",
            stretch="12",
            detail=samples.microseconds("undo", "B"),
        ),
    ]

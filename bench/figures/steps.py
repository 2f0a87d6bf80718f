"""A REVERSIBLE step, and a tool outside a saga, beside `json.dumps` of a record."""

from __future__ import annotations

import asyncio
from typing import Any

from bench import floors
from bench.measure import Effort, Figure, interleaved, mean, p50, p50_async
from bench.workload import ARGUMENTS, Work, look_sync, work

GROUP = "step"


def figures(effort: Effort) -> list[Figure]:
    """Measure the group."""
    calls = int(200 * effort.calls)
    with work() as w, asyncio.Runner() as runner:
        samples = interleaved(
            {
                "J": lambda: p50(floors.dumps, calls, floor=True),
                "async": lambda: runner.run(_async(w, calls)),
                "sync": lambda: _sync(w, calls),
                "batch of J": lambda: mean(floors.dumps, calls),
                "bare": lambda: mean(lambda: look_sync(**ARGUMENTS), calls * 5),
                "outside": lambda: mean(lambda: w.look_sync(**ARGUMENTS), calls * 5),
            },
            effort.rounds,
            ("J",),
        )
    gated = "full gate"
    return [
        Figure(
            GROUP,
            f"REVERSIBLE, asyncio, {gated}",
            samples.ratio("async", "J"),
            "J",
            4.6,
            prototype="3.5-3.9",
            stretch="3",
            detail=samples.microseconds("async", "J"),
        ),
        Figure(
            GROUP,
            f"REVERSIBLE, sync, {gated}",
            samples.ratio("sync", "J"),
            "J",
            4.2,
            prototype="3.4-3.6",
            stretch="3",
            detail=samples.microseconds("sync", "J"),
        ),
        Figure(
            GROUP,
            "pass-through outside a saga, over the bare call",
            samples.ratio("outside", "batch of J", less="bare"),
            "J",
            0.25,
            prototype="0.19",
            detail=samples.microseconds("outside", "bare"),
        ),
    ]


async def _async(w: Work, calls: int) -> float:
    def call() -> Any:
        return w.look(**ARGUMENTS)

    async with w.kit.transaction():
        return await p50_async(call, calls)


def _sync(w: Work, calls: int) -> float:
    with w.kit.transaction():
        return p50(lambda: w.look_sync(**ARGUMENTS), calls)

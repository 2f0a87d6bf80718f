"""Many sagas at the same time on one loop: how barriers are shared."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

from bench import floors
from bench.measure import Effort, Figure, Samples, interleaved
from bench.workload import ARGUMENTS, Work, work

GROUP = "crowd"
STEPS = 10
CROWDS = {1: 1.1, 16: 0.18, 64: 0.055, 256: 0.014}
_PROTOTYPE = {1: "1.10", 16: "0.15", 64: "0.045", 256: "0.011"}
_now = time.perf_counter_ns


class Crowd:
    """So many sagas of ten COMPENSABLE steps, one after the other in each task.

    Args:
        work: the kit and its log.
        tasks: how many sagas are open at the same time.
        seconds: how long one sample lasts.

    Attributes:
        syncs: syncs per step, of each sample.
        spread: the step's p99 over its p50, of each sample.
    """

    def __init__(self, work: Work, tasks: int, seconds: float) -> None:
        self.work, self.tasks, self.seconds = work, tasks, seconds
        self.syncs: list[float] = []
        self.spread: list[float] = []
        self._times: list[int] = []

    async def sample(self) -> float:
        """Return the steps per second."""
        self._times = []
        counters = self.work.wal.counters
        before = counters.syncs
        rate = await floors.closed_loop(self._saga, self.tasks, self.seconds, STEPS)
        self.syncs.append((counters.syncs - before) / len(self._times))
        ordered = sorted(self._times)
        self.spread.append(ordered[int(len(ordered) * 0.99)] / ordered[len(ordered) // 2])
        return rate

    async def _saga(self) -> None:
        async with self.work.kit.transaction():
            for _ in range(STEPS):
                before = _now()
                await self.work.charge(**ARGUMENTS)
                self._times.append(_now() - before)


def figures(effort: Effort) -> list[Figure]:
    """Measure the group."""
    with work() as w, floors.bare_flusher(w.folder) as bare, asyncio.Runner() as runner:
        crowds = {tasks: Crowd(w, tasks, effort.seconds) for tasks in CROWDS}
        cases: dict[str, Callable[[], float]] = {
            str(tasks): lambda crowd=crowd: runner.run(crowd.sample())  # type: ignore[misc]
            for tasks, crowd in crowds.items()
        }
        cases["bare"] = lambda: runner.run(floors.steps(bare, 256, effort.seconds))
        samples = interleaved(cases, effort.rounds)
    return [*_syncs(crowds), *_rates(samples), _spread(crowds[256])]


def _syncs(crowds: dict[int, Crowd]) -> list[Figure]:
    return [
        Figure(
            GROUP,
            f"syncs per step, {tasks} sagas",
            statistics.median(crowd.syncs),
            "",
            CROWDS[tasks],
            kind="counter" if tasks == 1 else "ratio",
            prototype=_PROTOTYPE[tasks],
        )
        for tasks, crowd in crowds.items()
    ]


def _rates(samples: Samples) -> list[Figure]:
    told = {case: f"{samples.median(case):.0f}/s" for case in ("1", "16", "256", "bare")}
    return [
        Figure(
            GROUP,
            "steps per second, 16 sagas against 1",
            samples.ratio("16", "1"),
            "x",
            3.2,
            least=True,
            prototype="4.0",
            detail=f"{told['16']} against {told['1']}",
        ),
        Figure(
            GROUP,
            "steps per second, 256 sagas against 1",
            samples.ratio("256", "1"),
            "x",
            5.5,
            least=True,
            prototype="8.3",
            stretch="10",
            detail=f"{told['256']} against {told['1']}",
        ),
        Figure(
            GROUP,
            "256 sagas against a bare flusher with two barriers a step",
            samples.ratio("256", "bare"),
            "x",
            0.28,
            least=True,
            prototype="0.35",
            stretch="0.5",
            detail=f"{told['256']} against {told['bare']}",
        ),
    ]


def _spread(crowd: Crowd) -> Figure:
    return Figure(
        GROUP,
        "a step's p99 over its p50, 256 sagas",
        statistics.median(crowd.spread),
        "x",
        1.8,
        prototype="1.45",
    )

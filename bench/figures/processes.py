"""Four processes with sixteen sagas each on one log, beside the same on one shared SQLite file.

SQLite is given its best case: each process has one thread that commits whatever has gathered in one
transaction, so sixteen tasks share a commit as they share a sync in the log. It does nothing but
that: so the log is measured alone, too, with two records and two barriers for each step.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from bench import floors
from bench.figures.barriers import barrier_of
from bench.figures.crowds import Crowd
from bench.measure import Effort, Figure, interleaved
from bench.workload import Work, place

GROUP = "processes"
PROCESSES = 4
SAGAS = 16


def serve(pipe: Connection, folder: str, seconds: float) -> None:
    """Measure in a process of its own, whenever it is asked."""
    work = Work(folder)
    path = str(Path(folder, "shared.sqlite"))
    with asyncio.Runner() as runner, floors.shared_database(path) as shared:
        crowd = Crowd(work, SAGAS, seconds)
        while (asked := pipe.recv()) != "end":
            if asked == "sagas":
                pipe.send(runner.run(crowd.sample()))
            elif asked == "log":
                pipe.send(runner.run(floors.closed_loop(_two_barriers(work), SAGAS, seconds)))
            else:
                pipe.send(runner.run(floors.steps(shared, SAGAS, seconds)))
    work.wal.close()
    pipe.send(0.0)


def _two_barriers(work: Work) -> Callable[[], Awaitable[None]]:
    barrier = barrier_of(work)

    async def step() -> None:
        await barrier()
        await barrier()

    return step


class Team:
    """The processes, and the smallest shares that one of them had in the log."""

    def __init__(self, folder: str, seconds: float) -> None:
        self.shares: list[float] = []
        self._pipes: list[Connection] = []
        self._processes = []
        floors.database(str(Path(folder, "shared.sqlite"))).close()
        context = multiprocessing.get_context("spawn")
        for _ in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, folder, seconds), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def ask(self, what: str) -> float:
        """Have all of them measure at the same time; return their sum."""
        for pipe in self._pipes:
            pipe.send(what)
        rates = [float(pipe.recv()) for pipe in self._pipes]
        if what == "sagas":
            self.shares.append(min(rates) / sum(rates))
        return sum(rates)

    def end(self) -> None:
        """End them."""
        self.ask("end")
        for process in self._processes:
            process.join()


def figures(effort: Effort) -> list[Figure]:
    """Measure the group."""
    with place() as folder:
        team = Team(folder, effort.seconds)
        cases = {what: partial(team.ask, what) for what in ("sagas", "log", "shared")}
        for ask in cases.values():
            ask()
        team.shares.clear()
        samples = interleaved(cases, effort.rounds)
        team.end()
    name = f"{PROCESSES} processes x {SAGAS} sagas"
    return [
        Figure(
            GROUP,
            f"{PROCESSES} processes x {SAGAS} tasks: the log alone against one shared SQLite file",
            samples.ratio("log", "shared"),
            "x",
            3.0,
            least=True,
            detail=f"{samples.median('log'):.0f}/s against {samples.median('shared'):.0f}/s",
        ),
        Figure(
            GROUP,
            f"{name}: one path against one shared SQLite file",
            samples.ratio("sagas", "shared"),
            "x",
            3.0,
            least=True,
            detail=f"{samples.median('sagas'):.0f}/s against {samples.median('shared'):.0f}/s",
        ),
        Figure(
            GROUP,
            f"{name}: smallest share of a process",
            statistics.median(team.shares),
            "",
            0.15,
            least=True,
        ),
    ]

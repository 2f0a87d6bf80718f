"""What is exact: writes, syncs, hops, tasks and bytes of each kind of work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from agent_saga import SagaAborted, SagaTool
from agent_saga.controls.limits.window import MERGED
from agent_saga.state.base import Change, Docs
from agent_saga.state.sqlite import SQLiteStateStore
from agent_saga.wal.encoding import arguments, compose, masked
from bench.counting import Counter, CountingPort, Counts, Way, way_elsewhere, way_of
from bench.figures.barriers import STEPS
from bench.measure import Effort, Figure
from bench.workload import ARGUMENTS, PAYLOAD, RESULT, Work, check_clean, work

GROUP = "count"
CALLS = 20


def figures(effort: Effort) -> list[Figure]:
    """Count; the effort changes nothing."""
    del effort
    port = CountingPort()
    with work(port) as w, asyncio.Runner() as runner:
        exact = [*_ways(w), *_steps(w), _undone(w), _syncs(w, port)]
        return [*exact, *runner.run(_all(w, Counter(port)))]


def _syncs(w: Work, port: CountingPort) -> Figure:
    """Count the syncs of a COMPENSABLE step where no loop runs."""
    with w.kit.transaction():
        w.charge_sync(**ARGUMENTS)
        before = port.syncs
        for _ in range(5 * CALLS):
            w.charge_sync(**ARGUMENTS)
    each = (port.syncs - before) / (5 * CALLS)
    return Figure(GROUP, "COMPENSABLE step, sync: syncs", each, "", 1.1, kind="counter")


def _steps(w: Work) -> list[Figure]:
    """Return how long the way of a whole step is, through the full gate, on its caller's thread."""
    with w.kit.transaction():
        for _ in range(2 * MERGED):  # what counts as in a process that has run for a while
            w.look_sync(**ARGUMENTS)
        return [
            *_way("REVERSIBLE step, sync", lambda: w.look_sync(**ARGUMENTS), 57.1, 6),
            # Its locks are no counter: the flusher, which it waits for, takes some of them or not.
            _way("COMPENSABLE step, sync", lambda: w.charge_sync(**ARGUMENTS), 106, 0)[0],
        ]


def _undone(w: Work) -> Figure:
    """Count the calls for each undone step, on its caller's thread; locks as for a step."""
    # The least of three: meanwhile the log may go on in another segment.
    few, many = (min(_unwound(w, n) for _ in range(3)) for n in (STEPS, 2 * STEPS))
    each = (many - few) / STEPS
    return Figure(GROUP, "undone step, sync: calls", each, "", 71, kind="counter")


def _unwound(w: Work, steps: int) -> float:
    boundaries = [w.kit.transaction(detached=True) for _ in range(11)]
    for boundary in boundaries:
        boundary.__enter__()
        for _ in range(steps):
            w.charge_sync(**ARGUMENTS)
    return way_of(lambda: _undo(boundaries.pop()), times=8).calls


def _undo(boundary: Any) -> None:
    try:
        boundary.__exit__(ValueError, ValueError("undo it"), None)
    except SagaAborted as aborted:
        check_clean(aborted)


def _way(what: str, work: Callable[[], object], calls: float, locks: float) -> list[Figure]:
    return _told(what, way_of(work), calls, locks)


def _told(what: str, way: Way, calls: float, locks: float) -> list[Figure]:
    return [
        Figure(GROUP, f"{what}: {name}", value, "", limit, kind="counter")
        for name, value, limit in (("calls", way.calls, calls), ("locks", way.locks, locks))
    ]


def _ways(w: Work) -> list[Figure]:
    """Return how long the way of one record is, from the value to the operating system."""
    salt = bytes(16)
    payload = compose(args=arguments(salt, ARGUMENTS)[0])

    def append() -> None:
        w.wal.append("STEP_COMMITTED", saga="bench", epoch=1, step="step", payload=payload)

    def out() -> None:
        append()
        w.wal.hand_over(sync=False)

    def look() -> None:
        w.wal.check_fence("bench", 1)

    store = SQLiteStateStore(Path(w.folder, "counted.sqlite"))

    def transact() -> None:
        store.transact(["n"], _count, durable=False)

    limits = {
        "arguments, encoded": (lambda: arguments(salt, ARGUMENTS), 4, 0),
        "a result, masked": (lambda: masked(RESULT), 4, 0),
        "a record, appended": (append, 2, 1),
        "a record, appended and written": (out, 13.1, 3),
        "the fence, looked at": (look, 5, 0),
        "a transaction, on its caller's thread": (transact, 8, 1),
    }
    private = way_elsewhere(transact)  # the store's thread starts with it
    told = _told("a transaction, on the store's thread", private, 22.1, 1.1)
    for what, (piece, calls, locks) in limits.items():
        told += _way(what, piece, calls, locks)
    store.close()
    return told


def _count(docs: Docs) -> Change[None]:
    return Change(None, {"n": {"n": (docs["n"] or {"n": 0})["n"] + 1}})


async def _all(w: Work, counter: Counter) -> list[Figure]:
    reversible = {"writes": 1, "syncs": 0, "hops": 0, "tasks": 0}
    barrier = {"writes": 1, "syncs": 1, "hops": 1, "tasks": 0}
    durable = {"writes": 2, "syncs": 2, "hops": 2, "tasks": 0}
    whole = {"syncs": STEPS + 1}
    step = await _in_saga(w, counter, w.charge)
    told = [
        *_judged("REVERSIBLE step", await _in_saga(w, counter, w.look), CALLS, reversible),
        *_judged("one barrier", await counter.median_of(_barrier(w)), 1, barrier),
        *_judged("COMPENSABLE step", step, CALLS, {"writes": 2, "hops": 1, "tasks": 0}),
        *_judged("durable step", await _in_saga(w, counter, w.charge_durable), CALLS, durable),
        *_judged(f"saga of {STEPS}, committed", await counter.median_of(_saga(w)), 1, whole),
        *_judged(f"unwinding {STEPS} steps", await _unwinding(w, counter), 1, whole),
    ]
    return [*told, _bytes(step)]


def _judged(what: str, counts: Counts, of: int, limits: Mapping[str, float]) -> list[Figure]:
    return [
        Figure(GROUP, f"{what}: {name}", getattr(counts, name) / of, "", limit, kind="counter")
        for name, limit in limits.items()
    ]


def _bytes(counts: Counts) -> Figure:
    size = counts.written / CALLS
    return Figure(
        GROUP,
        f"bytes per COMPENSABLE step over its payload of {PAYLOAD} B, chained",
        size / PAYLOAD,
        "x",
        3.4,
        kind="counter",
        prototype="2.9",
        stretch="2.6",
        detail=f"{size:.0f} B",
    )


async def _in_saga(w: Work, counter: Counter, tool: SagaTool[..., Any]) -> Counts:
    async def steps() -> None:
        for _ in range(CALLS):
            await tool(**ARGUMENTS)

    async with w.kit.transaction():
        await tool(**ARGUMENTS)
        await w.wal.barrier()
        return await counter.median_of(steps)


def _barrier(w: Work) -> Callable[[], Awaitable[None]]:
    async def barrier() -> None:
        await w.wal.barrier(w.wal.append("SCOPE_OPEN", saga="bench"))

    return barrier


def _saga(w: Work) -> Callable[[], Awaitable[None]]:
    async def saga() -> None:
        async with w.kit.transaction():
            for _ in range(STEPS):
                await w.charge(**ARGUMENTS)

    return saga


async def _unwinding(w: Work, counter: Counter) -> Counts:
    """Count from the failure of a boundary to its report, all steps being durable before."""
    found: list[Counts] = []

    async def one() -> None:
        scope = w.kit.transaction()
        await scope.__aenter__()
        for _ in range(STEPS):
            await w.charge(**ARGUMENTS)
        await w.wal.barrier()
        found.append(await counter.of(lambda: _failed(scope)))

    for _ in range(9):
        await one()
    return sorted(found, key=lambda counts: counts.syncs)[len(found) // 2]


async def _failed(scope: Any) -> None:
    error = ValueError("undo it")
    try:
        await scope.__aexit__(ValueError, error, None)
    except SagaAborted as aborted:
        check_clean(aborted)

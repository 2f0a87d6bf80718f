"""Limits that are counted in SQLite, beside a synced write; what a step costs more with them.

A busy process leases of its limits, so the store is asked once for many steps: how often is a
counter.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from agent_saga import (
    AgentKit,
    BudgetLimit,
    FileWAL,
    PreFlightGate,
    RateLimit,
    SagaTool,
    Settings,
    by_arg,
    by_tool,
    set_breaker,
    set_limit_store,
)
from agent_saga.controls.limits.limit import Limit
from agent_saga.state.sqlite import SQLiteStateStore
from bench import floors
from bench.counting import way_of
from bench.measure import Effort, Figure, Samples, interleaved, p50
from bench.workload import ARGUMENTS, look_sync, place

GROUP = "limits"
_STEPS = 1000
_LIMITS: tuple[Limit, ...] = (
    BudgetLimit("spend", "amount", 10**18, 86_400),
    BudgetLimit("customer", "amount", 10**18, 86_400, by_arg("customer")),
    RateLimit("velocity", 10**12, 60, by_tool),
)


def figures(effort: Effort) -> list[Figure]:
    """Measure the group: REVERSIBLE steps, so that no sync of the log is in the way."""
    calls = int(60 * effort.calls)
    set_breaker(None)
    set_limit_store(None)
    with place() as folder, floors.synced_file(folder) as file:
        kits = {count: _kit(Path(folder, f"log{count}"), count) for count in (0, 1, 3)}
        samples = interleaved(
            {
                "F": lambda: p50(file.line, calls, floor=True),
                **{f"{count} limits": _case(*kit, calls) for count, kit in kits.items()},
            },
            effort.rounds,
            ("F",),
        )
        asked = _asked(*kits[3])
        longer = _calls(*kits[3]) - _calls(*kits[0])
        for kit, _ in kits.values():
            kit.runtime.wal.close()
    name = "transactions of the store per step, three limits"
    return [
        Figure(GROUP, name, asked, "", 0.05, kind="counter"),
        Figure(GROUP, "calls of a step for three leased limits", longer, "", 31, kind="counter"),
        *_ratios(samples),
    ]


def _ratios(samples: Samples) -> list[Figure]:
    return [
        Figure(
            GROUP,
            f"{what} in SQLite, over a step without",
            samples.ratio(case, "F", less="0 limits"),
            "F",
            0.68,
            prototype="0.55",
            stretch="0.1 leased",
            detail=samples.microseconds(case, "0 limits", "F"),
        )
        for what, case in (("one limit", "1 limits"), ("three limits", "3 limits"))
    ]


def _calls(kit: AgentKit, tool: SagaTool[..., Any]) -> float:
    """Return the calls on the way of most steps: of those that no lease ends or begins with."""
    with kit.transaction():
        return median(way_of(lambda: tool(**ARGUMENTS), 1).calls for _ in range(_STEPS // 10))


def _asked(kit: AgentKit, tool: SagaTool[..., Any]) -> float:
    """Return how often the store is asked for each of many steps."""
    store = SQLiteStateStore.transact
    asked = 0

    def transact(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        asked += 1
        return store(*args, **kwargs)

    SQLiteStateStore.transact = transact  # type: ignore[method-assign]
    try:
        with kit.transaction():
            for _ in range(_STEPS):
                tool(**ARGUMENTS)
    finally:
        SQLiteStateStore.transact = store  # type: ignore[method-assign]
    return asked / _STEPS


def _kit(path: Path, count: int) -> tuple[AgentKit, SagaTool[..., Any]]:
    gate = PreFlightGate(limits=_LIMITS[:count])
    kit = AgentKit("limits", wal=FileWAL(path), gate=gate, settings=Settings(outside="run"))
    return kit, kit.safe_tool(look_sync, "REVERSIBLE", name="see")


def _case(kit: AgentKit, tool: SagaTool[..., Any], calls: int) -> Any:
    def case() -> float:
        with kit.transaction():
            return p50(lambda: tool(**ARGUMENTS), calls)

    return case

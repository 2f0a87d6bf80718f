"""Limits that are counted in SQLite, beside a synced write; what a step costs more with them."""

from __future__ import annotations

from pathlib import Path
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
from bench import floors
from bench.measure import Effort, Figure, interleaved, p50
from bench.workload import ARGUMENTS, look_sync, place

GROUP = "limits"
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
        for kit, _ in kits.values():
            kit.runtime.wal.close()
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


def _kit(path: Path, count: int) -> tuple[AgentKit, SagaTool[..., Any]]:
    gate = PreFlightGate(limits=_LIMITS[:count])
    kit = AgentKit("limits", wal=FileWAL(path), gate=gate, settings=Settings(outside="run"))
    return kit, kit.safe_tool(look_sync, "REVERSIBLE", name="see")


def _case(kit: AgentKit, tool: SagaTool[..., Any], calls: int) -> Any:
    def case() -> float:
        with kit.transaction():
            return p50(lambda: tool(**ARGUMENTS), calls)

    return case

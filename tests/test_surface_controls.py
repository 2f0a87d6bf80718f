"""The controls work exactly as their users' documents write them: scopes, rules, breaker.

The whole gate, as it is pasted, is in the core's own tests (`controls/test_gate_as_pasted.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_saga import (
    AgentKit,
    BreakerPolicy,
    CircuitBreaker,
    CircuitOpen,
    FileWAL,
    PreFlightGate,
    RateLimit,
    RefusedError,
    Rule,
    arg_exceeds,
    by_arg,
    by_tool,
    combine,
    semantics_is,
    set_breaker,
    set_limit_store,
    tool_is,
)
from agent_saga.state.sqlite import SQLiteStateStore


@pytest.fixture
def wal(tmp_path: Path) -> Any:
    log = FileWAL(tmp_path / "agent-saga.wal")
    yield log
    log.close()


def test_combined_scopes_and_rule_predicates_as_pasted(wal: FileWAL) -> None:
    done: list[Any] = []
    gate = PreFlightGate(
        rules=[
            Rule("big", arg_exceeds("amount", 1000)),
            Rule("no-wires", tool_is("wire.*")),
            Rule("reads", semantics_is("REVERSIBLE"), "allow"),
        ],
        limits=[RateLimit("v", max_calls=1, window=60, scope=combine(by_tool, by_arg("region")))],
    )
    kit = AgentKit(gate=gate, wal=wal)
    pay = kit.safe_tool(
        lambda amount, region: done.append((amount, region)), "COMPENSABLE", name="pay"
    )
    wire = kit.safe_tool(lambda region: done.append(region), "COMPENSABLE", name="wire.send")  # noqa: PLW0108
    with kit.transaction():
        pay(1000, "eu")
        pay(1000, "us")
        for refused in (lambda: pay(1, "eu"), lambda: pay(1001, "uk"), lambda: wire("eu")):
            with pytest.raises(RefusedError):
                refused()
    assert done == [(1000, "eu"), (1000, "us")]


def test_the_setters_as_pasted(wal: FileWAL, tmp_path: Path) -> None:
    set_limit_store(SQLiteStateStore(tmp_path / "limits.sqlite"))
    set_breaker(
        CircuitBreaker(
            BreakerPolicy(
                failure_threshold=5, failure_rate=0.5, min_volume=10, window=60, cool_down=30
            ),
            wal=wal,
        )
    )
    try:
        kit = AgentKit(gate=PreFlightGate(limits=[RateLimit("v", 7, 60)]), wal=wal)

        def fails() -> None:
            raise ConnectionError

        tool = kit.safe_tool(fails, "REVERSIBLE")
        with kit.transaction():
            for _ in range(5):
                with pytest.raises(ConnectionError):
                    tool()
            with pytest.raises(CircuitOpen):
                tool()
    finally:
        set_limit_store(None)
        set_breaker(None)
    assert [r.event for r in wal.read_all() if r.event.startswith("CIRCUIT")] == ["CIRCUIT_OPENED"]

"""What a reader folds from the log is what the boundary reported, for random runs."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_saga import AgentKit, NotApplied, SagaAborted, compensator
from agent_saga.domain.fold import fold
from agent_saga.domain.lifecycle import StepState
from agent_saga.errors import SagaError
from agent_saga.plugins.registry import process_handlers
from agent_saga.runtime.settings import Settings
from agent_saga.wal.file import FileWAL
from agent_saga.wal.reader import records

CALLS = ("read", "charge", "lost", "refused", "no_inverse", "bad_inverse")
RUNS = st.recursive(
    st.sampled_from(CALLS),
    lambda inner: st.tuples(st.lists(inner, max_size=3), st.booleans()),
    max_leaves=6,
)


def tools_of(kit: AgentKit) -> dict[str, Any]:
    @compensator("refund")
    def refund(id: int, *, idempotency_key: str) -> None: ...  # noqa: A002

    @compensator("broken")
    def broken(id: int) -> None:  # noqa: A002
        raise ValueError("no such charge")

    def charge() -> dict[str, int]:
        return {"id": 1}

    def lost() -> dict[str, int]:
        raise ConnectionError("the answer was lost")

    def refused() -> dict[str, int]:
        raise NotApplied("the card was refused")

    undo = refund.using(id="$.id")
    compensable = {
        "charge": kit.safe_tool(charge, semantics="COMPENSABLE", compensate=undo, name="charge"),
        "lost": kit.safe_tool(lost, semantics="COMPENSABLE", compensate=undo, name="lost"),
        "refused": kit.safe_tool(refused, semantics="COMPENSABLE", compensate=undo, name="no"),
        "no_inverse": kit.safe_tool(charge, semantics="COMPENSABLE", name="no_inverse"),
        "bad_inverse": kit.safe_tool(
            charge, semantics="COMPENSABLE", compensate=broken.using(id="$.id"), name="bad"
        ),
    }
    return compensable | {"read": kit.safe_tool(charge, semantics="REVERSIBLE", name="read")}


def run(kit: AgentKit, tools: dict[str, Any], plan: Any) -> None:
    if isinstance(plan, str):
        with contextlib.suppress(ConnectionError, NotApplied):
            tools[plan]()
        return
    inner, fails = plan
    with contextlib.suppress(SagaAborted), kit.transaction(name="inner"):
        for part in inner:
            run(kit, tools, part)
        if fails:
            raise LookupError("the savepoint failed")


@pytest.mark.property
@settings(deadline=None, max_examples=40)
@given(st.lists(RUNS, min_size=1, max_size=4), st.booleans())
def test_the_log_and_the_report_agree(plans: list[Any], fails: bool) -> None:
    bounds = Settings(settle_after=0, inverse_delay=0, inverse_attempts=2)
    with tempfile.TemporaryDirectory() as folder, process_handlers().isolated():
        wal = FileWAL(str(Path(folder) / "log"))
        kit = AgentKit("checked", wal=wal, settings=bounds)
        tools = tools_of(kit)
        report = None
        try:
            with kit.transaction(name="outer") as boundary:
                for plan in plans:
                    run(kit, tools, plan)
                if fails:
                    raise LookupError("the run failed")
        except SagaError as error:
            report = error.report
        wal.close()
        views = fold(records(Path(folder) / "log"))
    if report is None:
        report = boundary.report
    if not views:
        assert report.clean
        return
    (view,) = views.values()
    assert view.faults == []
    assert view.state.value == report.outcome
    assert view.clean == report.clean, (report.summary(), view.state, view.scopes)
    assert {step.id for step in view.standing} == {line.step for line in report.standing}
    undone = {s.id for s in view.steps.values() if s.state is StepState.COMPENSATED}
    assert undone == {line.step for line in report.compensated}

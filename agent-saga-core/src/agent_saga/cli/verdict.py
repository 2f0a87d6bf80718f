"""What a reader is told of a saga at the end: is it clean, and what stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.cli.output import printable
from agent_saga.domain.lifecycle import SagaState, StepState
from agent_saga.recovery.suspended import HOLD, UNDO, after_deadline

if TYPE_CHECKING:
    from agent_saga.domain.views import SagaView, StepView

__all__ = ["headline", "standing_lines"]

_STATES = {
    SagaState.NEW: "has no beginning in this log",
    SagaState.RUNNING: "has not ended",
    SagaState.SUSPENDED: "is suspended",
    SagaState.COMMITTED: "was committed",
    SagaState.RELEASED: "was left to recovery",
    SagaState.UNWINDING: "is being undone",
    SagaState.ROLLED_BACK: "was undone",
    SagaState.PARTIAL: "was undone, but something stands",
    SagaState.STUCK: "could NOT be undone completely",
    SagaState.CLOSED: "was closed by a person",
    SagaState.REOPENED: "was reopened by a late arrival",
}
_STEPS = {
    StepState.INTENT: "it may have taken effect",
    StepState.UNKNOWN: "it may have taken effect",
    StepState.COMMITTED: "it took effect after everything else was undone",
    StepState.COMPENSATING: "its inverse may or may not have succeeded",
    StepState.COMPENSATION_NOT_APPLIED: "its inverse had no effect",
    StepState.COMPENSATION_UNKNOWN: "its inverse may or may not have succeeded",
    StepState.COMPENSATION_FAILED: "its inverse failed",
    StepState.ORPHANED: "it has no usable inverse",
    StepState.UNRESOLVED: "undoing did not reach it",
}


_OVER = {
    UNDO: " beyond its deadline (recovery undoes it)",
    HOLD: " beyond its deadline (a human decides)",
}


def headline(view: SagaView) -> str:
    """Return one line: which saga, where it stands, clean or not."""
    name = f"{printable(view.name)!r} " if view.name else ""
    clean = "clean" if view.clean else "NOT clean"
    over = _OVER.get(after_deadline(view), "")
    return f"Saga {name}{printable(view.id)} {_STATES[view.state]}{over}: {clean}."


def standing_lines(view: SagaView) -> list[str]:
    """Return what stands, what was kept, and what is wrong with the records."""
    lines = []
    if view.standing:
        lines += ["May stand:", *[_line(step, _STEPS[step.state]) for step in view.standing]]
    if view.kept:
        lines += ["Stands for ever, as approved:", *[_line(step, "") for step in view.kept]]
    if view.faults:
        lines += ["Wrong with its records:", *[f"  - {printable(fault)}" for fault in view.faults]]
    if not lines and view.ended:
        lines.append("Nothing stands that was neither undone nor declared.")
    return lines


def _line(step: StepView, why: str) -> str:
    text = f"  - {printable(step.tool or 'a step')} [{printable(step.id[:8])}]"
    parts = [part for part in (why, printable(step.detail)) if part]
    return f"{text}: {'; '.join(parts)}" if parts else text

"""What a reader is told of a saga at the end: is it clean, what stands, what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.cli.output import printable
from agent_saga.cli.place import wal_option
from agent_saga.domain.lifecycle import SagaState, StepState

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.domain.views import SagaView, StepView

__all__ = ["headline", "next_step", "standing_lines"]

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
_OPEN = frozenset({SagaState.RUNNING, SagaState.RELEASED, SagaState.UNWINDING})


def headline(view: SagaView) -> str:
    """Return one line: which saga, where it stands, clean or not."""
    name = f"{printable(view.name)!r} " if view.name else ""
    clean = "clean" if view.clean else "NOT clean"
    return f"Saga {name}{printable(view.id)} {_STATES[view.state]}: {clean}."


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


def next_step(view: SagaView, log: Path, *, held: bool = False) -> str:
    """Return what a person does next about this saga, or an empty string.

    Args:
        view: the saga.
        log: the log's path, for the command to paste.
        held: its process died, and it is held for its program.
    """
    if view.clean:
        return ""
    place = wal_option(log)
    if view.state is SagaState.SUSPENDED and not view.faults:
        return "the program resumes it before its deadline: transaction(saga_id=…, resume=True)"
    if held and not view.faults:
        return (
            "start its program again (saga_id=…, resume=True), or undo it now: "
            f"agent-saga recover {place} --undo-held --import MODULE"
        )
    if view.state in _OPEN and not view.faults:
        return f"agent-saga recover {place} --import MODULE (living processes are left alone)"
    if view.faults or view.standing or view.state is SagaState.REOPENED:
        return f"agent-saga queue show {printable(view.id)} {place}"
    return "nothing is left to undo; tell whoever approved what stands"


def _line(step: StepView, why: str) -> str:
    text = f"  - {printable(step.tool or 'a step')} [{printable(step.id[:8])}]"
    parts = [part for part in (why, printable(step.detail)) if part]
    return f"{text}: {'; '.join(parts)}" if parts else text

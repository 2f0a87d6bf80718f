"""What a reader is told of a saga at the end: is it clean, and what stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.cli.output import printable
from agent_saga.cli.owners import DEAD, UNTOLD
from agent_saga.domain.lifecycle import SagaState, StepState
from agent_saga.domain.words import SAGA_WORDS, STEP_WORDS
from agent_saga.recovery.suspended import HOLD, UNDO, after_deadline

if TYPE_CHECKING:
    from agent_saga.domain.views import SagaView, StepView

__all__ = ["done_lines", "headline", "standing_lines"]

_PROCESS = {
    DEAD: ", and its process died",
    UNTOLD: ", and whether its process lives cannot be told",
}
_OVER = {
    UNDO: " beyond its deadline (recovery undoes it)",
    HOLD: " beyond its deadline (a human decides)",
}


def headline(view: SagaView, process: str = "") -> str:
    """Return one line: which saga, where it stands, clean or not.

    Args:
        view: the saga.
        process: how its process stands, as `Owners.of` tells it.
    """
    name = f"{printable(view.name)!r} " if view.name else ""
    clean = "clean" if view.clean else "NOT clean"
    over = _OVER.get(after_deadline(view), "") + _PROCESS.get(process, "")
    return f"Saga {name}{printable(view.id)} {SAGA_WORDS[view.state]}{over}: {clean}."


def standing_lines(view: SagaView) -> list[str]:
    """Return what stands, what was kept, and what is wrong with the records."""
    lines = []
    if view.standing:
        lines += ["May stand:", *[_line(step, STEP_WORDS[step.state]) for step in view.standing]]
    if view.kept:
        lines += ["Stands for ever, as approved:", *[_line(step, "") for step in view.kept]]
    left = _left_as_it_was(view)
    if left:
        lines += [
            "Took effect, and stands; a person closed the saga:",
            *[_line(s, "") for s in left],
        ]
    if view.faults:
        lines += ["Wrong with its records:", *[f"  - {printable(fault)}" for fault in view.faults]]
    if not lines and view.ended:
        lines.append("Nothing stands that was neither undone nor declared.")
    return lines


def _left_as_it_was(view: SagaView) -> list[StepView]:
    """Return the steps of a closed saga that stand since nothing tried to undo them."""
    if view.state is not SagaState.CLOSED:
        return []
    done = [step for step in view.steps.values() if step.state is StepState.COMMITTED]
    return [step for step in done if not (step.reversible or step.nothing)]


def done_lines(view: SagaView) -> list[str]:
    """Return what a saga that has not ended did, as far as its records tell."""
    steps = [] if view.ended else view.steps.values()
    stands = [s for s in steps if s.state is StepState.COMMITTED]
    lines = [_line(s, "it took effect") for s in stands if not (s.reversible or s.nothing)]
    return ["It did, as far as the log tells:", *lines] if lines else []


def _line(step: StepView, why: str) -> str:
    text = f"  - {printable(step.tool or 'a step')} [{printable(step.id[:8])}]"
    parts = [part for part in (why, printable(step.detail)) if part]
    return f"{text}: {'; '.join(parts)}" if parts else text

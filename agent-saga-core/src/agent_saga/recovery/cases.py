"""Which sagas are a human's case, and why, as the log alone tells it."""

from __future__ import annotations

from typing import Final

from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.words import SAGA_WORDS, STEP_WORDS
from agent_saga.recovery.survey import Found
from agent_saga.recovery.suspended import awaits_human

_ALWAYS: Final = frozenset({SagaState.STUCK, SagaState.REOPENED})
_ENDED: Final = frozenset({SagaState.COMMITTED, SagaState.ROLLED_BACK, SagaState.PARTIAL})


def is_case(found: Found) -> bool:
    """Say whether a saga is one for a human, unless its owner still acts on it.

    A saga that ended with approved steps standing, and nothing else, is none.
    """
    state = found.view.state
    if found.problems or state in _ALWAYS or awaits_human(found):
        return True
    if state is SagaState.CLOSED or state in _ENDED:
        return bool(found.view.standing)
    return False


def case_of(found: Found) -> str:
    """Return in words why a saga needs a human."""
    if found.problems:
        return "; ".join(found.problems)
    if awaits_human(found):
        return "its deadline is over: resume it by its id in its program, or undo it"
    view = found.view
    steps = [f"{step.tool or 'a step'}: {STEP_WORDS[step.state]}" for step in view.standing]
    return "; ".join([f"it {SAGA_WORDS[view.state]}", *steps])

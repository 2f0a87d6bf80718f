"""Suspended sagas whose time is over: undone, or a human's case, as was said when they suspended.

The deadline outlives the process, so it is a wall-clock time. A deadline that cannot be read never
comes: nothing is undone because of it. If what happens then is nothing that is known here, a human
decides.
"""

from __future__ import annotations

from typing import Final

from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.views import SagaView
from agent_saga.recovery.survey import Found

UNDO: Final = "undo"
HOLD: Final = "hold"


def overdue(found: Found) -> bool:
    """Say whether a suspended saga has waited too long, and is to be undone then."""
    return after_deadline(found.view) == UNDO


def awaits_human(found: Found) -> bool:
    """Say whether a suspended saga has waited too long, and a human decides then."""
    return after_deadline(found.view) == HOLD


def after_deadline(view: SagaView) -> str:
    """Return what happens to a suspended saga now that its time is over; empty if it is not.

    It is `UNDO`, or `HOLD`: a human decides.
    """
    if view.state is not SagaState.SUSPENDED or view.deadline is None:
        return ""
    if SYSTEM_CLOCK.now_us() <= view.deadline:
        return ""
    return UNDO if view.at_deadline == UNDO else HOLD

"""Suspended sagas whose time is over: undone, or a human's case, as was said when they suspended.

The deadline outlives the process, so it is a wall-clock time. A deadline that cannot be read never
comes: nothing is undone because of it.
"""

from __future__ import annotations

from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.effective import facts_of
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.records import Ev
from agent_saga.recovery.survey import Found

_UNDO, _HOLD = "undo", "hold"


def overdue(found: Found) -> bool:
    """Say whether a suspended saga has waited too long, and is to be undone then."""
    return _over(found) == _UNDO


def held(found: Found) -> bool:
    """Say whether a suspended saga has waited too long, and a human decides then."""
    return _over(found) == _HOLD


def _over(found: Found) -> str:
    """Return what happens to a suspended saga now that its time is over; empty if it is not."""
    if found.view.state is not SagaState.SUSPENDED:
        return ""
    suspensions = [r for r in found.effective.records if r.event == Ev.SAGA_SUSPENDED]
    facts = facts_of(suspensions[-1]) if suspensions else {}
    deadline, then = facts.get("deadline"), facts.get("at_deadline")
    if not isinstance(deadline, int) or SYSTEM_CLOCK.now_us() <= deadline:
        return ""
    return then if then in (_UNDO, _HOLD) else ""

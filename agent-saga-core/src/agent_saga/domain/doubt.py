"""What is not known of the attempts at one inverse, as its records tell it.

Rules of this part:

- What an attempt says of itself says nothing of the attempts before it: a doubt stays until a
  reconciler finally sees that the inverse does not hold, or that it does.
- An attempt that was announced and has no ending, or one without an answer, may still arrive. One
  that ended with an answer which does not tell whether it took effect can do so no more.
- An attempt that came before its effect may have undone nothing. Its key is used up then: the
  provider drops a repetition, and the effect stands. Only a look at the world settles that.
- An attempt by a handler that was not declared idempotent then is never repeated, whatever a later
  version of the program declares: it may have gone without the key.
- It is folded from the records, so it outlives the process that made the attempts.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from agent_saga.domain.lifecycle import StepState
from agent_saga.domain.records import Ev

__all__ = ["OBSERVED", "ONCE", "Doubt", "doubt_after", "once_after"]

OBSERVED: Final = "observed"
"""The field of a record which says that the inverse was finally seen not to hold."""

ONCE: Final = "once"
"""The field of an announcement which says that its handler is not declared idempotent."""


class Doubt(IntEnum):
    """What an earlier attempt at an inverse may have done."""

    NONE = 0
    """Every attempt is known not to have taken effect."""
    ENDED = 1
    """One may have taken effect; it has ended."""
    OPEN = 2
    """One may have taken effect, or may still do so."""
    MISSED = 3
    """One may have come before the effect that it was to undo; repeating it may do nothing."""


def doubt_after(doubt: Doubt, state: StepState, event: str, *, observed: bool = False) -> Doubt:
    """Return what is in doubt after a record of a step.

    Args:
        doubt: what was in doubt before it.
        state: where the step stood before it.
        event: the record's event.
        observed: it says that the inverse was finally seen not to hold.
    """
    if event == Ev.STEP_INTENT:
        return Doubt.NONE
    if observed and event in (Ev.STEP_COMPENSATING, Ev.STEP_COMPENSATION_NOT_APPLIED):
        return Doubt.NONE
    if event == Ev.STEP_COMPENSATION_UNKNOWN:
        return max(doubt, Doubt.OPEN)
    if event == Ev.STEP_COMPENSATION_FAILED:
        return max(doubt, Doubt.ENDED)
    if event == Ev.STEP_LATE and (doubt or state in _MAY_HAVE_MET_NOTHING):
        return Doubt.MISSED
    return doubt


def once_after(once: bool, doubt: Doubt, event: str, *, told: bool = False) -> bool:
    """Say whether an attempt that may have taken effect was made without the promise of a key.

    Args:
        once: whether one was before the record.
        doubt: what is in doubt after the record.
        event: the record's event.
        told: it announces an attempt by a handler that is not declared idempotent.
    """
    if event == Ev.STEP_INTENT:
        return False
    if event == Ev.STEP_COMPENSATING:
        return told or (once and doubt is not Doubt.NONE)
    return once


_MAY_HAVE_MET_NOTHING: Final = (StepState.COMPENSATING, StepState.COMPENSATED)

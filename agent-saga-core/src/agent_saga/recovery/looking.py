"""What recovery and undoing would do now, by the judgements that they act on; nothing is run.

Rules of this part:

- Looking writes nothing: no record, no epoch, no checkpoint, and no hold begins with it.
- What is refused before anything is taken is refused here too, by the same functions. What only
  shows while it is done (an inverse that fails, somebody who is faster) cannot be told before.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from agent_saga.errors import AgentSagaError, ClaimRefused, Quarantined, one_line
from agent_saga.recovery.calls import missing_inverses, missing_text
from agent_saga.recovery.cases import case_of, is_case
from agent_saga.recovery.claim import OWNED, Place, check_claimable
from agent_saga.recovery.hold import hold_text, looked_up
from agent_saga.recovery.recover import (
    ELSEWHERE,
    FAILED,
    HELD,
    LIVE,
    NEEDS_HUMAN,
    WAITING,
    recoverable,
    unsettled,
)
from agent_saga.recovery.survey import Found, Survey, survey
from agent_saga.recovery.undo import Plan, plan
from agent_saga.wal.takeover import dead_writer, dead_writers

WOULD_UNDO: Final = "to be undone"
WOULD_ASK: Final = "to be asked about"


class _How(Struct, frozen=True):
    """How the pass would be made."""

    undo_held: bool
    leave_missing: bool


class Forecast(Struct, frozen=True):
    """What a pass of recovery would do.

    Attributes:
        sagas: each saga that it would tell of; what it would leave alone without a word (a saga
            that is suspended until later, one that ended as its report said) is not among them.
        damages: how many places of the log cannot be read.
        untold: why nobody can tell which sagas the log has lost as a whole; empty if that is known.
    """

    sagas: list[Plan]
    damages: int
    untold: str = ""

    @property
    def clean(self) -> bool:
        """Whether nothing would be done, nothing waits and nothing needs a person."""
        return not (self.damages or self.untold) and all(one.outcome == LIVE for one in self.sagas)

    @property
    def acts(self) -> bool:
        """Whether anything would be undone or asked about."""
        return any(one.outcome in (WOULD_UNDO, WOULD_ASK) for one in self.sagas)


def forecast(place: Place, *, undo_held: bool = False, leave_missing: bool = True) -> Forecast:
    """Return what a pass of recovery would do now.

    Args:
        place: where recovery works.
        undo_held: as for the pass.
        leave_missing: as for the pass.

    Raises:
        WALError: the directory as a whole is no log that can be read.
    """
    seen, untold = _seen(place)
    how = _How(undo_held, leave_missing)
    plans = [_planned(place, saga, how) for saga in seen.sagas.values()]
    damages = sum(damage.kind != "torn-tail" for damage in seen.damages)
    return Forecast([one for one in plans if one is not None], damages, untold)


def acted_on(place: Place, *, undo_held: bool = False) -> list[Found]:
    """Return the sagas that a pass of recovery would take over.

    Raises:
        WALError: the directory as a whole is no log that can be read.
    """
    found = _seen(place)[0].sagas.values()
    how = _How(undo_held, leave_missing=True)
    return [one for one in found if _judged_safely(place, one, how) in _ACTS]


def _seen(place: Place) -> tuple[Survey, str]:
    seen = survey(place.wal.path, dead=dead_writers(place.wal.path))
    untold = place.proofs.add_vanished(place.wal.path, seen)
    place.proofs.expect(seen.sagas.values())
    return seen, untold


_ACTS: Final = ((WOULD_UNDO, ""), (WOULD_ASK, ""))


def _planned(place: Place, found: Found, how: _How) -> Plan | None:
    outcome, reason = _judged_safely(place, found, how)
    if not outcome:
        return None
    acts = (outcome, reason) in _ACTS
    made = plan(place.engine, found) if acts else replace(plan(place.engine, found), steps=[])
    return replace(made, outcome=outcome, reason=reason)


def _judged_safely(place: Place, found: Found, how: _How) -> tuple[str, str]:
    """Judge a saga; what is wrong with one hides nothing of the others."""
    try:
        return _judged(place, found, how)
    except AgentSagaError as error:
        return FAILED, error.message
    except Exception as error:
        return FAILED, one_line(error)


def _judged(place: Place, found: Found, how: _How) -> tuple[str, str]:
    """Return what would become of a saga, and why; empty if recovery has nothing to say of it."""
    open_here = recoverable(found) or unsettled(found)
    if not open_here and not is_case(found):
        return _NONE
    if lives(place, found):
        return (LIVE, "its process lives") if open_here else _NONE
    found = place.proved(found)
    if found.problems or not open_here:
        return (NEEDS_HUMAN, case_of(found)) if is_case(found) else _NONE
    return _taken(place, found, how)


def _taken(place: Place, found: Found, how: _How) -> tuple[str, str]:
    hold = looked_up(place.wal.path, place.store, [found.view]).get(found.id)
    if hold is not None and not (hold.over or how.undo_held):
        return HELD, hold_text(hold)
    missing = {} if how.leave_missing else missing_inverses(place.engine, found)
    if missing:
        return WAITING, missing_text(missing)
    try:
        check_claimable(place, found)
    except Quarantined as refusal:
        return NEEDS_HUMAN, refusal.message
    except ClaimRefused as refusal:
        return ELSEWHERE, refusal.message
    return (WOULD_ASK, "") if unsettled(found) else (WOULD_UNDO, "")


_NONE: Final = ("", "")


def lives(place: Place, found: Found) -> bool:
    """Say whether the process that owns a saga may act on it at this moment."""
    if found.view.state not in OWNED:
        return False
    dead = dead_writer(place.wal.path, found.effective.owner, place.wal.port)
    if dead is not None:
        dead.close()
    return dead is None

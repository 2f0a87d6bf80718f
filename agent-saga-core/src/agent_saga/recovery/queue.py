"""The human queue: what recovery must not decide, and how a person does.

Rules of this part:

- The queue is what the log says: sagas that ended with something standing, or whose records cannot
  be trusted. Nothing else is stored, so nothing can be lost or forgotten.
- Closing is a named person's act with a reason, recorded; it runs nothing. Retrying takes the saga
  over and unwinds what is left, in order, under the same rules as recovery.
"""

from __future__ import annotations

from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.records import Ev
from agent_saga.engine import journal
from agent_saga.errors import RecoveryError
from agent_saga.recovery.claim import Place, claimed, give_back
from agent_saga.recovery.daemon import case_of
from agent_saga.recovery.rebuild import rebuilt
from agent_saga.recovery.recover import Recovered, recoverable, undo_saga
from agent_saga.recovery.survey import Found, survey

_RETRIED = frozenset({SagaState.PARTIAL, SagaState.STUCK, SagaState.REOPENED})


def cases(path: str) -> list[Found]:
    """Return the sagas that need a human, oldest first.

    Args:
        path: the log's directory.
    """
    found = [saga for saga in survey(path).sagas.values() if is_case(saga)]
    return sorted(found, key=lambda saga: saga.view.began)


def is_case(found: Found) -> bool:
    """Say whether a saga is one for a human."""
    if found.problems:
        return True
    return not recoverable(found) and bool(found.view.standing or found.view.state is _REOPENED)


_REOPENED = SagaState.REOPENED


def describe(found: Found) -> str:
    """Return in words why a saga needs a human."""
    return case_of(found)


def close_case(place: Place, saga: str, *, by: str, reason: str) -> None:
    """Record that a person has dealt with a saga; nothing is run.

    Args:
        place: where recovery works.
        saga: the saga's id.
        by: who says so.
        reason: what was done about it.

    Raises:
        RecoveryError: no name or reason is given, or the saga is still open.
        ClaimRefused: somebody else acts on it.
    """
    by, reason = named(by), said(reason)
    with claimed(place, saga, reason="operator", by=by) as claim:
        owned = rebuilt(place.engine, claim.found, claim.epoch, dead_since=0.0)
        if owned.state in (SagaState.RUNNING, SagaState.UNWINDING):
            raise RecoveryError(
                f"Saga {saga} has not ended; it cannot be closed before recovery has tried.",
                fix="agent-saga recover",
            )
        seq = journal.saga_event(owned, Ev.SAGA_CLOSED, by=by, reason=reason)
        place.wal.wait_durable(seq)
        give_back(place, claim)


def retry_case(place: Place, saga: str, *, by: str) -> Recovered:
    """Take a saga over and undo what is left of it, orphans included.

    Raises:
        RecoveryError: the saga is in no state to be retried, or its records cannot be trusted.
        ClaimRefused: somebody else acts on it.
    """
    by = named(by)
    with claimed(place, saga, reason="operator", by=by) as claim:
        if claim.found.problems:
            raise RecoveryError(
                f"The records of saga {saga} cannot be trusted: {claim.found.problems[0]}.",
                fix="Look at the world, put it right, and close the case: agent-saga queue close",
            )
        now = place.engine.clock.monotonic()
        owned = rebuilt(place.engine, claim.found, claim.epoch, dead_since=now)
        if owned.state not in _RETRIED:
            raise RecoveryError(f"Saga {saga} is {owned.state.value}; there is nothing to retry.")
        return undo_saga(place, claim, owned, f"retried by {by}", retry=True)


def named(by: str) -> str:
    """Return who acts.

    Raises:
        RecoveryError: it is blank.
    """
    if not by.strip():
        raise RecoveryError("This is a named person's act.", fix="Say who you are: --by NAME.")
    return by.strip()


def said(reason: str) -> str:
    """Return why.

    Raises:
        RecoveryError: it is blank.
    """
    if not reason.strip():
        raise RecoveryError("A reason is needed; it is recorded.", fix="Say why: --reason '…'.")
    return reason.strip()

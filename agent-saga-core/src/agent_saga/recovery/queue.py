"""The human queue: what recovery must not decide, and how a person does.

Rules of this part:

- The queue is what the log says: sagas that ended with something standing, or whose records cannot
  be trusted; those that recovery would act on are proved for it. Beside them stands what the state
  store knows of and the log has lost. Nothing else is stored, so nothing can be forgotten.
- Closing is a named person's act with a reason, recorded; it runs nothing. Whoever closes a saga
  has seen what is wrong with its records, and that records are lost: what comes later is a case
  again. Retrying takes the saga over and unwinds what is left, in order, under the same rules as
  recovery.
- Closing settles what the case is about. A committed saga of which steps are unknown stays
  committed, and one that was being undone up to a step is committed up to there: the rest of it can
  still be undone, and what a person has dealt with is left alone.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Final

from agent_saga.controls.humans.names import blank, seen
from agent_saga.controls.switch.refusals import quarantined
from agent_saga.domain.commands import quoted, recover_command, told_command
from agent_saga.domain.lifecycle import SagaState, StepState, step_after
from agent_saga.domain.records import Ev
from agent_saga.domain.views import SCOPE_WELL, StepView
from agent_saga.engine import journal
from agent_saga.engine.saga import Saga
from agent_saga.errors import (
    AgentSagaError,
    IllegalTransition,
    RecoveryError,
    StateError,
    WALError,
)
from agent_saga.recovery.cases import case_of, is_case
from agent_saga.recovery.claim import OWNED, Place, claimed, give_back
from agent_saga.recovery.next_step import where_to_look
from agent_saga.recovery.proofs import Proofs
from agent_saga.recovery.quarantine import quarantined_in
from agent_saga.recovery.rebuild import rebuilt
from agent_saga.recovery.recover import Recovered, bare, recoverable, undo_saga, unsettled
from agent_saga.recovery.survey import Found, survey
from agent_saga.recovery.suspended import awaits_human
from agent_saga.recovery.vanished import KnownSagas
from agent_saga.state.address import open_state
from agent_saga.wal.encoding import masked
from agent_saga.wal.takeover import dead_writer, dead_writers, told_apart

__all__ = [
    "RETRIED",
    "case_of",
    "cases_in",
    "close_case",
    "is_case",
    "named",
    "retry_case",
    "said",
    "untold_in",
]

RETRIED: Final = frozenset({SagaState.PARTIAL, SagaState.STUCK, SagaState.REOPENED})
"""The states from which what is left of a case can be undone; an overdue suspended saga can too."""


def cases_in(path: str, proofs: Proofs | None = None) -> list[Found]:
    """Return the sagas that need a human, oldest first.

    Args:
        path: the log's directory.
        proofs: what is known of the writers' chains, where that is kept.

    Raises:
        WALError: the directory as a whole is no log that can be read.
        StateError: there seems to be none, but the state store cannot be read, so nobody can tell
            what the log has lost.
    """
    if proofs is None:
        with open_state(f"file:{path}") as store:
            return cases_in(path, Proofs(KnownSagas(lambda: store)))
    seen = survey(path, dead=dead_writers(path))
    untold = proofs.add_vanished(path, seen)
    found = seen.sagas.values()
    looked_at = [saga for saga in found if _may_be_case(saga) and not _lives(path, saga)]
    proofs.expect(looked_at)
    proved = [proofs.proved(path, saga) for saga in looked_at]
    cases = sorted(filter(is_case, proved), key=lambda saga: saga.view.began)
    if untold and not cases:
        raise StateError(f"Whether anything needs a human: {untold}")
    return cases


def untold_in(path: str) -> list[tuple[Found, AgentSagaError]]:
    """Return the open sagas that nobody takes over, though no process may have them any more.

    Nobody can tell whether their owner lives, or a person has quarantined them. Each comes with the
    reason, which says what can be done.

    Raises:
        WALError: the directory as a whole is no log that can be read.
    """
    told: list[tuple[Found, AgentSagaError]] = []
    held = quarantined_in(path)
    if not held and not told_apart(path).untold:
        return told
    for found in survey(path, dead=dead_writers(path)).sagas.values():
        try:
            lives = _lives_surely(path, found)
        except WALError as error:
            told.append((found, error))
            continue
        if found.id in held and not lives and recoverable(found):
            told.append((found, quarantined(held[found.id], path)))
    return told


def _may_be_case(found: Found) -> bool:
    """Whether a saga is a case, or becomes one when its records prove to be changed."""
    return is_case(found) or recoverable(found) or unsettled(found)


def _lives(path: str, found: Found) -> bool:
    """Whether the process that owns the saga lives; what cannot be told is shown."""
    try:
        return _lives_surely(path, found)
    except WALError:
        return False


def _lives_surely(path: str, found: Found) -> bool:
    if found.view.state not in OWNED or not found.effective.owner:
        return False
    dead = dead_writer(path, found.effective.owner)
    if dead is not None:
        dead.close()
    return dead is None


def close_case(place: Place, saga: str, *, by: str, reason: str) -> None:
    """Record that a person has dealt with a saga; nothing is run.

    Args:
        place: where recovery works.
        saga: the saga's id.
        by: who says so.
        reason: what was done about it.

    Raises:
        RecoveryError: no name or reason is given, the saga has not ended, or it is no case.
        ClaimRefused: somebody else acts on it, or the log has no such saga.
        Quarantined: a person has quarantined it.
        WALError, StateError: something could not be read, recorded or stored.

    Crash: the case is closed or it is not; closing it again is refused once it is. Fails closed.
    """
    by, reason = named(by), said(reason)
    log = place.wal.path
    check = functools.partial(_check_case, log=log)
    with claimed(place, saga, reason="operator", by=by, check=check, despite=True) as claim:
        found = claim.found
        owned = bare(place, claim)
        seq = 0
        for step in found.view.standing:
            seq = _close_step(owned, step, by, reason) or seq
        if _of_a_part(found):
            seq = journal.saga_event(owned, Ev.SAGA_UNDONE_TO, by=by, reason=reason)
        elif not (seq and _of_steps(found)):
            told = dict(found.damaged_writers)
            seq = _closing(owned, found, by=by, reason=reason, damages=told)
        place.wal.wait_durable(seq)
        give_back(place, claim, seq)


def _of_a_part(found: Found) -> bool:
    """Say whether a case is about the steps after a point only; the saga is committed up to it."""
    left = found.view.state in (SagaState.PARTIAL, SagaState.STUCK)
    return left and found.view.undo_only is not None and not found.problems


def _of_steps(found: Found) -> bool:
    """Say whether a case is about steps of a committed saga only; it stays committed."""
    view = found.view
    well = all(state in SCOPE_WELL for state in view.scopes.values())
    return view.state is SagaState.COMMITTED and well and not found.problems


def _check_case(found: Found, log: str) -> None:
    if awaits_human(found) and not found.problems:
        retry = told_command(f"queue retry {quoted(found.id)} --by NAME --import MODULE", log)
        raise RecoveryError(
            f"Saga {found.id} waits; what it did stands, so it cannot be closed.",
            fix=f"Its program resumes it by its id, or it is undone: {retry}",
        )
    if is_case(found):
        return
    state = found.view.state
    if state in OWNED or state is SagaState.RELEASED:
        raise RecoveryError(
            f"Saga {found.id} has not ended; it cannot be closed before recovery has tried.",
            fix=recover_command(log),
        )
    raise RecoveryError(
        f"Saga {found.id} is {state.value} and is no case; there is nothing to close.",
        fix=where_to_look(found.view, log),
    )


def _close_step(saga: Saga, step: StepView, by: str, reason: str) -> int | None:
    """Close one step that may stand; what its records do not allow is left as it is.

    Returns:
        The record that closes it.
    """
    if step.state is StepState.COMPENSATING:
        _write(saga, step, Ev.STEP_COMPENSATION_UNKNOWN, error=None, ending="interrupted")
        step.state = StepState.COMPENSATION_UNKNOWN
    with contextlib.suppress(IllegalTransition):
        step_after(step.state, Ev.STEP_CLOSED)
        return _write(saga, step, Ev.STEP_CLOSED, by=by, reason=reason)
    return None


def _write(saga: Saga, step: StepView, event: str, **fields: object) -> int:
    payload, _ = masked(fields)
    return saga.engine.wal.append(
        event,
        saga=saga.id,
        epoch=saga.epoch,
        step=step.id,
        generation=step.generation,
        payload=payload,
    )


def _closing(saga: Saga, found: Found, **fields: object) -> int:
    """Record the closing; where the records are at fault, whatever state they leave."""
    if not found.problems:
        return journal.saga_event(saga, Ev.SAGA_CLOSED, **fields)
    fields["despite"] = found.problems
    return journal.write(saga, Ev.SAGA_CLOSED, masked(fields)[0])


def retry_case(place: Place, saga: str, *, by: str) -> Recovered:
    """Take a saga over and undo what is left of it, orphans included.

    Args:
        place: where recovery works.
        saga: the saga's id.
        by: who asks for it.

    Raises:
        RecoveryError: no name is given, the saga is in no state to be retried, or its records
            cannot be trusted.
        ClaimRefused: somebody else acts on it, or the log has no such saga.
        Quarantined: a person has quarantined it.
        WALError, StateError: something could not be read, recorded or stored.

    Crash: what was announced is in the log; recovery goes on and repeats nothing. Fails closed.
    """
    by = named(by)
    check = functools.partial(_check_retry, log=place.wal.path)
    with claimed(place, saga, reason="operator", by=by, check=check) as claim:
        now = place.engine.clock.monotonic()
        owned = rebuilt(place.engine, claim.found, claim.epoch, dead_since=now)
        return undo_saga(place, claim, owned, f"retried by {by}", retry=True)


def _check_retry(found: Found, log: str) -> None:
    if found.problems:
        close = told_command(f"queue close {quoted(found.id)} --by NAME --reason WHY", log)
        raise RecoveryError(
            f"The records of saga {found.id} cannot be trusted: {found.problems[0]}.",
            fix=f"Look at the world, put it right, and close the case: {close}",
        )
    if found.view.state not in RETRIED and not awaits_human(found):
        raise RecoveryError(
            f"Saga {found.id} is {found.view.state.value}; there is nothing to retry.",
            fix=where_to_look(found.view, log),
        )


def named(by: str) -> str:
    """Return who acts.

    Raises:
        RecoveryError: it is blank.
    """
    if blank(by):
        raise RecoveryError("This is a named person's act.", fix="Say who you are: --by NAME.")
    return by.strip()


def said(reason: str) -> str:
    """Return why.

    Raises:
        RecoveryError: it is blank.
    """
    if not isinstance(reason, str) or not seen(reason.strip()):
        raise RecoveryError("A reason is needed; it is recorded.", fix="Say why: --reason '…'.")
    return reason.strip()

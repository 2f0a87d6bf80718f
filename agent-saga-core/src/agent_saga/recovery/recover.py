"""Undoing what died: one saga after another, each by itself.

Rules of this part:

- A saga whose owner lives is never touched; the kernel's lock says so, not a clock.
- What a dead process left running or half undone is undone by the engine's own unwinding, inverses
  by name. A saga that was committed with unknown endings is only asked about, never undone.
- A saga whose records cannot be trusted is a human's case. So is one whose inverse failed for good
  or may have succeeded, and one whose inverse is not installed here, unless the pass leaves such
  sagas to another one.
- An error in one saga is reported with that saga and stops no other. A saga that cannot be made
  from its records is marked STUCK, so that the queue shows it and nobody tries it for ever.
- A committed saga is asked about only where a prober could answer.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from msgspec import Struct

from agent_saga.domain.effective import facts_of
from agent_saga.domain.lifecycle import SagaState, StepState
from agent_saga.domain.records import Ev
from agent_saga.domain.report import RollbackReport
from agent_saga.engine import interrupts, journal
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.requests import Protocol
from agent_saga.engine.saga import Saga
from agent_saga.engine.settle import settle_unknown
from agent_saga.engine.unwind import unwind
from agent_saga.errors import AgentSagaError, ClaimRefused, Quarantined, one_line
from agent_saga.observe.logger import logger
from agent_saga.recovery.cases import case_of, is_case
from agent_saga.recovery.claim import OWNED, Claimed, Place, claimed, give_back
from agent_saga.recovery.rebuild import rebuilt
from agent_saga.recovery.survey import Found, look
from agent_saga.recovery.suspended import overdue

T = TypeVar("T")

log = logger("agent_saga.recovery")

_MAY_ARRIVE = frozenset(
    {
        StepState.INTENT,
        StepState.UNKNOWN,
        StepState.COMPENSATING,
        StepState.COMPENSATION_UNKNOWN,
    }
)

LIVE = "live"
WAITING = "waiting"
UNDONE = "undone"
SETTLED = "settled"
NEEDS_HUMAN = "needs a human"
FAILED = "failed"
HELD = "held"
ELSEWHERE = "claimed elsewhere"


class Recovered(Struct, frozen=True):
    """What became of one saga.

    Attributes:
        saga, name: which saga.
        outcome: "live", "held", "waiting", "undone", "settled", "needs a human", "claimed
            elsewhere" or "failed".
        reason: why, in words; empty when it is undone.
        report: the report of its unwinding, where it was unwound.
    """

    saga: str
    name: str
    outcome: str
    reason: str = ""
    report: RollbackReport | None = None

    @property
    def needs_human(self) -> bool:
        """Whether a person has to look at it."""
        return self.outcome in (NEEDS_HUMAN, FAILED)

    @property
    def stands(self) -> bool:
        """Whether something of it stands now that it was unwound, be it by approval."""
        return self.report is not None and not self.report.clean


def recoverable(found: Found) -> bool:
    """Say whether recovery may act on a saga, if its owner is dead or has released it."""
    state = found.view.state
    return state in OWNED or state is SagaState.RELEASED or overdue(found)


def unsettled(found: Found) -> bool:
    """Say whether a committed saga has unknown calls that a prober may still tell about."""
    if found.view.state is not SagaState.COMMITTED:
        return False
    unknown = {
        step.id
        for step in found.view.steps.values()
        if step.state in (StepState.INTENT, StepState.UNKNOWN) and not step.reversible
    }
    return any(
        record.step in unknown and "prober" in facts_of(record)
        for record in found.effective.records
        if record.event == Ev.STEP_INTENT
    )


def may_still_arrive(found: Found) -> bool:
    """Say whether a call of the saga may have been in flight when its owner ended."""
    return any(
        step.state in _MAY_ARRIVE and not step.reversible for step in found.view.steps.values()
    )


def recover_one(place: Place, found: Found, *, by: str, dead_since: float) -> Recovered:
    """Recover one saga; never raises for what is wrong with it.

    Args:
        place: where recovery works.
        found: the saga, as surveyed.
        by: who recovers it.
        dead_since: the monotonic time at which its owner was proved dead, in seconds.
    """
    name = found.view.name
    try:
        found = found if found.proved else place.proved(found)
        if found.problems:
            return Recovered(found.id, name, NEEDS_HUMAN, case_of(found))
        with claimed(
            place, found.id, reason="recover", by=by, check=_check_open, found=found
        ) as claim:
            return _acted(place, claim, dead_since)
    except ClaimRefused as refusal:
        return _left_to_others(place, found, refusal)
    except Quarantined as refusal:
        return Recovered(found.id, name, NEEDS_HUMAN, refusal.message)
    except AgentSagaError as error:
        log.warning("saga %s could not be recovered: %s", found.id, error)
        return Recovered(found.id, name, FAILED, error.message)
    except Exception as error:
        log.exception("saga %s could not be recovered", found.id)
        return Recovered(found.id, name, FAILED, f"{type(error).__name__}: {error}")


def _left_to_others(place: Place, found: Found, refusal: ClaimRefused) -> Recovered:
    """Say what became of a saga that was not claimed: others may have brought it to its end."""
    name = found.view.name
    now = _looked(place, found)
    if now is None or recoverable(now) or unsettled(now):
        return Recovered(found.id, name, ELSEWHERE, refusal.message)
    if is_case(now):
        return Recovered(found.id, name, NEEDS_HUMAN, case_of(now))
    return Recovered(found.id, name, SETTLED, f"it is {now.view.state.value} without this pass")


def _looked(place: Place, found: Found) -> Found | None:
    try:
        return look(place.wal.path, found.id)
    except AgentSagaError:
        return None


def _check_open(found: Found) -> None:
    """Refuse what ended by itself between the survey and the claim."""
    if not (recoverable(found) or unsettled(found)):
        raise ClaimRefused(f"Saga {found.id} has ended meanwhile.")


def _acted(place: Place, claim: Claimed, dead_since: float) -> Recovered:
    found = claim.found
    if found.problems:
        _release(place, claim)
        return Recovered(found.id, found.view.name, NEEDS_HUMAN, "; ".join(found.problems))
    try:
        saga = rebuilt(place.engine, found, claim.epoch, dead_since=dead_since)
    except Exception as error:
        log.exception("saga %s cannot be made from its records", found.id)
        return _stuck(place, claim, f"it cannot be made from its records: {one_line(error)}")
    if saga.state is SagaState.COMMITTED:
        return _settle(place, claim, saga)
    return undo_saga(place, claim, saga, "its process died")


def bare(place: Place, claim: Claimed) -> Saga:
    """Return a saga without steps, to record something of it as a whole."""
    saga = Saga(place.engine, claim.found.view.name, is_async=False)
    saga.id, saga.epoch, saga.begun_in = claim.found.id, claim.epoch, saga.fork
    view = claim.found.view
    saga.state, saga.only, saga.undo_to = view.state, view.undo_only, view.undo_to
    return saga


def _release(place: Place, claim: Claimed) -> None:
    saga = bare(place, claim)
    if saga.state in OWNED:
        journal.saga_event(saga, Ev.SAGA_RELEASED, cause="its records cannot be trusted")
        place.wal.barrier_sync()


def _stuck(place: Place, claim: Claimed, reason: str) -> Recovered:
    saga = bare(place, claim)
    if saga.state is not SagaState.UNWINDING:
        journal.unwinding(saga.root, "its process died")
    seq = journal.saga_event(saga, Ev.SAGA_STUCK, reason=reason)
    place.wal.wait_durable(seq)
    give_back(place, claim, seq, settled=False)
    return Recovered(saga.id, saga.name, NEEDS_HUMAN, reason)


def undo_saga(
    place: Place, claim: Claimed, saga: Saga, cause: str, *, retry: bool = False
) -> Recovered:
    """Unwind a claimed saga and say what became of it.

    Args:
        place: where recovery works.
        claim: the claim on it.
        saga: the saga, rebuilt.
        cause: why, for the record.
        retry: an operator asks again: look at orphans too.
    """
    report = driven(place, unwind(saga.root, cause, retry=retry))
    if report.outcome != "RELEASED":
        # The unwinding has told the store, unless it could not be told then.
        give_back(place, claim, settled=report.clean)
    level = logging.INFO if report.clean else logging.ERROR
    log.log(level, "recovered: %s", report.summary())
    if report.outcome == "RELEASED":
        outcome = WAITING if interrupts.asked_to_stop() else FAILED
        return Recovered(saga.id, saga.name, outcome, _why(report), report)
    if report.standing:
        return Recovered(saga.id, saga.name, NEEDS_HUMAN, _why(report), report)
    stands = "; ".join(f"{line.tool} stands, {line.detail}" for line in report.kept)
    return Recovered(saga.id, saga.name, UNDONE, stands, report)


def driven(place: Place, protocol: Protocol[T]) -> T:
    """Run a protocol on a saga of somebody else to its end; only a second interrupt cuts it short.

    The interrupts stay kept: what comes after it stops too.
    """
    driver = SyncDriver(place.engine, shielded=True)
    try:
        return driver.drive(protocol)
    finally:
        if driver.cut is not None:
            interrupts.keep(driver.cut)


def _why(report: RollbackReport) -> str:
    if report.standing:
        return "; ".join(str(line) for line in report.standing)
    return "; ".join(report.notes) or "it could not be finished"


def _settle(place: Place, claim: Claimed, saga: Saga) -> Recovered:
    open_steps = driven(place, _asked(saga))
    place.wal.barrier_sync()
    give_back(place, claim, settled=not open_steps)
    if open_steps:
        names = ", ".join(open_steps)
        reason = f"it was committed, and it is unknown whether these took effect: {names}"
        return Recovered(saga.id, saga.name, NEEDS_HUMAN, reason)
    return Recovered(saga.id, saga.name, SETTLED)


def _asked(saga: Saga) -> Protocol[list[str]]:
    """Ask about every unknown ending of a committed saga; return the tools that stay unknown."""
    left = []
    for step in list(saga.steps.values()):
        if step.tool.reversible or step.state not in (StepState.INTENT, StepState.UNKNOWN):
            continue
        yield from settle_unknown(step, patient=saga.engine.timing.wait_to_settle)
        if step.state not in (StepState.COMMITTED, StepState.NOT_APPLIED):
            left.append(step.tool.name)
    return left

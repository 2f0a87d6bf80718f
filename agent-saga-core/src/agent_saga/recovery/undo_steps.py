"""Undoing some steps of a saga, for a program that goes back to a point in its own history.

Rules of this part:

- Which steps is the caller's to say. A step that cannot be undone is refused before any is.
- If every step that stands is chosen, the whole saga is undone, and ends so. A committed one that
  loses a part is undone up to there, and committed again; a suspended one stays suspended. No other
  loses a part.
- The claim is the same as for undoing the whole, so nothing is undone twice; an interrupted undo
  goes on when it is asked for again.
"""

from __future__ import annotations

from collections.abc import Collection

from agent_saga.domain.commands import queue_command, recover_command
from agent_saga.domain.lifecycle import SagaState, StepState
from agent_saga.domain.report import RollbackReport
from agent_saga.engine.saga import Saga, undo_order
from agent_saga.engine.unwind_steps import unwind_steps
from agent_saga.errors import UndoRefused
from agent_saga.recovery.claim import Place, claimed, let_wait
from agent_saga.recovery.queue import named, said
from agent_saga.recovery.rebuild import rebuilt
from agent_saga.recovery.recover import driven, undo_saga
from agent_saga.recovery.survey import Found
from agent_saga.recovery.undo import planned

_LOSES_A_PART = frozenset({SagaState.COMMITTED, SagaState.SUSPENDED})
_LOSES_ALL = frozenset({*_LOSES_A_PART, SagaState.RUNNING, SagaState.RELEASED, SagaState.UNWINDING})
_GONE = frozenset({StepState.NEW, StepState.NOT_APPLIED, StepState.COMPENSATED, StepState.CLOSED})


def stands(found: Found, step: str) -> bool:
    """Say whether a step of a saga may have left something that is neither undone nor harmless."""
    view = found.view.steps.get(step)
    if view is None or view.reversible or view.state in _GONE:
        return False
    return not (view.nothing and view.state is StepState.COMMITTED)


def undo_steps(
    place: Place, saga: str, chosen: Collection[str], *, by: str, reason: str
) -> RollbackReport:
    """Undo steps of a saga; all others stay as they are.

    Args:
        place: where recovery works.
        saga: the saga's id.
        chosen: the ids of the steps.
        by: who asks for it.
        reason: why; both are recorded.

    Raises:
        UndoRefused: a step cannot be undone, or the saga can lose no part now; nothing was run.
        RecoveryError: no name or reason is given, or records of the saga are lost.
        ClaimRefused: somebody else acts on it, or the log has no such saga.
        Quarantined: a person has quarantined it.
        WALError, StateError: something could not be read, recorded or stored.

    Crash: what was announced is in the log; the same call, or recovery, goes on and repeats
    nothing. Fails closed.
    """
    by, reason = named(by), said(reason)

    def check(found: Found) -> None:
        check_steps(place, found, chosen)

    with claimed(place, saga, reason="undo", by=by, check=check) as claim:
        now = place.engine.clock.monotonic()
        owned = rebuilt(place.engine, claim.found, claim.epoch, dead_since=now)
        if _is_all(claim.found, chosen):
            done = undo_saga(place, claim, owned, f"undone by {by}: {reason}")
            return done.report or owned.new_report()
        if owned.state is not SagaState.SUSPENDED:
            _aim(owned, chosen)
            done = undo_saga(place, claim, owned, f"undone by {by}: {reason}")
            return done.report or owned.new_report()
        report = driven(place, unwind_steps(owned, chosen))
        place.wal.barrier_sync()
        place.wal.check_fence(owned.id, owned.epoch)
        let_wait(place, claim)
        return report


def check_steps(place: Place, found: Found, chosen: Collection[str]) -> None:
    """Refuse to undo steps of a saga if that is not possible now.

    Raises:
        UndoRefused: so it is.
    """
    if found.problems:
        raise UndoRefused(
            f"The records of saga {found.id} cannot be trusted: {found.problems[0]}.",
            fix=queue_command(found.id, place.wal.path),
        )
    state = found.view.state
    interrupted = found.view.undo_only is not None and _standing(found) & found.view.undo_only
    if interrupted and interrupted != set(chosen):
        raise UndoRefused(
            f"Another part of saga {found.id} is being undone; that has not ended.",
            fix=f"Finish that first: {recover_command(place.wal.path)}",
        )
    if not interrupted and state not in (_LOSES_ALL if _is_all(found, chosen) else _LOSES_A_PART):
        raise UndoRefused(
            f"Saga {found.id} is {state.value}; some of its steps cannot be undone without the "
            "others.",
            fix="Go on with it until it is committed or suspended, or let recovery undo all of it.",
        )
    now = place.engine.clock.monotonic()
    saga = rebuilt(place.engine, found, found.effective.epoch, dead_since=now)
    plans = [planned(step, place.engine) for step in saga.steps.values() if step.id in chosen]
    reasons = "; ".join(f"{plan.tool}: {plan.detail}" for plan in plans if plan.what == "cannot")
    if reasons:
        raise UndoRefused(
            f"Saga {found.id} has steps that cannot be undone: {reasons}.",
            fix="Leave that part of it alone.",
        )


def _aim(saga: Saga, chosen: Collection[str]) -> None:
    """Let undoing a committed saga be about the chosen steps."""
    if saga.only is not None:
        return  # an undoing of the same steps was interrupted, and goes on
    steps = undo_order([step for step in saga.steps.values() if step.id not in chosen])
    kept = [step for step in steps if step.state is StepState.COMMITTED]
    saga.only, saga.undo_to = frozenset(chosen), kept[0].id if kept else ""


def _standing(found: Found) -> set[str]:
    return {step for step in found.view.steps if stands(found, step)}


def _is_all(found: Found, chosen: Collection[str]) -> bool:
    return _standing(found) <= set(chosen) and found.view.undo_only is None

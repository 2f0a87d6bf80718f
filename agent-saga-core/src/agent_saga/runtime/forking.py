"""Going another way: a resumed run that leaves what was recorded after some step.

Rules of this part (decision record 0010):

- It is the same saga: what was recorded up to the point is gone on with, and a failure later undoes
  all of it. Nothing of the way that is left is taken over: no call of the new run is one of its
  steps.
- What becomes of the way that is left is said by whoever forks: its steps are undone, latest first,
  before the new run begins; or they are kept, and stay steps of this saga. If one of them cannot be
  undone, the fork is refused before anything is run or recorded.
- Which steps are left, and what becomes of them, is durable before the first is undone; a run that
  is resumed after a crash in between finishes that first.
- A fork is made once: resuming with the same point goes on with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.domain.commands import recover_command
from agent_saga.domain.fold import Fork
from agent_saga.domain.lifecycle import StepState
from agent_saga.engine.branch import undo_branch
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.journal import step_list
from agent_saga.engine.options import BEGIN, KEEP, UNDO
from agent_saga.engine.releasing import release
from agent_saga.errors import ForkRefused, NotRecordable, RecoveryError, UndoRefused
from agent_saga.recovery.undo import came_after, planned, point_of

if TYPE_CHECKING:
    from agent_saga.engine.options import BoundaryOptions
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step

_GONE = frozenset({StepState.NEW, StepState.NOT_APPLIED, StepState.COMPENSATED})


def fork_of(saga: Saga, options: BoundaryOptions) -> Fork | None:
    """Return the fork that a resumed saga is to make; None if none is asked for, or it was made.

    Raises:
        ForkRefused: there is no such step, or a step of the way that is left cannot be undone.
    """
    if options.fork_at is None:
        return None
    try:
        point = _point(saga, options.fork_at)
    except UndoRefused as refusal:
        raise ForkRefused(refusal.message, fix=refusal.fix) from None
    at = "" if point is None else point.id
    if saga.forked_at == at:
        return None
    if at in saga.abandoned:
        raise ForkRefused(
            f"The step {at} of saga {saga.id} is on a way that was left before.",
            fix="Name a step of the way that the run is on.",
        )
    steps = [
        step
        for step in saga.steps.values()
        if step.id not in saga.abandoned and (point is None or came_after(step, point))
    ]
    fork = Fork(at, tuple(step.id for step in steps), str(options.abandoned))
    _check(saga, fork, steps)
    return fork


def _point(saga: Saga, at: str) -> Step | None:
    if at == BEGIN and not any(step.tool.name == BEGIN for step in saga.steps.values()):
        return None
    return point_of(saga, at)


def _check(saga: Saga, fork: Fork, steps: list[Step]) -> None:
    try:
        step_list(fork.abandoned)
    except NotRecordable as error:
        raise ForkRefused(
            f"The {len(steps)} steps after that are too many to be left at once.",
            fix="Name a later step.",
        ) from error
    if fork.what != UNDO:
        return
    plans = [planned(step, saga.engine) for step in steps if step.state not in _GONE]
    cannot = [f"{plan.tool}: {plan.detail}" for plan in plans if plan.what == "cannot"]
    if cannot:
        raise ForkRefused(
            f"The run of saga {saga.id} cannot go another way there, since what it did after that "
            f"cannot be undone: {'; '.join(cannot)}.",
            fix=f"abandoned={KEEP!r} lets it stand as a part of this saga.",
        )


def leave(saga: Saga, fork: Fork) -> None:
    """Note in memory what a fork leaves."""
    saga.forked_at = fork.at
    saga.abandoned |= dict.fromkeys(fork.abandoned, fork.what)


def finish_leaving(saga: Saga) -> None:
    """Undo what is to be undone of the ways that were left.

    Raises:
        RecoveryError: something of it could not be undone; the saga is left to recovery.
    """
    left = [
        step
        for step in saga.steps.values()
        if saga.abandoned.get(step.id) == UNDO and step.state not in _GONE
    ]
    left = [step for step in left if not (step.tool.reversible and step.compensation is None)]
    if not left or saga.released:
        return
    report = SyncDriver(saga.engine, shielded=True).drive(undo_branch(saga, left))
    if saga.released or report.standing or report.kept:
        if not saga.released:
            release(saga.root, "the way that was left could not be undone")
        raise RecoveryError(
            f"What saga {saga.id} did on the way that was left could not be undone completely.\n"
            f"{report.summary()}",
            fix=f"Recovery undoes the saga as a whole: {recover_command(saga.engine.wal.address)}",
        )

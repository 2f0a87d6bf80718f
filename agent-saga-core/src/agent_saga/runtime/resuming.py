"""Going on with a recorded saga, or reading one that has ended.

Rules of this part:

- Resuming takes the recorded saga over like recovery does: only if it was suspended or released,
  or if its owner is dead. A saga that is being undone is not resumed, nor is one whose suspension
  was to end in undoing and is over. One that has ended is only read.
- A saga of which records are lost, damaged or stale is not resumed: what they told would be done
  again.
- That it was resumed is durable before anything else happens in it: from then on it is a living
  process's.
- A run may go another way after a recorded step: see `forking`.
- What a savepoint was undoing when its process died is undone first.
"""

from __future__ import annotations

from agent_saga.domain import identity
from agent_saga.domain.commands import (
    queue_command,
    quoted,
    recover_command,
    show_command,
    told_command,
)
from agent_saga.domain.effective import facts_of
from agent_saga.domain.lifecycle import SagaState, ScopeState, StepState
from agent_saga.domain.records import Ev
from agent_saga.engine import journal
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.options import BoundaryOptions
from agent_saga.engine.replay import Replay
from agent_saga.engine.saga import Saga
from agent_saga.engine.scope import Scope
from agent_saga.engine.step import Step
from agent_saga.engine.unwind import unwind
from agent_saga.errors import (
    ClaimRefused,
    ForkRefused,
    RecoveryError,
    SagaClosed,
    SagaUnwinding,
    StateError,
)
from agent_saga.observe.logger import logger
from agent_saga.recovery.claim import Place, claimed
from agent_saga.recovery.hold import forget
from agent_saga.recovery.rebuild import rebuilt
from agent_saga.recovery.survey import Found
from agent_saga.recovery.suspended import overdue
from agent_saga.runtime.forking import finish_leaving, fork_of, leave

log = logger("agent_saga.recovery")

_GOES_ON = frozenset({SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED})
_OPEN = (StepState.INTENT, StepState.UNKNOWN, StepState.ORPHANED, StepState.UNRESOLVED)


def resumed(place: Place, found: Found, key: str, options: BoundaryOptions) -> Saga:
    """Return a recorded saga to go on with, or to read if it has ended.

    Args:
        place: where recovery works.
        found: the saga, as the log tells it.
        key: the id that it was asked for by.
        options: of the boundary. Blocks.

    Raises:
        ClaimRefused: a process that lives owns it, or it has ended meanwhile.
        SagaUnwinding: it is being undone.
        SagaClosed: it was suspended until a time that is over, to be undone then.
        RecoveryError: records of it are lost, or cannot be trusted.
        ForkRefused: it is to go another way, and cannot.
    """
    if found.view.state not in _GOES_ON and found.view.state is not SagaState.UNWINDING:
        _check_not_lost(place.proved(found), key, place.wal.path)
        _refuse_fork(found, key, options, place.wal.path)
        saga = _rebuilt(place, found, found.effective.epoch, key)
        _let_replay(saga, options)
        saga.root.shut()
        saga.read_only = True
        return saga

    def check(now: Found) -> None:
        _check_goes_on(now, key, place.wal.path)
        fork_of(_rebuilt(place, now, now.effective.epoch, key), options)

    with claimed(place, found.id, reason="resume", by="resume", check=check) as claim:
        saga = _rebuilt(place, claim.found, claim.epoch, key)
        fork = fork_of(saga, options)
        seq = journal.resumed(saga, fork)
        if fork is not None:
            leave(saga, fork)
        place.wal.wait_durable(seq)
        place.wal.check_fence(saga.id, saga.epoch)
        _forget_hold(place, saga.id)
        _finish_undoing(saga)
        finish_leaving(saga)
        _let_replay(saga, options)
    return saga


def _check_not_lost(found: Found, key: str, log: str) -> None:
    """Refuse to read a saga of which records are lost: it may have ended in another way.

    Raises:
        RecoveryError: so it is.
    """
    if found.lost:
        raise RecoveryError(
            f"The saga {key!r} cannot be resumed: {found.lost}.",
            fix=f"Look at the world before anything is done: {show_command(found.id, log)}",
        )


def _refuse_fork(found: Found, key: str, options: BoundaryOptions, log: str) -> None:
    if options.fork_at is not None:
        undo = f"undo {quoted(found.id)} --to STEP --by NAME --reason WHY"
        raise ForkRefused(
            f"The saga {key!r} has ended ({found.view.state.value}); it cannot go another way.",
            fix="Undo what came after a step, then begin a saga under another id: "
            f"{told_command(undo, log)} --import MODULE",
        )


def _forget_hold(place: Place, saga: str) -> None:
    """Clear what the store remembers of a crash; that it stays there does no harm."""
    try:
        forget(place.store, saga)
    except StateError:
        log.debug("since when saga %s was held could not be forgotten", saga, exc_info=True)


def _check_goes_on(found: Found, key: str, log: str) -> None:
    state = found.view.state
    if found.problems:
        raise RecoveryError(
            f"The saga {key!r} cannot be resumed: {'; '.join(found.problems)}.",
            fix=queue_command(found.id, log),
        )
    if state is SagaState.UNWINDING or _was_unwinding(found):
        raise SagaUnwinding(
            f"The saga {key!r} is being undone; it cannot be resumed.",
            rule="unwinding",
            reason="its boundary failed, or somebody undoes it",
            fix=f"Begin one under another id; recovery undoes this one: {recover_command(log)}",
        )
    if state not in _GOES_ON:
        raise ClaimRefused(f"The saga {key!r} has ended meanwhile.", fix="Resume it again.")
    if overdue(found):
        raise SagaClosed(
            f"The saga {key!r} waited until its deadline and is to be undone; it cannot be "
            "resumed any more.",
            rule="deadline",
            reason="the deadline of its suspension is over",
            fix=f"Begin one under another id; recovery undoes this one: {recover_command(log)}",
        )


def _was_unwinding(found: Found) -> bool:
    """Say whether a saga was released in the middle of its undoing."""
    for record in reversed(found.effective.records):
        if record.event == Ev.SAGA_RESUMED:
            return False
        if record.event == Ev.SAGA_UNWINDING and not facts_of(record).get("scope"):
            return True
    return False


def _finish_undoing(saga: Saga) -> None:
    """Undo what savepoints were undoing when their process died, the inner ones first."""
    for scope in reversed(saga.root.subtree()):
        if scope.state is ScopeState.UNWINDING and not saga.released:
            protocol = unwind(scope, "its process died")
            SyncDriver(saga.engine, shielded=True).drive(protocol)
    if saga.released:
        raise RecoveryError(
            f"A savepoint of saga {saga.id} was being undone and could not be finished.",
            fix=recover_command(saga.engine.wal.address),
        )


def _rebuilt(place: Place, found: Found, epoch: int, key: str) -> Saga:
    now = place.engine.clock.monotonic()
    saga = rebuilt(place.engine, found, epoch, dead_since=now)
    saga.key = saga.key or key
    return saga


def _let_replay(saga: Saga, options: BoundaryOptions) -> None:
    """Let the calls of the new run find the recorded steps, except those that were left."""
    scopes = {scope.path: scope for scope in saga.root.subtree() if scope.path}
    left, made = saga.abandoned.keys(), saga.calls_made
    steps = list(saga.steps.values())
    saga.replay = Replay(steps, scopes, left=left, made=made, whole=options.whole)
    for step in saga.steps.values():
        if step.keyed:
            saga.keyed[step.key] = step
        if _is_open(step):
            saga.unsettled[step.id] = step
    _skip_ordinals(saga)


def _is_open(step: Step) -> bool:
    """Say whether an equal call would be a blind retry, wherever it is made."""
    return step.order is None and not step.tool.reversible and step.state in _OPEN


def _skip_ordinals(saga: Saga) -> None:
    """Let new steps be counted after the calls that the recorded run made."""
    for step in saga.steps.values():
        scope: Scope = step.scope
        if step.keyed or not step.key:
            continue
        ordinals = scope.calls.get(step.tool.name)
        if ordinals is None:
            ordinals = identity.Ordinals(saga.id, scope.path, step.tool.name)
            ordinals.go_on_after(saga.calls_made.get((scope.path, step.tool.name), 0))
            scope.calls[step.tool.name] = ordinals
        ordinals.go_on_after(int(step.key[-1]))

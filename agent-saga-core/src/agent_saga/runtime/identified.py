"""A saga with an id of the user's own: begun once, and gone on with by any process.

Rules of this part:

- The store grants an id once, atomically, before the log says anything; so of two processes that
  begin the same id, one is refused.
- Resuming takes the recorded saga over like recovery does: only if it was suspended or released,
  or if its owner is dead. A saga that is being undone is not resumed, nor is one whose suspension
  was to end in undoing and is over. One that has ended is only read.
- A saga of which records are lost, damaged or stale is not resumed: what they told would be done
  again.
- That it was resumed is durable before anything else happens in it: from then on it is a living
  process's.
- A run may go another way after a recorded step: see `forking`.
- What a savepoint was undoing when its process died is undone first.
- If the id was granted and the log has nothing of it, its first owner died, or ended its boundary,
  before its first step: the saga begins under a new epoch. If that owner's log is gone or damaged,
  nobody knows, and the id is refused.
"""

from __future__ import annotations

import re
import threading

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
from agent_saga.engine import active, journal
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.options import BoundaryOptions
from agent_saga.engine.ports import Engine
from agent_saga.engine.replay import Replay
from agent_saga.engine.saga import Saga
from agent_saga.engine.scope import Scope
from agent_saga.engine.step import Step
from agent_saga.engine.unwind import unwind
from agent_saga.errors import (
    ClaimRefused,
    ConfigurationError,
    DuplicateSaga,
    ForkRefused,
    RecoveryError,
    SagaClosed,
    SagaUnwinding,
    StateError,
)
from agent_saga.observe.logger import logger
from agent_saga.recovery.claim import Place, claimed
from agent_saga.recovery.hold import forget
from agent_saga.recovery.proofs import Proofs
from agent_saga.recovery.rebuild import rebuilt
from agent_saga.recovery.survey import Found, look
from agent_saga.recovery.suspended import overdue
from agent_saga.recovery.vanished import KnownSagas
from agent_saga.runtime.forking import finish_leaving, fork_of, leave
from agent_saga.state.base import StateStore
from agent_saga.state.claims import Claim, claim_key, keys_of, open_saga, over, raise_epoch
from agent_saga.state.document import Doc
from agent_saga.wal.damage import Damage
from agent_saga.wal.departed import has_departed
from agent_saga.wal.file import FileWAL
from agent_saga.wal.reader import scan_writer
from agent_saga.wal.takeover import dead_owner, has_left, opening_of

log = logger("agent_saga.recovery")

_GOES_ON = frozenset({SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED})
_OPAQUE = re.compile(r"\A[A-Za-z0-9_-]{16}\Z")

_OPEN = (StepState.INTENT, StepState.UNKNOWN, StepState.ORPHANED, StepState.UNRESOLVED)
_LONGEST = 300

_beginning = threading.Lock()
"""Held while an id is granted, so that two threads do not both take a false start for theirs."""


def identified(engine: Engine, store: StateStore, options: BoundaryOptions) -> Saga:
    """Return the saga of an id: a new one, or the recorded one to go on with.

    Args:
        engine: what it runs on.
        store: grants ids and epochs.
        options: of the boundary; `saga_id` is set. Blocks.

    Raises:
        DuplicateSaga: the id was used before, and the saga is not to be resumed.
        ClaimRefused: a process that lives owns it.
        SagaUnwinding: it is being undone.
        SagaClosed: it was suspended until a time that is over, to be undone then; or its records
            have left the log by compaction.
        RecoveryError: records of it are lost, or cannot be trusted.
        ForkRefused: it is to go another way, and cannot.
        ConfigurationError: the log is not one in files, or the id is no text that fits.
    """
    key = _checked(options.saga_id)
    wal = engine.wal
    if not isinstance(wal, FileWAL):
        raise ConfigurationError(
            f"A saga with an id of its own needs a log in files, not {wal.address}.",
            fix="Give the kit wal='a path'.",
        )
    place = Place(engine, wal, store, Proofs(KnownSagas(lambda: store)))
    found = _recorded(wal.path, key, resume=options.resume)
    if found is None and options.fork_at is not None:
        raise ForkRefused(f"The log has no saga {key!r}; there is nothing to go another way from.")
    if found is None:
        return _begun(place, key, options)
    if not options.resume:
        raise _duplicate(key, found.view.state.value)
    return _resumed(place, found, key, options)


def _checked(key: object) -> str:
    if not isinstance(key, str) or not key.strip() or len(key) > _LONGEST:
        raise ConfigurationError(f"A saga_id is a text of 1 to {_LONGEST} characters.")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(
            "A saga_id holds half of a surrogate pair, which no log can record."
        ) from None
    return key


def _recorded(path: str, key: str, *, resume: bool) -> Found | None:
    """Return the saga of an id of the user's own, else the one that the log calls so."""
    for saga in [identity.saga_id_of(key), *_OPAQUE.findall(key)]:
        found = look(path, saga)
        if found is not None:
            return found
        if has_departed(path, saga):
            raise _departed(key, resume=resume)
    return None


# --- beginning -----------------------------------------------------------------------------------


def _begun(place: Place, key: str, options: BoundaryOptions) -> Saga:
    saga = Saga(place.engine, options.name, options.labels, is_async=False)
    saga.id, saga.key = identity.saga_id_of(key), key
    _check_unknown(place.store, key)
    owner = place.wal.begin()
    # A writer without its beginning may have recorded more; see `recovery.vanished`.
    place.wal.barrier_sync(1)
    with _beginning:
        claim = place.store.transact(
            keys_of(saga.id),
            over(saga.id, lambda doc: open_saga(doc, owner=owner), records=False),
        )
        if not claim.granted and options.resume:
            again = _after_a_false_start(place, saga.id, claim, key, options)
            if isinstance(again, Saga):
                return again
            claim = again
        if not claim.granted:
            raise _duplicate(key, "it was begun before")
        saga.epoch = claim.epoch
        active.opened(saga)
    return saga


def _check_unknown(store: StateStore, key: str) -> None:
    """Refuse an id that the log once gave to a saga which the store still knows.

    Raises:
        RecoveryError: the records of that saga are lost.
    """
    if any(store.get(claim_key(saga)) is not None for saga in _OPAQUE.findall(key)):
        raise _lost(key)


def _after_a_false_start(
    place: Place, saga: str, held: Claim, key: str, options: BoundaryOptions
) -> Claim | Saga:
    """Take an id over whose owner can no longer act and has recorded nothing of it."""
    if not held.owner or not _is_known(place, held.owner):
        raise _lost(key)
    if held.owner == place.wal.writer:
        if any(other.id == saga for other in active.active()):
            raise ClaimRefused(f"The saga {key!r} is open in this process.")
        return _next_epoch(place, saga, held)
    dead = dead_owner(place.wal.path, held.owner, place.wal.port)
    if dead is None:
        raise ClaimRefused(
            f"The saga {key!r} is in the hands of a process that lives (writer {held.owner}).",
            fix="Wait until it has ended, or stop that process.",
        )
    with dead:
        found = look(place.wal.path, saga)
        if found is None and _is_damaged(place, held.owner):
            raise _lost(key)
        if found is None:
            return _next_epoch(place, saga, held)
    return _resumed(place, found, key, options)


def _is_known(place: Place, writer: str) -> bool:
    """Say whether a writer's log is there, from its beginning, or left in good order."""
    path = place.wal.path
    return bool(opening_of(path, writer)) or has_left(path, writer, place.wal.port)


def _next_epoch(place: Place, saga: str, held: Claim) -> Claim:
    owner = place.wal.writer

    def rule(doc: Doc | None) -> tuple[Doc | None, Claim]:
        return raise_epoch(doc, owner=owner, seen=held.epoch)

    return place.store.transact(keys_of(saga), over(saga, rule, records=False))


def _is_damaged(place: Place, writer: str) -> bool:
    found = scan_writer(place.wal.path, writer, place.wal.port)
    return any(isinstance(one, Damage) and one.kind != "torn-tail" for one in found)


def _lost(key: str) -> RecoveryError:
    return RecoveryError(
        f"The saga {key!r} was begun before, and the log that knows of it is lost.",
        fix="Look at the world, then begin one under another saga_id.",
    )


# --- resuming ------------------------------------------------------------------------------------


def _resumed(place: Place, found: Found, key: str, options: BoundaryOptions) -> Saga:
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


def _departed(key: str, *, resume: bool) -> SagaClosed | DuplicateSaga:
    if not resume:
        return _duplicate(key, "it ended, and its records have left the log")
    return SagaClosed(
        f"The saga {key!r} has ended, and its records have left the log by compaction; it cannot "
        "be resumed or read any more.",
        rule="compacted",
        reason="it was settled and its undo window is over",
        fix="Begin one under another saga_id.",
    )


def _duplicate(key: str, state: str) -> DuplicateSaga:
    return DuplicateSaga(
        f"A saga with the id {key!r} exists already ({state}).",
        fix="Use another saga_id, or resume=True to go on with it.",
    )

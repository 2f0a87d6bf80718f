"""A saga with an id of the user's own: begun once, and gone on with by any process.

Rules of this part (design 6, R3):

- The store grants an id once, atomically, before the log says anything; so of two processes that
  begin the same id, one is refused.
- Resuming takes the recorded saga over like recovery does: only if it was suspended or released,
  or if its owner is dead. A saga that is being undone is not resumed. One that has ended is only
  read.
- If the id was granted and the log has nothing of it, its first owner died before its first step:
  the saga begins under a new epoch.
"""

from __future__ import annotations

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.records import Ev
from agent_saga.engine import journal
from agent_saga.engine.options import BoundaryOptions
from agent_saga.engine.ports import Engine
from agent_saga.engine.replay import Replay
from agent_saga.engine.saga import Saga, Scope
from agent_saga.errors import ConfigurationError, DuplicateSaga, SagaUnwinding
from agent_saga.recovery.claim import Place, claimed
from agent_saga.recovery.rebuild import rebuilt
from agent_saga.recovery.survey import Found, look
from agent_saga.state.base import StateStore, one
from agent_saga.state.claims import Claim, claim_key, open_saga, raise_epoch
from agent_saga.wal.file import FileWAL

_GOES_ON = frozenset({SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED})


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
        ConfigurationError: the log is not one in files.
    """
    key = options.saga_id or ""
    if not key.strip() or len(key) > 300:
        raise ConfigurationError("A saga_id is a text of 1 to 300 characters.")
    wal = engine.wal
    if not isinstance(wal, FileWAL):
        raise ConfigurationError(
            f"A saga with an id of its own needs a log in files, not {wal.address}.",
            fix="Give the kit wal='a path'.",
        )
    place = Place(engine, wal, store)
    found = look(wal.path, identity.saga_id_of(key))
    if found is None:
        return _begun(place, key, options)
    if not options.resume:
        raise _duplicate(key, found.view.state.value)
    return _resumed(place, found, key)


def _begun(place: Place, key: str, options: BoundaryOptions) -> Saga:
    saga = Saga(place.engine, options.name, options.labels, is_async=False)
    saga.id, saga.key = identity.saga_id_of(key), key
    document = claim_key(saga.id)
    owner = place.wal.begin()
    claim = place.store.transact(
        [document], one(document, lambda doc: open_saga(doc, owner=owner)), durable=True
    )
    if not claim.granted:
        claim = _after_a_false_start(place, document, owner, claim, resume=options.resume)
    if not claim.granted:
        raise _duplicate(key, "being begun by another process")
    saga.epoch = claim.epoch
    return saga


def _after_a_false_start(
    place: Place, document: str, owner: str, held: Claim, *, resume: bool
) -> Claim:
    """The id was granted before and the log has nothing of it; raise the epoch if allowed."""
    if not resume or held.owner == owner:
        return held
    return place.store.transact(
        [document],
        one(document, lambda doc: raise_epoch(doc, owner=owner, seen=held.epoch)),
        durable=True,
    )


def _resumed(place: Place, found: Found, key: str) -> Saga:
    state = found.view.state
    if state is SagaState.UNWINDING:
        raise SagaUnwinding(
            f"The saga {key!r} is being undone; it cannot be resumed.",
            rule="unwinding",
            reason="its boundary failed, or somebody undoes it",
            fix="Wait for recovery (agent-saga recover), then begin one under another id.",
        )
    if state not in _GOES_ON:
        saga = _replaying(place, found, found.effective.epoch, key)
        saga.root.shut()
        saga.read_only = True
        return saga
    with claimed(place, found.id, reason="resume", by="resume") as claim:
        saga = _replaying(place, claim.found, claim.epoch, key)
        journal.saga_event(saga, Ev.SAGA_RESUMED)
    return saga


def _replaying(place: Place, found: Found, epoch: int, key: str) -> Saga:
    now = place.engine.clock.monotonic()
    saga = rebuilt(place.engine, found, epoch, dead_since=now)
    saga.key = key
    scopes = {scope.path: scope for scope in saga.root.subtree() if scope.path}
    saga.replay = Replay(list(saga.steps.values()), scopes)
    for step in saga.steps.values():
        if step.keyed:
            saga.keyed[step.key] = step
    _skip_ordinals(saga)
    return saga


def _skip_ordinals(saga: Saga) -> None:
    """Let new steps be counted after the recorded ones."""
    for step in saga.steps.values():
        scope: Scope = step.scope
        if step.keyed or not step.key:
            continue
        ordinals = scope.calls.get(step.tool.name)
        if ordinals is None:
            ordinals = identity.Ordinals(saga.id, scope.path, step.tool.name)
            scope.calls[step.tool.name] = ordinals
        ordinals.go_on_after(int(step.key[-1]))


def _duplicate(key: str, state: str) -> DuplicateSaga:
    return DuplicateSaga(
        f"A saga with the id {key!r} exists already ({state}).",
        fix="Use another saga_id, or resume=True to go on with it.",
    )

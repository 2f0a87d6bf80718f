"""A saga with an id of the user's own: begun once, and gone on with by any process.

Rules of this part:

- The store grants an id once, atomically, before the log says anything; so of two processes that
  begin the same id, one is refused.
- How one that is in the log is gone on with: see `resuming`.
- If the id was granted and the log has nothing of it, its first owner died, or ended its boundary,
  before its first step: the saga begins under a new epoch. If that owner's log is gone or damaged,
  nobody knows, and the id is refused.
"""

from __future__ import annotations

import re
import threading

from agent_saga.domain import identity
from agent_saga.engine import active
from agent_saga.engine.options import BoundaryOptions
from agent_saga.engine.ports import Engine
from agent_saga.engine.saga import Saga
from agent_saga.errors import (
    ClaimRefused,
    ConfigurationError,
    DuplicateSaga,
    ForkRefused,
    RecoveryError,
    SagaClosed,
)
from agent_saga.recovery.claim import Place
from agent_saga.recovery.proofs import Proofs
from agent_saga.recovery.survey import Found, look
from agent_saga.recovery.vanished import KnownSagas
from agent_saga.runtime.resuming import resumed
from agent_saga.state.base import StateStore
from agent_saga.state.claims import Claim, claim_key, keys_of, open_saga, over, raise_epoch
from agent_saga.state.document import Doc
from agent_saga.wal.damage import Damage
from agent_saga.wal.departed import has_departed
from agent_saga.wal.file import FileWAL
from agent_saga.wal.reader import scan_writer
from agent_saga.wal.takeover import dead_owner, has_left, opening_of

_OPAQUE = re.compile(r"\A[A-Za-z0-9_-]{16}\Z")

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
    return resumed(place, found, key, options)


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
    return resumed(place, found, key, options)


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

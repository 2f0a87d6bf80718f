"""Taking a saga over: the right to it, a new epoch, the fence, the whole log, and only then acting.

Rules of this part (R3, *Takeover*):

1. The right to claim: the saga was released or has ended, or its owner's lock was acquired and is
   held.
2. The store raises the epoch atomically: of all who saw one epoch, one gets the next.
3. The fence is written into every writer's lock file that wrote about the saga; then everything
   those writers handed over is synced and read again, to its end.
4. SAGA_CLAIM, durable, names for each writer the last record that was read. Whatever that writer
   adds is stale.

A crash between these leaves a higher epoch in the store and nothing else; the next claimer goes on
from there. A claimer that cannot read, sync or fence does nothing and says so.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import NamedTuple

from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.records import Ev
from agent_saga.engine.ports import Engine
from agent_saga.errors import ClaimRefused, StateError
from agent_saga.recovery.survey import Found, look
from agent_saga.state.base import StateStore, one
from agent_saga.state.claims import Claim, claim_key, clear, raise_epoch, rebuild
from agent_saga.state.document import Doc
from agent_saga.wal.encoding import masked
from agent_saga.wal.file import FileWAL
from agent_saga.wal.takeover import DeadWriter, dead_writer, sync_writer

OWNED = frozenset({SagaState.RUNNING, SagaState.UNWINDING})
"""States in which somebody may be acting on the saga at this moment."""


_lock = threading.Lock()
_claiming: set[str] = set()


class Place(NamedTuple):
    """Where recovery works.

    Attributes:
        engine: runs the inverses; its log is the claimer's own writer in the same directory.
        wal: the same log, as the file log that it is.
        store: holds the epochs.
    """

    engine: Engine
    wal: FileWAL
    store: StateStore


class Claimed(NamedTuple):
    """A saga that this process owns now.

    Attributes:
        found: what its records said when it was claimed.
        epoch: the epoch that was granted.
    """

    found: Found
    epoch: int


@contextlib.contextmanager
def claimed(place: Place, saga: str, *, reason: str, by: str) -> Iterator[Claimed]:
    """Take a saga over for the length of the block; the dead owner's lock is held meanwhile.

    Args:
        place: where recovery works.
        saga: the saga's id.
        reason: "recover", "undo" or "operator", for the record.
        by: who claims it.

    Raises:
        ClaimRefused: its owner lives, or somebody else was faster.
        WALError, StateError: something could not be read, synced, fenced or stored.
    """
    with contextlib.ExitStack() as held:
        held.enter_context(_alone(saga))
        found = _found(place, saga)
        if found.view.state in OWNED:
            held.enter_context(_dead_owner(place, found))
        epoch = _raised(place, found)
        found = _read_to_the_end(place, found, epoch)
        _announce(place, found, epoch, reason, by)
        yield Claimed(found, epoch)


@contextlib.contextmanager
def _alone(saga: str) -> Iterator[None]:
    """Keep the other threads of this process from claiming the same saga."""
    with _lock:
        if saga in _claiming:
            raise ClaimRefused(f"Saga {saga} is being taken over by this process already.")
        _claiming.add(saga)
    try:
        yield
    finally:
        with _lock:
            _claiming.discard(saga)


def give_back(place: Place, claim: Claimed) -> None:
    """Clear the claim of a saga whose terminal record is durable; its epoch is kept."""
    owner = place.wal.writer
    key = claim_key(claim.found.id)
    place.store.transact(
        [key], one(key, lambda doc: clear(doc, owner=owner, epoch=claim.epoch)), durable=False
    )


def _found(place: Place, saga: str) -> Found:
    found = look(place.wal.path, saga)
    if found is None:
        raise ClaimRefused(
            f"The log has no saga {saga!r}.", fix="agent-saga list shows the sagas it has."
        )
    return found


def _dead_owner(place: Place, found: Found) -> DeadWriter:
    owner = found.effective.owner
    if not owner:
        raise ClaimRefused(f"Who owns saga {found.id} cannot be told from its records.")
    dead = dead_writer(place.wal.path, owner, place.wal.port)
    if dead is None:
        raise ClaimRefused(
            f"Saga {found.id} is in the hands of a process that lives (writer {owner}).",
            fix="Wait until it has ended, or stop that process.",
        )
    return dead


def _raised(place: Place, found: Found) -> int:
    key = claim_key(found.id)
    owner = place.wal.begin()
    seen = _seen(place, found, place.store.get(key))

    def granted() -> Claim:
        return place.store.transact(
            [key], one(key, lambda doc: raise_epoch(doc, owner=owner, seen=seen)), durable=True
        )

    try:
        claim = granted()
    except StateError:
        place.store.transact([key], one(key, lambda doc: rebuild(doc, seen=seen)), durable=True)
        claim = granted()
    if not claim.granted:
        raise ClaimRefused(f"Somebody else has just taken over saga {found.id}.")
    return claim.epoch


def _seen(place: Place, found: Found, doc: Doc | None) -> int:
    """Return the epoch that holds now; a claimer may have died before its claim reached the log."""
    if doc is None or doc["epoch"] <= found.effective.epoch:
        return found.effective.epoch
    claimer = doc["owner"]
    if claimer and claimer != place.wal.writer:
        dead = dead_writer(place.wal.path, claimer, place.wal.port)
        if dead is None:
            raise ClaimRefused(f"Saga {found.id} is being taken over by the writer {claimer}.")
        dead.close()
    return int(doc["epoch"])


def _read_to_the_end(place: Place, found: Found, epoch: int) -> Found:
    for writer in found.writers:
        place.wal.fence(found.id, epoch, writer=writer)
    for writer in found.writers:
        if writer != place.wal.writer:
            sync_writer(place.wal.path, writer, place.wal.port)
    place.wal.drain()
    again = _found(place, found.id)
    if again.effective.epoch != found.effective.epoch or set(again.writers) - set(found.writers):
        raise ClaimRefused(f"Saga {found.id} changed hands while it was being claimed.")
    return again


def _announce(place: Place, found: Found, epoch: int, reason: str, by: str) -> None:
    cuts = {
        writer: {"seq": record.seq, "hash": str(record.hash)}
        for writer, record in found.writers.items()
    }
    payload, _ = masked({"reason": reason, "by": by, "cuts": cuts})
    seq = place.wal.append(Ev.SAGA_CLAIM, saga=found.id, epoch=epoch, payload=payload)
    place.wal.wait_durable(seq)
    place.wal.check_fence(found.id, epoch)

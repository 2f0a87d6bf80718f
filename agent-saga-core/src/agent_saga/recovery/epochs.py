"""Who has a saga, as the state store tells it: an epoch is raised, given back, or refused.

Rules of this part:

- The store raises the epoch atomically: of all who saw one epoch, one gets the next.
- If the store knows of a later epoch than the log, whoever raised it may act on it while it lives.
  If that one has acted, and the log does not tell how, the saga is only closed (see `losses`); it
  stays known as ended then, so that nobody undoes it if that is cut short. One of which the log
  tells nothing stays marked instead (see `vanished`).
- Whoever could not go on gives back what it took. What was ended is given back as ended.
"""

from __future__ import annotations

from collections.abc import Callable

from agent_saga.domain.commands import queue_command
from agent_saga.errors import ClaimRefused, RecoveryError, StateError
from agent_saga.observe.logger import logger
from agent_saga.recovery.losses import lost
from agent_saga.recovery.place import Claimed, Place
from agent_saga.recovery.survey import Found, look
from agent_saga.recovery.vanished import is_gone
from agent_saga.state.claims import (
    Claim,
    Last,
    claim_key,
    clear,
    keys_of,
    over,
    raise_epoch,
    rebuild,
    release,
)
from agent_saga.state.document import Doc
from agent_saga.wal.takeover import dead_writer

__all__ = ["cannot_be_taken", "give_back", "let_wait", "raised", "withdraw"]

log = logger("agent_saga.recovery")


def raised(place: Place, found: Found) -> int:
    """Raise the epoch of a saga for this process, and return it.

    Raises:
        ClaimRefused: somebody else was faster, or is taking the saga over.
        RecoveryError: records of it are lost.
        WALError, StateError: something could not be read or stored.
    """
    owner = place.wal.begin()
    # Whoever is found in the store without a beginning may have acted; see `losses`.
    place.wal.barrier_sync()
    seen = _seen(place, found, place.store.get(claim_key(found.id)))
    # One that has vanished stays marked, and is a case until its closing is in the log.
    ended = bool(found.lost) and not found.vanished
    stays = bool(found.lost) or not found.view.clean

    def granted() -> Claim:
        def rule(doc: Doc | None) -> tuple[Doc | None, Claim]:
            return raise_epoch(doc, owner=owner, seen=seen, ended=ended)

        return _stored(place, found.id, rule, records=stays)

    try:
        claim = granted()
    except StateError:
        _stored(place, found.id, lambda doc: rebuild(doc, seen=seen))
        claim = granted()
    if not claim.granted:
        raise ClaimRefused(f"Somebody else has just taken over saga {found.id}.")
    return claim.epoch


def _seen(place: Place, found: Found, doc: Doc | None) -> int:
    """Return the epoch that holds now; a claimer may have died before its claim reached the log."""
    known = found.effective.highest
    if doc is None or doc["epoch"] < known:
        return known
    if doc["epoch"] > known:
        _check_claimer(place, found, doc["owner"])
    path = place.wal.path
    gone = _lost(place, found, doc)
    if gone and not found.lost:
        again = look(path, found.id)
        if again is not None and not _lost(place, again, doc):
            raise ClaimRefused(f"Saga {found.id} has changed hands meanwhile.")
        raise cannot_be_taken(found, gone, path)
    return int(doc["epoch"])


def _lost(place: Place, found: Found, doc: Doc) -> str:
    path, port = place.wal.path, place.wal.port
    return lost(path, found, doc, port, lambda writer: place.proofs.is_whole(path, writer, port))


def cannot_be_taken(found: Found, lost: str, path: str) -> RecoveryError:
    """Return why a saga is not taken over of which records are lost."""
    return RecoveryError(
        f"Saga {found.id} cannot be taken over: {lost}.",
        fix=f"Look at the world before anything is undone: {queue_command(found.id, path)}",
    )


def _check_claimer(place: Place, found: Found, claimer: str | None) -> None:
    """Refuse if whoever raised the epoch may still act on it."""
    path, port = place.wal.path, place.wal.port
    if not claimer or claimer == place.wal.writer or is_gone(path, claimer, port):
        return
    dead = dead_writer(path, claimer, port)
    if dead is None:
        raise ClaimRefused(f"Saga {found.id} is being taken over by the writer {claimer}.")
    dead.close()


def withdraw(place: Place, saga: str, epoch: int) -> None:
    """Give an epoch back that the log says nothing of; the saga is nobody's again."""
    owner = place.wal.writer
    try:
        _stored(place, saga, lambda doc: release(doc, owner=owner, epoch=epoch), durable=False)
    except StateError:
        log.warning("the claim on saga %s could not be withdrawn", saga, exc_info=True)


def give_back(
    place: Place, claim: Claimed, seq: int | None = None, *, settled: bool = True
) -> None:
    """Clear the claim of a saga that has ended; its epoch is kept.

    Args:
        place: where recovery works.
        claim: the claim.
        seq: the record that ended it; it is durable. None if it had ended before.
        settled: nothing is left to do about it.
    """
    owner = place.wal.writer
    last = None if seq is None else Last(owner, seq)

    def rule(doc: Doc | None) -> tuple[Doc | None, Claim]:
        return clear(doc, owner=owner, epoch=claim.epoch, last=last)

    records = None if settled else True
    _stored(place, claim.found.id, rule, durable=False, records=records, settled=settled)


def let_wait(place: Place, claim: Claimed) -> None:
    """Give a suspended saga back of which a part was undone; all of that is durable."""
    owner, saga = place.wal.writer, claim.found.id
    again = look(place.wal.path, saga)
    record = None if again is None else again.writers.get(owner)
    last = None if record is None else Last(owner, record.seq)
    deadline = claim.found.view.deadline

    def rule(doc: Doc | None) -> tuple[Doc | None, Claim]:
        return release(doc, owner=owner, epoch=claim.epoch, deadline=deadline, last=last)

    _stored(place, saga, rule)


def _stored(
    place: Place,
    saga: str,
    rule: Callable[[Doc | None], tuple[Doc | None, Claim]],
    *,
    durable: bool = True,
    records: bool | None = None,
    settled: bool = True,
) -> Claim:
    whole = over(saga, rule, records=records, settled=settled)
    return place.store.transact(keys_of(saga), whole, durable=durable)

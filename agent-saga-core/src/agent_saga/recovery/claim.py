"""Taking a saga over: the right to it, a new epoch, the fence, the whole log, and only then acting.

Rules of this part:

0. Until 4 no compaction is put in place, so that the saga does not leave the log meanwhile.
1. The right to claim: the saga was released or has ended, or its owner's lock was acquired and is
   held.
2. The store raises the epoch atomically: of all who saw one epoch, one gets the next.
3. The fence is written into every writer's lock file that wrote about the saga; then everything
   those writers handed over is synced and read again, to its end and against its chain. A writer
   that was taken for dead and has written since is read like one that lives: a verdict of death may
   be wrong, and whoever comes back must not find its last words overheard.
   If the store knew of a later epoch than the log that was read, somebody else may have acted
   meanwhile: then every writer is read, and a claimer that acted is not overridden.
4. SAGA_CLAIM, durable, names for each writer the last record that was read. Whatever that writer
   adds is stale.

A crash between these leaves a higher epoch in the store and nothing else; the next claimer goes on
from there. A claimer that cannot read, sync or fence does nothing and says so; it gives back what
it took, so that another one may try.

A call that a living process has not ended forbids a claim: its effect may come at any time. A
store that knows of a later owner whose records the log has lost forbids it too, unless the saga is
only to be closed; it stays known as ended then, so that nobody undoes it if that is cut short.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from agent_saga.domain.commands import queue_command, told_command
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.records import Ev
from agent_saga.engine import interrupts
from agent_saga.engine.ports import Engine
from agent_saga.errors import AgentSagaError, ClaimRefused, RecoveryError, StateError
from agent_saga.observe.logger import logger
from agent_saga.recovery.calls import running_calls
from agent_saga.recovery.losses import is_gone, lost
from agent_saga.recovery.proofs import Proofs
from agent_saga.recovery.quarantine import check_not_quarantined
from agent_saga.recovery.survey import Found, look
from agent_saga.state.base import StateStore, one
from agent_saga.state.claims import Claim, claim_key, clear, raise_epoch, rebuild, release
from agent_saga.state.document import Doc
from agent_saga.wal.encoding import masked
from agent_saga.wal.file import FileWAL
from agent_saga.wal.takeover import DeadWriter, dead_owner, dead_writer, dead_writers, sync_writer
from agent_saga.wal.view import View

Check = Callable[[Found], object]

log = logger("agent_saga.recovery")

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
        proofs: what is known of the writers' chains.
    """

    engine: Engine
    wal: FileWAL
    store: StateStore
    proofs: Proofs

    def proved(self, found: Found) -> Found:
        """Return a saga as the chains of its writers tell it."""
        return self.proofs.proved(self.wal.path, found, self.wal.port)


class Claimed(NamedTuple):
    """A saga that this process owns now.

    Attributes:
        found: what its records said when it was claimed.
        epoch: the epoch that was granted.
    """

    found: Found
    epoch: int


@contextlib.contextmanager
def claimed(
    place: Place,
    saga: str,
    *,
    reason: str,
    by: str,
    check: Check | None = None,
    found: Found | None = None,
    despite: bool = False,
) -> Iterator[Claimed]:
    """Take a saga over for the length of the block; the dead owner's lock is held meanwhile.

    If the block raises while the saga is still in this process's hands, it is released. Ctrl-C in
    the main thread is kept until its end (see `engine.interrupts`).

    Args:
        place: where recovery works.
        saga: the saga's id.
        reason: "recover", "resume", "undo" or "operator", for the record.
        by: who claims it.
        check: looks at the saga before anything is taken, and again before the claim is recorded;
            raises to refuse.
        found: the saga as a survey found it; the log is read for it when not given.
        despite: although records of it are lost; nothing of it may be run then.

    Raises:
        RecoveryError: records of it are lost.
        ClaimRefused: its owner lives, a call of it still runs, or somebody else was faster.
        Quarantined: a person has quarantined it.
        WALError, StateError: something could not be read, synced, fenced or stored.
    """
    with contextlib.ExitStack() as held:
        held.enter_context(interrupts.kept())
        held.enter_context(_alone(saga))
        check_not_quarantined(place.store, saga, place.wal.path)
        view = held.enter_context(View(place.wal.port, place.wal.path))
        if found is None:
            found = _found(place, saga)
        if not found.proved:
            found = place.proved(found)
        proved = ""
        if check is not None:
            check(found)
        if found.lost and not despite:
            raise _cannot_be_taken(found, found.lost, place.wal.path)
        if found.view.state in OWNED or _just_claimed(place, found):
            held.enter_context(_dead_owner(place, found))
            proved = found.effective.owner
        _check_calls_ended(place, found, proved)
        epoch = _raised(place, found)
        try:
            found = _read_to_the_end(place, found, epoch)
            if check is not None:
                check(found)
            seq = _announced(place, found, epoch, reason, by)
        except BaseException:
            _withdraw(place, saga, epoch)
            raise
        try:
            place.wal.wait_durable(seq)
            view.close()  # from here on the claim itself keeps the saga from leaving the log
            place.wal.check_fence(found.id, epoch)
            yield Claimed(found, epoch)
            interrupts.raise_kept()
        except BaseException:
            _let_go(place, saga, epoch)
            raise


def check_claimable(place: Place, found: Found, check: Check | None = None) -> None:
    """Refuse what `claimed` would refuse before it takes anything; nothing is taken.

    Args:
        place: where recovery works.
        found: the saga, as surveyed.
        check: as for `claimed`.

    Raises:
        ClaimRefused: its owner lives, or a call of it still runs.
        Quarantined: a person has quarantined it.
        WALError, StateError: something could not be read.
    """
    check_not_quarantined(place.store, found.id, place.wal.path)
    if not found.proved:
        found = place.proved(found)
    proved = ""
    if check is not None:
        check(found)
    if found.view.state in OWNED or _just_claimed(place, found):
        with _dead_owner(place, found):
            proved = found.effective.owner
    _check_calls_ended(place, found, proved)


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


def _just_claimed(place: Place, found: Found) -> bool:
    """Say whether somebody has claimed a saga that waited, and not yet recorded what for.

    One who could not go on has given the claim back in the store.
    """
    if found.view.state not in (SagaState.SUSPENDED, SagaState.RELEASED):
        return False
    last = next(r for r in reversed(found.effective.records) if r.event.startswith("SAGA_"))
    if last.event != Ev.SAGA_CLAIM:
        return False
    doc = place.store.get(claim_key(found.id))
    return doc is None or doc["epoch"] != last.epoch or doc["owner"] == last.writer


def give_back(place: Place, claim: Claimed) -> None:
    """Clear the claim of a saga whose terminal record is durable; its epoch is kept."""
    owner = place.wal.writer
    key = claim_key(claim.found.id)
    place.store.transact(
        [key], one(key, lambda doc: clear(doc, owner=owner, epoch=claim.epoch)), durable=False
    )


def _found(place: Place, saga: str) -> Found:
    path = place.wal.path
    found = look(path, saga, dead=dead_writers(path, place.wal.port))
    if found is None:
        raise ClaimRefused(f"The log has no saga {saga!r}.", fix=told_command("list", path))
    return found


def _withdraw(place: Place, saga: str, epoch: int) -> None:
    """Give an epoch back that the log says nothing of; the saga is nobody's again."""
    key, owner = claim_key(saga), place.wal.writer
    try:
        place.store.transact(
            [key], one(key, lambda doc: release(doc, owner=owner, epoch=epoch)), durable=False
        )
    except StateError:
        log.warning("the claim on saga %s could not be withdrawn", saga, exc_info=True)


def _let_go(place: Place, saga: str, epoch: int) -> None:
    """Release a claimed saga that this process will not act on any more."""
    try:
        place.wal.drain()
        found = look(place.wal.path, saga)
        mine = found is not None and found.effective.owner == place.wal.writer
        if found is None or not mine:
            return
        if found.view.state not in OWNED:
            _withdraw(place, saga, epoch)
            return
        place.wal.check_fence(saga, epoch)
        payload, _ = masked({"cause": "what claimed it could not go on"})
        place.wal.append(Ev.SAGA_RELEASED, saga=saga, epoch=epoch, payload=payload)
        place.wal.drain()
        place.wal.start_sync()
    except (AgentSagaError, OSError):
        log.warning("that saga %s was released could not be recorded", saga, exc_info=True)


def _check_calls_ended(place: Place, found: Found, proved_dead: str) -> None:
    for tool, writer in running_calls(found).values():
        if writer == proved_dead:
            continue
        dead = dead_writer(place.wal.path, writer, place.wal.port)
        if dead is None:
            raise ClaimRefused(
                f"A call of {tool} in saga {found.id} still runs in its process ({writer}).",
                fix="Wait until it has ended, or stop that process.",
            )
        dead.close()


def _dead_owner(place: Place, found: Found) -> DeadWriter:
    owner = found.effective.owner
    if not owner:
        raise ClaimRefused(f"Who owns saga {found.id} cannot be told from its records.")
    dead = dead_owner(place.wal.path, owner, place.wal.port)
    if dead is None:
        raise ClaimRefused(
            f"Saga {found.id} is in the hands of a process that lives (writer {owner}).",
            fix="Wait until it has ended, or stop that process.",
        )
    return dead


def _raised(place: Place, found: Found) -> int:
    key = claim_key(found.id)
    owner = place.wal.begin()
    # Whoever is found in the store without a beginning may have acted; see `losses`.
    place.wal.barrier_sync()
    seen, ended = _seen(place, found, place.store.get(key)), bool(found.lost)

    def raised(doc: Doc | None) -> tuple[Doc | None, Claim]:
        return raise_epoch(doc, owner=owner, seen=seen, ended=ended)

    def granted() -> Claim:
        return place.store.transact([key], one(key, raised), durable=True)

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
    known = found.effective.highest
    if doc is None or doc["epoch"] < known:
        return known
    if doc["epoch"] > known:
        _check_claimer(place, found, doc["owner"])
    path, port = place.wal.path, place.wal.port
    gone = lost(path, found, doc, port, lambda writer: place.proofs.is_whole(path, writer, port))
    if gone and not found.lost:
        again = look(path, found.id)
        if again is not None and again.effective.highest > known:
            raise ClaimRefused(f"Saga {found.id} has changed hands meanwhile.")
        raise _cannot_be_taken(found, gone, path)
    return int(doc["epoch"])


def _cannot_be_taken(found: Found, lost: str, path: str) -> RecoveryError:
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


def _read_to_the_end(place: Place, found: Found, epoch: int) -> Found:
    for writer in found.writers:
        place.wal.fence(found.id, epoch, writer=writer)
    for writer in found.writers:
        if writer != place.wal.writer:
            sync_writer(place.wal.path, writer, place.wal.port)
    place.wal.drain()
    alone = epoch == found.effective.highest + 1
    again = place.proved(found if alone else _found(place, found.id))
    again.lost = found.lost  # the store knows of this claimer now
    if again.effective.epoch != found.effective.epoch or set(again.writers) - set(found.writers):
        raise ClaimRefused(f"Saga {found.id} changed hands while it was being claimed.")
    return again


def _announced(place: Place, found: Found, epoch: int, reason: str, by: str) -> int:
    cuts = {
        writer: {"seq": record.seq, "hash": str(record.hash)}
        for writer, record in found.writers.items()
    }
    payload, _ = masked({"reason": reason, "by": by, "cuts": cuts})
    return place.wal.append(Ev.SAGA_CLAIM, saga=found.id, epoch=epoch, payload=payload)

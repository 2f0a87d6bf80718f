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

from agent_saga.domain.commands import told_command
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.records import Ev
from agent_saga.engine import interrupts
from agent_saga.engine.releasing import hand_back, is_left
from agent_saga.errors import AgentSagaError, ClaimRefused
from agent_saga.observe.logger import logger
from agent_saga.recovery.calls import running_calls
from agent_saga.recovery.epochs import cannot_be_taken, give_back, let_wait, raised, withdraw
from agent_saga.recovery.place import Claimed, Place
from agent_saga.recovery.quarantine import check_not_quarantined
from agent_saga.recovery.survey import Found, look
from agent_saga.state.claims import claim_key
from agent_saga.wal.encoding import masked
from agent_saga.wal.takeover import DeadWriter, dead_owner, dead_writer, dead_writers, sync_writer
from agent_saga.wal.view import View

__all__ = [
    "OWNED",
    "Check",
    "Claimed",
    "Place",
    "check_claimable",
    "claimed",
    "gave_up",
    "give_back",
    "let_wait",
]

Check = Callable[[Found], object]

log = logger("agent_saga.recovery")

OWNED = frozenset({SagaState.RUNNING, SagaState.UNWINDING})
"""States in which somebody may be acting on the saga at this moment."""


_lock = threading.Lock()
_claiming: set[str] = set()


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
        check = _nothing if check is None else check
        found = _proved(place, _found(place, saga) if found is None else found)
        check(found)
        if found.lost and not despite:
            raise cannot_be_taken(found, found.lost, place.wal.path)
        _keep_others_out(place, found, held)
        epoch = raised(place, found)
        try:
            found = _read_to_the_end(place, found, epoch)
            check(found)
            seq = _announced(place, found, epoch, reason, by)
        except BaseException:
            withdraw(place, saga, epoch)
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
    found = _proved(place, found)
    if check is not None:
        check(found)
    with contextlib.ExitStack() as held:
        _keep_others_out(place, found, held)


def _nothing(found: Found) -> None:
    """Check nothing."""


def _proved(place: Place, found: Found) -> Found:
    return found if found.proved else place.proved(found)


def _keep_others_out(place: Place, found: Found, held: contextlib.ExitStack) -> None:
    """Hold the lock of a saga's dead owner, and refuse while a call of the saga may still run."""
    proved = ""
    if found.view.state in OWNED or _just_claimed(place, found):
        held.enter_context(_dead_owner(place, found))
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


def _found(place: Place, saga: str) -> Found:
    path = place.wal.path
    found = look(path, saga, dead=dead_writers(path, place.wal.port))
    if found is None:
        found = place.proofs.vanished_one(path, saga)
    if found is None:
        raise ClaimRefused(f"The log has no saga {saga!r}.", fix=told_command("list", path))
    return found


def gave_up(place: Place, found: Found) -> bool:
    """Release a saga that this process owns and that nothing in it acts on; False if there is none.

    So it is when it could not be finished, and that it was released could not be recorded.

    Args:
        place: where recovery works.
        found: the saga, as surveyed; it is looked at afresh before anything is done.

    Raises:
        WALError: it could not be looked at.
    """
    if not _is_left_behind(place, found):
        return False
    try:
        with _alone(found.id):
            place.wal.drain()
            now = look(place.wal.path, found.id)
            if now is None or not _is_left_behind(place, now):
                return False
            hand_back(place.wal, now.id, now.effective.epoch, "what claimed it could not go on")
            return True
    except ClaimRefused:  # a thread of this process acts on it
        return False


def _is_left_behind(place: Place, found: Found) -> bool:
    if found.effective.owner != place.wal.writer or found.view.state not in OWNED:
        return False
    if is_left(place.wal, found.id, found.effective.epoch):
        return True
    taken = None
    for record in found.effective.records:
        if record.event in (Ev.SAGA_CLAIM, Ev.SAGA_RESUMED):
            taken = record.event
    return taken == Ev.SAGA_CLAIM


def _let_go(place: Place, saga: str, epoch: int) -> None:
    """Release a claimed saga that this process will not act on any more."""
    try:
        place.wal.drain()
        found = look(place.wal.path, saga)
        mine = found is not None and found.effective.owner == place.wal.writer
        if found is None or not mine:
            return
        if found.view.state not in OWNED:
            withdraw(place, saga, epoch)
            return
    except (AgentSagaError, OSError):
        log.warning("whether saga %s is still in hand could not be read", saga, exc_info=True)
        return
    hand_back(place.wal, saga, epoch, "what claimed it could not go on")


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


def _read_to_the_end(place: Place, found: Found, epoch: int) -> Found:
    for writer in found.writers:
        place.wal.fence(found.id, epoch, writer=writer)
    for writer in found.writers:
        if writer != place.wal.writer:
            sync_writer(place.wal.path, writer, place.wal.port)
    place.wal.drain()
    if found.vanished:
        if look(place.wal.path, found.id) is not None:
            raise ClaimRefused(f"Saga {found.id} changed hands while it was being claimed.")
        return found
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

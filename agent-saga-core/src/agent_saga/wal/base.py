"""The write-ahead log above its backends: buffer, chain, watermark, batching, waiting.

Rules of this part:

- `append` encodes and buffers. Whoever needs the record outside drains the buffer, under one lock; a
  drain stamps once and writes at a fixed place, so that repeating an interrupted one is harmless.
- One private thread syncs: at once when idle; while a sync is in flight the next batch gathers. No
  fixed window, no task per step, at most one hop between threads per barrier.
- Only intents are refused for lack of room or speed, before their effect. The records that tell how
  something ended are refused only by a log that is poisoned for good.
- A backend gives `_open`, `_write`, `_sync`, `_close`; an error that leaves `_write` or `_sync`
  poisons the log for good, and every waiter fails with the cause.
- A forked child starts a new writer with an empty buffer at its first record.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from agent_saga.domain.records import INTENTS, OBSERVATIONS, Ev
from agent_saga.errors import SagaFenced, SagaForked, WALBackpressure, WALError, WALPoisoned
from agent_saga.wal.buffer import Batch, Buffer, Durable, own_entry
from agent_saga.wal.encoding import EMPTY, Fragment, masked
from agent_saga.wal.worker import Worker
from agent_saga.wal.format import Chain, Entry, Record, first_hash, size_of
from agent_saga.wal.lock import EVERY_EPOCH, WHOLE_WRITER
from agent_saga.wal.os_port import restart_after_fork
from agent_saga.wal.waiters import (
    Future,
    Waiters,
    failed_future,
    poisoned,
    release,
    settle,
    stalled,
)

__all__ = ["BackpressurePolicy", "BaseWAL", "Batch", "Capabilities", "Counters", "Durable"]

_log = logging.getLogger("agent_saga.wal")
_REFUSABLE: Final = INTENTS | OBSERVATIONS
_open_logs: weakref.WeakSet[BaseWAL] = weakref.WeakSet()


class Capabilities(NamedTuple):
    """What a backend can do.

    `durability` is "disk", "cache" (a drive's volatile cache may hold it), "memory" or "sink".
    """

    durability: str
    survives_kill: bool
    multi_process: bool
    multi_host: bool
    compaction: bool


class BackpressurePolicy(Enum):
    """What happens to an intent when the log is not keeping up; it is never dropped and then run.

    RAISE refuses it; BLOCK makes its thread wait, bounded, and then refuses it; DROP_SILENT refuses
    it and drops observations without a word.
    """

    RAISE = "raise"
    BLOCK = "block"
    DROP_SILENT = "drop_silent"


class Counters:
    """What the log did since it was opened."""

    __slots__ = ("bytes", "dropped", "records", "syncs", "writes")

    def __init__(self) -> None:
        self.writes = self.syncs = self.bytes = self.records = self.dropped = 0


class BaseWAL(ABC):
    """A write-ahead log; a backend says where its lines go.

    Args:
        policy: what happens to intents when the log is not keeping up.
        stall_after: seconds after which a wait for the disk fails with `WALStalled`.
        max_unsynced: bytes that may wait for the disk before intents are refused.
        mark_after: seconds of quiet after a sync before its watermark is written.
    """

    address: str = ""
    capabilities: Capabilities
    syncs_inline = False
    writer: str = ""

    def __init__(
        self,
        *,
        policy: BackpressurePolicy = BackpressurePolicy.RAISE,
        stall_after: float = 30.0,
        max_unsynced: int = 32 * 1024 * 1024,
        mark_after: float = 0.05,
    ) -> None:
        self.policy = policy
        self.stall_after = stall_after
        self.max_unsynced = max_unsynced
        self.mark_after = mark_after
        self._observers: list[Callable[[list[Durable]], object]] = []
        self._forked = False
        self._reset()
        restart_after_fork(self)

    def _reset(self) -> None:
        """Begin as if nothing had been written: at the start, and in a forked child."""
        self.counters = Counters()
        self.synced = 0
        self.written = 0
        self._live = False
        self._closed = False
        self._cause: BaseException | None = None
        self._lock = threading.Lock()
        self._io = threading.Lock()
        self._opening = threading.Lock()
        self._buffer = Buffer()
        self._waiters = Waiters(self._lock, self.stall_after)
        self._turns: dict[asyncio.AbstractEventLoop, Future] = {}
        self._flusher = Worker("agent-saga-wal-flusher", self._work, self._mark)
        self._syncing = False
        self._target = 0
        self._fences: dict[str, int] = {}

    # --- what a backend gives ---------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> Mapping[str, object]:
        """Make the writer, set `self.writer`, and return what WRITER_OPEN tells about it."""

    @abstractmethod
    def _write(self, batch: Batch) -> None:
        """Hand a batch to the operating system; may be called again with the same batch."""

    @abstractmethod
    def _sync(self, target: int) -> None:
        """Make everything up to `target` durable; on the flusher's thread."""

    @abstractmethod
    def _close(self) -> None:
        """Give back what `_open` took."""

    @abstractmethod
    def read_all(self) -> Iterator[Record]:
        """Every record of every writer: per writer in sequence, writers by id.

        Raises:
            WALCorrupt: after the last record, when some of the log was damaged.
        """

    def _must_seal(self, size: int) -> bool:
        """Whether the segment must be sealed before a record of `size` bytes; lock held."""
        del size
        return False

    def _room_for_intent(self) -> None:
        """Raise `WALFull` when an intent could take the room of endings."""

    # --- append -----------------------------------------------------------------------------------

    def append(
        self,
        event: str,
        *,
        saga: str = "",
        epoch: int = 0,
        step: str = "",
        generation: int = 0,
        payload: Fragment | Mapping[str, object] = EMPTY,
    ) -> int:
        """Buffer a record and return its sequence.

        Args:
            event: the record's name.
            saga: the saga's id; `epoch`, `step` and `generation` belong to it.
            payload: encoded by `wal.encoding`; a mapping is encoded and masked here.

        Raises:
            WALBackpressure: an intent, and the disk is not keeping up.
            WALFull: an intent, and there is no room for it and its endings.
            WALPoisoned: the log could not write, or was closed.

        A crash right after it loses the record: `drain` hands it out, a barrier makes it durable.
        """
        if type(payload) is not Fragment:
            payload = _encoded(payload)
        if not self._live:
            self._begin()
        if event in _REFUSABLE and not self._admit(event):
            return self.seq
        entry = (_now(), event, saga, epoch, step, generation, payload)
        with self._lock:
            return self._enqueue(entry)

    def append_out(
        self,
        event: str,
        *,
        saga: str = "",
        epoch: int = 0,
        step: str = "",
        generation: int = 0,
        payload: Fragment | Mapping[str, object] = EMPTY,
        sync: bool = False,
    ) -> tuple[int, bool]:
        """Append, and write at once unless a sync is in flight.

        Args:
            sync: start a sync at once, without waiting for it.

        Returns:
            The record's sequence, and whether it is with the operating system already; if not,
            `out_future` waits for this loop turn's batch and `drain` writes now.
        """
        seq = self.append(
            event, saga=saga, epoch=epoch, step=step, generation=generation, payload=payload
        )
        return seq, self.hand_over(sync=sync)

    def hand_over(self, *, sync: bool) -> bool:
        """Write what was appended, unless a sync is in flight and a batch gathers anyway.

        Args:
            sync: start a sync at once, without waiting for it.

        Returns:
            Whether everything is with the operating system now; if not, see `out_future`.
        """
        alone = not self._flusher.kicked and not self._syncing
        if alone:
            self.drain()
        if sync:
            self.start_sync()
        return alone

    @property
    def seq(self) -> int:
        """The sequence of the last record that was appended."""
        return self._buffer.seq

    def _begin(self) -> None:
        """Open the writer at its first record."""
        with self._opening:
            if self._live:
                return
            if self._cause is not None or self._closed:
                raise self._refusal()
            facts = self._open()
            self._buffer = Buffer(Chain(0, first_hash(self.writer)))
            self._buffer.observing = bool(self._observers)
            opening = own_entry(_now(), Ev.WRITER_OPEN, facts)
            self._buffer.put(opening, size_of(opening))
            self._live = True
            _open_logs.add(self)

    def _enqueue(self, entry: Entry) -> int:
        """Put an entry into the buffer; lock held."""
        if self._cause is not None or self._closed:
            raise self._refusal()
        size = size_of(entry)
        if self._must_seal(size):
            self._buffer.put_seal(entry[0])
        return self._buffer.put(entry, size)

    def _refusal(self) -> WALPoisoned:
        if self._cause is not None:
            return poisoned(self._cause)
        return WALPoisoned("The log was closed.", fix="Make a new one; a closed log stays closed.")

    def _admit(self, event: str) -> bool:
        """Whether an intent or observation may go in; False when it is dropped."""
        if self._buffer.backlog > self.max_unsynced:
            if event not in INTENTS:
                dropped = self.policy is BackpressurePolicy.DROP_SILENT
                self.counters.dropped += dropped
                return not dropped
            self._hold_back()
        if event in INTENTS:
            self._room_for_intent()
        return True

    def _hold_back(self) -> None:
        """Refuse an intent, or block its thread until the disk has caught up."""
        if self.policy is BackpressurePolicy.BLOCK:
            deadline = time.monotonic() + self.stall_after
            while self._buffer.backlog > self.max_unsynced:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self.wait_durable(self.seq, left)
            else:
                return
        raise WALBackpressure(
            f"{self._buffer.backlog} bytes wait for the disk; the call was refused.",
            fix="Try again later, run fewer sagas at once, or use a faster disk.",
        )

    # --- out of the process -----------------------------------------------------------------------

    def drain(self) -> None:
        """Hand everything that was appended to the operating system, on this thread.

        Raises:
            WALPoisoned: the log cannot write any more.
            WALStalled: another thread has been inside a write for longer than `stall_after`.

        Repeating an interrupted drain writes the same bytes to the same place.
        """
        if not self._io.acquire(timeout=self.stall_after):
            raise stalled(self.stall_after)
        try:
            self._drain()
        finally:
            self._io.release()
        if self.syncs_inline:
            self._settle(self.written)

    def _drain(self) -> None:
        """Write batch by batch; io lock held."""
        batch = self._stamp()
        while batch is not None:
            try:
                self._write(batch)
            except WALError:
                raise
            except Exception as error:
                self._poison(error)
                raise poisoned(error) from error
            batch = self._written(batch)

    def _stamp(self) -> Batch | None:
        with self._lock:
            if self._cause is not None:
                raise poisoned(self._cause)
            return self._buffer.stamp(self.synced)

    def _written(self, batch: Batch) -> Batch | None:
        """Note a written batch and return the next one."""
        with self._lock:
            self.written = batch.last
            counters = self.counters
            counters.writes += 1
            counters.records += batch.count
            counters.bytes += len(batch.data)
            return self._buffer.stamp(self.synced) if self._buffer.written() else None

    def out_future(self, seq: int, loop: asyncio.AbstractEventLoop) -> Future | None:
        """Wait until a record is with the operating system; one write per loop turn serves all.

        Args:
            seq: the record's sequence.
            loop: the running loop of this thread.

        Returns:
            None when it is there already; else a future that may fail with `WALPoisoned`.
        """
        if self.written >= seq:
            return None
        future = self._turns.get(loop)
        if future is None:
            future = self._turns[loop] = loop.create_future()
            loop.call_soon(self._end_turn, loop)
        return future

    def _end_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        future = self._turns.pop(loop)
        try:
            self.drain()
        except WALError as error:
            settle((future,), error)
        else:
            settle((future,), None)

    # --- durable ----------------------------------------------------------------------------------

    def start_sync(self) -> None:
        """Start a sync of everything appended, without waiting for it."""
        if self.syncs_inline:
            return self.drain()
        with self._lock:
            self._want(self.seq)

    def _want(self, seq: int) -> None:
        """Have a sync cover `seq`: the one in flight if it does, else another; lock held."""
        covered = self.synced >= seq or (self._syncing and self._target >= seq)
        if self._cause is None and not covered:
            self._flusher.kick()

    def durable_future(self, seq: int, loop: asyncio.AbstractEventLoop) -> Future | None:
        """Wait until a record is durable.

        Args:
            seq: the record's sequence.
            loop: the running loop of this thread.

        Returns:
            None when it is durable already; else a future that may fail with `WALPoisoned` or,
            after `stall_after`, with `WALStalled`.
        """
        if self.syncs_inline:
            self._drain_quietly()
        with self._lock:
            if self.synced >= seq:
                return None
            if self._cause is not None:
                return failed_future(loop, poisoned(self._cause))
            future = self._waiters.add_future(seq, loop)
            self._want(seq)
            return future

    def wait_durable(self, seq: int, timeout: float | None = None) -> None:
        """Block this thread until a record is durable.

        Args:
            seq: the record's sequence.
            timeout: seconds to wait at most (`stall_after` when None).

        Raises:
            WALPoisoned: the log cannot write any more.
            WALStalled: the time has passed.
        """
        if self.syncs_inline:
            self.drain()
        with self._lock:
            if self.synced >= seq:
                return
            if self._cause is not None:
                raise poisoned(self._cause)
            waiter = self._waiters.add_thread(seq)
            self._want(seq)
        bound = self.stall_after if timeout is None else timeout
        if not waiter.lock.acquire(timeout=bound):
            raise stalled(bound)
        if waiter.error is not None:
            raise waiter.error

    async def barrier(self, seq: int | None = None) -> None:
        """Wait until a record (the last one, when None) is durable.

        Raises:
            WALPoisoned: the log cannot write any more.
            WALStalled: the disk did not answer within `stall_after`.
        """
        future = self.durable_future(
            self.seq if seq is None else seq, asyncio.get_running_loop()
        )
        if future is not None:
            await future

    def barrier_sync(self, seq: int | None = None) -> None:
        """Block this thread until a record (the last one, when None) is durable.

        Raises:
            WALPoisoned: the log cannot write any more.
            WALStalled: the disk did not answer within `stall_after`.
        """
        self.wait_durable(self.seq if seq is None else seq)

    def on_durable(self, callback: Callable[[list[Durable]], object]) -> None:
        """Call back with the records that a sync made durable, on the flusher's thread.

        An exception of the callback is logged and changes nothing.
        """
        with self._lock:
            self._observers.append(callback)
            self._buffer.observing = True

    # --- the flusher's thread ---------------------------------------------------------------------

    def _work(self) -> float | None:
        """One sync: write what waits, make it durable, let its waiters go on."""
        try:
            with self._io:
                self._drain()
            with self._lock:
                self._target = self.written
                self._syncing = True
            self._sync(self._target)
        except WALError:
            return None
        except BaseException as error:
            self._poison(error)
            return None
        finally:
            self._syncing = False
        self.counters.syncs += 1
        self._settle(self._target)
        return self.mark_after if self.synced > self._buffer.carried else None

    def _settle(self, seq: int) -> None:
        """Everything up to `seq` is durable: tell whoever waits, then the observers."""
        with self._lock:
            self.synced = max(self.synced, seq)
            ready = self._waiters.take(self.synced)
            told = self._buffer.durable(self.synced)
        release(ready, None)
        if told:
            self._tell(told)

    def _tell(self, told: list[Durable]) -> None:
        for observer in self._observers:
            try:
                observer(told)
            except Exception:
                _log.exception("An observer of the log failed; the log goes on.")

    def _mark(self) -> None:
        """Write the watermark that no later record has carried."""
        try:
            with self._lock:
                if self.synced <= self._buffer.carried or self.seq > self.written:
                    return
                self._enqueue(own_entry(_now(), Ev.MARK, {}))
            self.drain()
        except WALError:
            _log.debug("The watermark could not be written.", exc_info=True)

    def _poison(self, error: BaseException) -> None:
        """Nothing is promised any more: every waiter fails with the cause."""
        with self._lock:
            if self._cause is None:
                self._cause = error
            waiting = self._waiters.take(EVERY_EPOCH)
        _log.error("The log %s cannot write any more: %r", self.address, error)
        release(waiting, error)

    def _drain_quietly(self) -> None:
        try:
            self.drain()
        except WALError:
            _log.debug("The log could not be drained.", exc_info=True)

    # --- fence and fork ---------------------------------------------------------------------------

    def fence(self, saga: str, epoch: int = EVERY_EPOCH) -> None:
        """Fence a saga: from now on `check_fence` refuses its epochs below `epoch`.

        Args:
            saga: the saga's id, or "*" for everything that this writer does.
            epoch: the claimer's epoch.
        """
        with self._lock:
            self._fences[saga] = max(epoch, self._fences.get(saga, 0))

    def check_fence(self, saga: str, epoch: int) -> None:
        """Check, after an announcement and before its effect, that nobody took the saga over.

        Raises:
            SagaFenced: a later owner has claimed it; the effect must not start.
            SagaForked: this is a forked child, and the saga is its parent's.

        Fails closed: a fence that cannot be read refuses.
        """
        if self._forked and not self._live:
            raise SagaForked(
                "The saga belongs to the parent process.",
                fix="Open a boundary of its own in the child.",
            )
        self._refresh_fences()
        fences = self._fences
        if fences and epoch < max(fences.get(saga, 0), fences.get(WHOLE_WRITER, 0)):
            raise SagaFenced(
                f"Another process has taken over saga {saga!r} from epoch {epoch}.",
                rule="fence",
                reason="It undoes or resumes the saga; this process may not act on it any more.",
            )

    def _refresh_fences(self) -> None:
        """Bring `self._fences` up to date; cheap when nothing changed."""

    def restart_in_child(self) -> None:
        """In a forked child: keep nothing of the parent's, and begin anew at the first record."""
        self._forget()
        self._forked = True
        self._reset()

    def _forget(self) -> None:
        """Let go, in a forked child, of what only the parent may hold."""

    # --- the end ----------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the log was closed; it takes no more records."""
        return self._closed

    def probe(self) -> None:
        """Raise if the log could not take a record now; creates nothing.

        Raises:
            WALError: it is closed or poisoned, or its place cannot be used.
        """
        with self._lock:
            if self._cause is not None or self._closed:
                raise self._refusal()

    def close(self, timeout: float | None = None) -> None:
        """Write the last record, make everything durable and give the writer back.

        Args:
            timeout: seconds to wait at most (`stall_after` when None).

        Raises:
            WALStalled: the disk did not answer in time; the writer's lock is kept until the end of
                the process, so that nobody takes its sagas for abandoned while it may still write.

        Does nothing when the log was never written to, or is closed already.
        """
        deadline = time.monotonic() + (self.stall_after if timeout is None else timeout)
        with self._opening:
            if self._closed or not self._live:
                self._closed = True
                return
            last = self._announce_close()
        try:
            if self._cause is None:
                self.drain()
                self.wait_durable(last, max(0.0, deadline - time.monotonic()))
        except WALPoisoned:
            _log.warning("The log %s was closed without its last records.", self.address)
        finally:
            _open_logs.discard(self)
            if self._flusher.stop(max(0.1, deadline - time.monotonic())):
                self._close()

    def _announce_close(self) -> int:
        with self._lock:
            if self._cause is None:
                self._enqueue(own_entry(_now(), Ev.WRITER_CLOSE, {"last": self.seq}))
            self._closed = True
            self._live = False
            return self.seq

    async def aclose(self, timeout: float | None = None) -> None:
        """Close without blocking the event loop; see `close`."""
        await asyncio.to_thread(self.close, timeout)


def _now() -> int:
    return time.time_ns() // 1000


def _encoded(payload: Mapping[str, object]) -> Fragment:
    if not isinstance(payload, Mapping):
        raise TypeError(
            f"A payload is a Fragment or a mapping, not {type(payload).__name__}: bytes that were "
            "not made by agent_saga.wal.encoding may hold a secret."
        )
    return masked(dict(payload))[0]


def _close_open_logs() -> None:
    for log in list(_open_logs):
        try:
            log.close(5.0)
        except WALError:
            _log.warning("The log %s could not be closed at exit.", log.address)


atexit.register(_close_open_logs)

"""The first half of a log: records go into a buffer, and from there to the operating system.

Rules of this part:

- `append` encodes and buffers. Whoever needs the record outside drains the buffer, under one
  lock; a drain stamps once and writes at a fixed place, so that repeating an interrupted one is
  harmless.
- While a sync is in flight the records of one loop turn are written together; else at once.
- Only intents are refused for lack of room or speed, before their effect. The records that tell
  how something ended are refused only by a log that is poisoned for good, or closed.
- Two locks: `_lock` guards what is in memory and is held for moments; `_io` keeps writes in
  order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from agent_saga.domain.records import INTENTS, OBSERVATIONS, Ev
from agent_saga.errors import WALBackpressure, WALError, WALPoisoned
from agent_saga.wal.buffer import Batch, Buffer, own_entry
from agent_saga.wal.contract import BackpressurePolicy, Capabilities, Counters
from agent_saga.wal.encoding import EMPTY, Fragment, masked
from agent_saga.wal.format import Entry, first_hash, size_of
from agent_saga.wal.waiters import Future, poisoned, settle, stalled
from agent_saga.wal.worker import Worker

__all__ = ["AppendingLog", "now_us"]

_REFUSABLE: Final = INTENTS | OBSERVATIONS


class AppendingLog(ABC):
    """Buffer, chain and batches; `BaseWAL` adds what makes them durable."""

    address: str = ""
    capabilities: Capabilities
    syncs_inline = False
    """Whether what is written is durable at once, with nothing to wait for."""

    policy: BackpressurePolicy
    stall_after: float
    max_unsynced: int

    def _reset(self) -> None:
        """Begin as if nothing had been written: at the start, and in a forked child."""
        self.writer = ""
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
        self._turns: dict[asyncio.AbstractEventLoop, list[Future]] = {}
        self._flusher = Worker("agent-saga-wal-flusher", self._work, self._mark)
        self._syncing = False

    # --- what a backend gives ---------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> Mapping[str, object]:
        """Make the writer, set `self.writer`, and return what WRITER_OPEN tells about it."""

    @abstractmethod
    def _write(self, batch: Batch) -> None:
        """Hand a batch to the operating system; may be called again with the same batch."""

    def _must_seal(self, size: int) -> bool:
        """Whether the segment must be sealed before a record of about `size` bytes; lock held."""
        del size
        return False

    def _room_for_intent(self) -> None:
        """Raise `WALFull` when an intent could take the room of endings."""
        return

    # --- what the other half gives ----------------------------------------------------------------

    @abstractmethod
    def start_sync(self) -> None:
        """Start a sync of everything appended, without waiting for it."""

    @abstractmethod
    def wait_durable(self, seq: int, timeout: float | None = None) -> None:
        """Block this thread until a record is durable."""

    @abstractmethod
    def _work(self) -> float | None:
        """One sync, on the flusher's thread."""

    @abstractmethod
    def _mark(self) -> None:
        """What the flusher does after a moment of quiet."""

    @abstractmethod
    def _after_write(self) -> None:
        """Note that much was written that is not yet durable; lock held."""

    @abstractmethod
    def _after_drain(self) -> None:
        """Note that a drain has ended well, where what is written is durable; no lock held."""

    @abstractmethod
    def _poison(self, error: BaseException) -> None:
        """Nothing is promised any more: every waiter fails with the cause."""

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
            epoch: the saga's epoch, from 0.
            step: the step's id.
            generation: the step's generation, from 0.
            payload: encoded by `wal.encoding`; a mapping is encoded and masked here.

        Raises:
            WALBackpressure: an intent, and the disk is not keeping up.
            WALFull: an intent, and there is no room for it and its endings.
            WALPoisoned: the log could not write, or was closed.
            TypeError: the payload is bytes that were not encoded by `wal.encoding`.

        A crash right after it loses the record: `drain` hands it out, a barrier makes it durable.
        """
        fragment = payload if type(payload) is Fragment else _encoded(payload)
        if not self._live:
            self._begin()
        if event in _REFUSABLE and not self._admit(event):
            return self.seq
        entry = (time.time_ns() // 1000, event, saga, epoch, step, generation, fragment)
        size = size_of(entry)
        with self._lock:
            if self._cause is not None or self._closed:
                raise self._refusal()
            if self._must_seal(size):
                self._buffer.put_seal(entry[0])
            return self._buffer.put(entry, size)

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
            event: the record's name; this and the ids are those of `append`.
            saga: the saga's id.
            epoch: the saga's epoch.
            step: the step's id.
            generation: the step's generation.
            payload: the encoded payload, or a mapping.
            sync: start a sync at once, without waiting for it.

        Returns:
            The record's sequence, and whether it is with the operating system already; if not,
            `out_future` waits for this loop turn's batch and `drain` writes now.

        Raises:
            WALError: as `append` and `drain` do.
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

        Raises:
            WALError: as `drain` does.
        """
        alone = not (self._flusher.kicked or self._syncing)
        if alone:
            self.drain()
        if sync:
            self.start_sync()
        return alone

    @property
    def closed(self) -> bool:
        """Whether the log was closed; it takes no more records."""
        return self._closed

    def probe(self) -> None:
        """Raise if the log could not take a record now; creates nothing.

        Raises:
            WALPoisoned: it is poisoned or closed.
        """
        with self._lock:
            if self._cause is not None or self._closed:
                raise self._refusal()

    @property
    def seq(self) -> int:
        """The sequence of the last record that was appended."""
        return self._buffer.seq

    def begin(self) -> str:
        """Open the writer now, before its first record, and return its id.

        Raises:
            WALError: it cannot be opened.
        """
        if not self._live:
            self._begin()
        self.drain()
        return self.writer

    def _begin(self) -> None:
        """Open the writer at its first record."""
        with self._held(self._opening):
            if self._live:
                return
            if self._cause is not None or self._closed:
                raise self._refusal()
            if not self.syncs_inline:
                self._flusher.start()
            facts = self._open()
            buffer = Buffer((0, first_hash(self.writer)))
            buffer.observing = self._buffer.observing
            opening = own_entry(now_us(), Ev.WRITER_OPEN, facts)
            buffer.put(opening, size_of(opening))
            self._buffer = buffer
            self._live = True

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
        deadline = time.monotonic() + self.stall_after
        if self.policy is BackpressurePolicy.BLOCK:
            while self._buffer.backlog > self.max_unsynced and time.monotonic() < deadline:
                self._wait_a_while(deadline)
            if self._buffer.backlog <= self.max_unsynced:
                return
        raise WALBackpressure(
            f"{self._buffer.backlog} bytes wait for the disk; the call was refused.",
            fix="Try again later, run fewer sagas at once, or use a faster disk.",
        )

    def _wait_a_while(self, deadline: float) -> None:
        try:
            self.wait_durable(self.seq, max(0.001, deadline - time.monotonic()))
        except WALPoisoned:
            raise
        except WALError:
            return

    @contextmanager
    def _held(self, lock: threading.Lock) -> Iterator[None]:
        """Hold a lock behind which a system call may hang; the wait for it is bounded."""
        if not lock.acquire(timeout=self.stall_after):
            raise stalled(self.stall_after)
        try:
            yield
        finally:
            lock.release()

    # --- out of the process -----------------------------------------------------------------------

    def drain(self) -> None:
        """Hand everything that was appended to the operating system, on this thread.

        Raises:
            WALPoisoned: the log cannot write any more.
            WALStalled: another thread has been inside a write for longer than `stall_after`.

        Repeating an interrupted drain writes the same bytes to the same place.
        """
        # The first try costs half of one with a bound, and nearly always succeeds.
        if not self._io.acquire(blocking=False) and not self._io.acquire(timeout=self.stall_after):
            raise stalled(self.stall_after)
        try:
            self._drain()
        finally:
            self._io.release()
        if self.syncs_inline:
            self._after_drain()

    def _drain(self) -> None:
        """Write batch by batch; io lock held."""
        with self._lock:
            if self._cause is not None:
                raise poisoned(self._cause)
            batch = self._buffer.stamp(self.synced)
        while batch is not None:
            try:
                self._write(batch)
            except WALError:
                raise
            except Exception as error:
                self._poison(error)
                raise poisoned(error) from error
            with self._lock:
                batch = self._note_written(batch)

    def _stamp(self) -> Batch | None:
        """The next batch; lock held."""
        if self._cause is not None:
            raise poisoned(self._cause)
        return self._buffer.stamp(self.synced)

    def _note_written(self, batch: Batch) -> Batch | None:
        """Note a written batch and return the next one; lock held."""
        self.written = batch.last
        counters = self.counters
        counters.writes += 1
        counters.records += batch.records
        counters.bytes += len(batch.data)
        buffer = self._buffer
        more = buffer.written()
        if buffer.backlog > self.max_unsynced // 4:
            self._after_write()
        return self._stamp() if more else None

    def out_future(self, seq: int, loop: asyncio.AbstractEventLoop) -> Future | None:
        """Wait until a record is with the operating system; one write per loop turn serves all.

        Args:
            seq: the record's sequence.
            loop: the running loop of this thread.

        Returns:
            None when it is there already; else a future of the caller's own, which may be cancelled
            and may fail with a `WALError`.
        """
        if self.written >= seq:
            return None
        waiting = self._turns.get(loop)
        if waiting is None:
            for other in [one for one in list(self._turns) if one.is_closed()]:
                self._turns.pop(other, None)
            waiting = self._turns[loop] = []
            loop.call_soon(self._end_turn, loop)
        future = loop.create_future()
        waiting.append(future)
        return future

    def _end_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._turns.pop(loop)
        try:
            self.drain()
        except WALError as error:
            settle(waiting, error)
        else:
            settle(waiting, None)


def now_us() -> int:
    """Wall clock: whole microseconds since the epoch."""
    return time.time_ns() // 1000


def _encoded(payload: object) -> Fragment:
    if not isinstance(payload, Mapping):
        raise TypeError(
            f"A payload is a Fragment or a mapping, not {type(payload).__name__}: bytes that were "
            "not made by agent_saga.wal.encoding may hold a secret."
        )
    return masked(dict(payload))[0]

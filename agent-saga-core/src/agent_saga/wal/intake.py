"""How a record gets into a log: it is encoded at the call and put into a buffer.

Rules of this part:

- The writer is opened at its first record. Only intents are refused for lack of room or speed,
  before their effect; the records that tell how something ended are refused only by a log that is
  poisoned for good, or closed.
- `_lock` guards what is in memory and is held for moments; nothing that may hang happens under it.
- The way of one record is short on purpose: it is taken twice in every step.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Final

from agent_saga.domain.records import INTENTS, OBSERVATIONS, Ev
from agent_saga.errors import WALBackpressure, WALError, WALPoisoned
from agent_saga.wal.buffer import Buffer, own_entry
from agent_saga.wal.contract import BackpressurePolicy, Counters
from agent_saga.wal.encoding import EMPTY, Fragment, masked
from agent_saga.wal.format import Entry, first_hash
from agent_saga.wal.waiters import poisoned, stalled

__all__ = ["Intake", "now_us"]

_REFUSABLE: Final = INTENTS | OBSERVATIONS
_ENDLESS: Final = 2**62


class Intake(ABC):
    """Takes records in; the classes above it hand them out and make them durable."""

    policy: BackpressurePolicy
    stall_after: float
    max_unsynced: int

    def _reset(self) -> None:
        """Begin as if nothing had been written: at the start, and in a forked child."""
        self.writer = ""
        self.counters = Counters()
        self._live = False
        self._closed = False
        self._cause: BaseException | None = None
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._buffer = Buffer()
        self._spares: Sized = (None,)

    # --- what a backend gives ---------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> Mapping[str, object]:
        """Make the writer, set `self.writer`, and return what WRITER_OPEN tells about it.

        A backend of segments sets `self._spares`, which is empty when an intent could take the room
        of endings.
        """

    def _next_segment(self) -> int:
        """How many bytes of lines the next segment takes; the first one at the first call."""
        return _ENDLESS

    def _room_for_intent(self) -> None:
        """Raise `WALFull` when an intent could take the room of endings."""
        return

    # --- what the classes above give --------------------------------------------------------------

    @abstractmethod
    def drain(self) -> None:
        """Hand everything that was appended to the operating system."""

    @abstractmethod
    def wait_durable(self, seq: int, timeout: float | None = None) -> None:
        """Block this thread until a record is durable."""

    @abstractmethod
    def _start(self) -> None:
        """Start what works in the background, before the writer is opened."""

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
        if event in _REFUSABLE:
            tight = self._buffer.backlog > self.max_unsynced or not self._spares
            if tight and not self._admit(event):
                return self.seq
        entry = (time.time_ns() // 1000, event, saga, epoch, step, generation, fragment)
        with self._lock:
            if self._cause is not None or self._closed:
                raise self._refusal()
            return self._buffer.put(entry)

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
            self._start()
            facts = self._open()
            buffer = Buffer((0, first_hash(self.writer)), self._next_segment)
            buffer.observing = self._buffer.observing
            buffer.put(own_entry(now_us(), Ev.WRITER_OPEN, facts))
            self._buffer = buffer
            self._live = True

    def _enqueue(self, entry: Entry) -> int:
        """Put an entry into the buffer; lock held."""
        if self._cause is not None or self._closed:
            raise self._refusal()
        return self._buffer.put(entry)

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

"""How records become durable, and who is told.

Rules of this part:

- One private thread syncs: at once when idle, at the end of a loop's turn in a crowd (see `turns`);
  while a sync is in flight the next batch gathers. No fixed window, no task per step, at most one
  hop between threads per barrier, every wait bounded.
- A sync's watermark is carried by the next record; after a moment of quiet a MARK carries it.
- An error that leaves a backend's `_write` or `_sync` poisons the log for good, and every waiter
  fails with the cause.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from agent_saga.domain.records import Ev
from agent_saga.errors import WALError
from agent_saga.observe.logger import logger
from agent_saga.observe.metrics import BARRIER_WAIT, POISONED_WRITERS, process_metrics
from agent_saga.wal.buffer import Durable, own_entry
from agent_saga.wal.draining import Draining
from agent_saga.wal.intake import now_us
from agent_saga.wal.waiters import (
    Future,
    Waiters,
    failed_future,
    first_came,
    poisoned,
    release,
    stalled,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Durability"]

_EVERYTHING: Final = 2**63

_log = logger("agent_saga.wal")
_metrics: Final = process_metrics()


class Durability(Draining):
    """Makes what was handed out durable, and lets go on who waits for it."""

    address: str
    mark_after: float
    _observers: list[Callable[[list[Durable]], object]]

    def _reset(self) -> None:
        super()._reset()
        self._waiters = Waiters(self._lock, self.stall_after)
        self.synced_at = 0.0

    # --- what a backend gives ---------------------------------------------------------------------

    @abstractmethod
    def _sync(self, target: int) -> None:
        """Make everything up to `target` durable; on the flusher's thread."""

    # --- durable ----------------------------------------------------------------------------------

    def start_sync(self) -> None:
        """Start a sync of everything appended, without waiting for it.

        What goes wrong is told to whoever waits for the records.
        """
        if self.syncs_inline:
            self._drain_quietly()
        else:
            self._want(self._buffer.seq)

    def _want(self, seq: int) -> None:
        """Have a sync cover `seq`: the one in flight if it does, else another."""
        if self._target < seq and self.synced < seq and self._cause is None:
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
            turns = self._turns.get(loop) or self._new_turns(loop)
            wait = self._waiters.add_future(seq, turns)
        if turns.ask():
            self._want(self._buffer.seq if turns.take_along() else seq)
        return wait

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
        loop = asyncio.get_running_loop()
        future = self.durable_future(self.seq if seq is None else seq, loop)
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

        Args:
            callback: gets pairs of a sequence and (time, event, saga, epoch, step, generation,
                payload). What it raises is logged and changes nothing.
        """
        with self._lock:
            self._observers.append(callback)
            self._buffer.observing = True

    # --- the flusher's thread ---------------------------------------------------------------------

    def _work(self) -> float | None:
        """One sync: write what waits, make it durable, let its waiters go on."""
        try:
            self._target = target = self._buffer.seq
            with self._io:
                if target > self.written or self._cause is not None:
                    self._drain()
                self._target = target = self.written
                self._buffer.syncing()
            self._sync(target)
        except WALError as error:
            _log.warning("A sync of the log %s did not take place: %s", self.address, error)
            self._target = 0
            return None
        except BaseException as error:
            self._poison(error)
            return None
        self.counters.syncs += 1
        self._settle(target)
        return self.mark_after if self.synced > self._buffer.carried else None

    def _settle(self, seq: int) -> None:
        """Everything up to `seq` is durable: tell whoever waits, then the observers."""
        with self._lock:
            self._target = 0
            self.synced_at = time.monotonic()
            self.synced = max(self.synced, seq)
            ready = self._waiters.take(self.synced)
            told = self._buffer.durable(self.synced)
        if ready:
            release(ready, None)  # first: what follows is over before a thread has woken
            _metrics.wait(BARRIER_WAIT, self.synced_at - first_came(ready))
        if told:
            self._tell(told)

    def _tell(self, told: list[Durable]) -> None:
        for observer in self._observers:
            try:
                observer(told)
            except Exception:
                _log.exception("An observer of the log failed; the log goes on.")

    def _much_written(self) -> None:
        if not self.syncs_inline:
            self._want(self.written)

    def _after_drain(self) -> None:
        with self._lock:
            self._buffer.syncing()
        self._settle(self.written)

    def _mark(self) -> None:
        """Write the watermark that no later record has carried."""
        try:
            with self._lock:
                if self.synced <= self._buffer.carried or self.seq > self.written or self._closed:
                    return
                self._enqueue(own_entry(now_us(), Ev.MARK, {}))
            self.drain()
        except WALError:
            _log.debug("The watermark could not be written.", exc_info=True)

    def _poison(self, error: BaseException) -> None:
        with self._lock:
            if self._cause is None:
                self._cause = error
            self._target = 0
            waiting = self._waiters.take(_EVERYTHING)
        _metrics.count(POISONED_WRITERS)
        _log.error("The log %s cannot write any more: %r", self.address, error)
        release(waiting, error)

    def _drain_quietly(self) -> None:
        """Drain for somebody who is told of errors in another way."""
        try:
            self.drain()
        except WALError:
            _log.debug("The log could not be drained.", exc_info=True)

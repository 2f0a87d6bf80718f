"""How records leave the process: batches, written in order at a fixed place.

Rules of this part:

- Whoever needs a record outside drains the buffer, under one lock (`_io`); a drain stamps once and
  writes at a fixed place, so that repeating an interrupted one is harmless.
- While a sync is in flight, or in a crowd (see `turns`), the records of one loop turn are written
  together; else at once.
- A sync that nobody waits for is put off for a moment, so that the next one takes it along: see
  `turns` and `worker`.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Mapping

from agent_saga.errors import WALError
from agent_saga.wal.buffer import Batch
from agent_saga.wal.encoding import EMPTY, Fragment
from agent_saga.wal.intake import Intake
from agent_saga.wal.turns import Turns
from agent_saga.wal.waiters import Future, poisoned, settle, stalled
from agent_saga.wal.worker import Worker

__all__ = ["Draining"]

_running_loop = asyncio._get_running_loop  # noqa: SLF001 - documented; None where no loop runs


class Draining(Intake):
    """Hands what was taken in to the operating system."""

    syncs_inline = False
    """Whether what is written is durable at once, with nothing to wait for."""

    def _reset(self) -> None:
        super()._reset()
        self.synced = 0
        self.written = 0
        self._io = threading.Lock()
        self._turns: dict[asyncio.AbstractEventLoop, Turns] = {}
        self._flusher = Worker("agent-saga-wal-flusher", self._work, self._mark)
        self._target = 0

    # --- what a backend gives ---------------------------------------------------------------------

    @abstractmethod
    def _write(self, batch: Batch) -> None:
        """Hand a batch to the operating system; may be called again with the same batch."""

    # --- what the classes above give --------------------------------------------------------------

    @abstractmethod
    def start_sync(self) -> None:
        """Start a sync of everything appended, without waiting for it."""

    @abstractmethod
    def _work(self) -> float | None:
        """One sync, on the flusher's thread."""

    @abstractmethod
    def _mark(self) -> None:
        """What the flusher does after a moment of quiet."""

    @abstractmethod
    def _much_written(self) -> None:
        """Note that much was written that is not yet durable."""

    @abstractmethod
    def _after_drain(self) -> None:
        """Note that a drain has ended well, where what is written is durable; no lock held."""

    @abstractmethod
    def _poison(self, error: BaseException) -> None:
        """Nothing is promised any more: every waiter fails with the cause."""

    def _start(self) -> None:
        if not self.syncs_inline:
            self._flusher.start()

    # --- out of the process -----------------------------------------------------------------------

    def drain(self) -> None:
        """Hand everything that was appended to the operating system, on this thread.

        Raises:
            WALPoisoned: the log cannot write any more.
            WALStalled: another thread has been inside a write for longer than `stall_after`.

        Repeating an interrupted drain writes the same bytes to the same place.
        """
        # The first try costs half of one with a bound, and nearly always succeeds.
        if not self._io.acquire(False) and not self._io.acquire(timeout=self.stall_after):
            raise stalled(self.stall_after)
        try:
            self._drain()
        finally:
            self._io.release()
        if self.syncs_inline:
            self._after_drain()

    def _drain(self) -> None:
        """Write batch by batch; io lock held."""
        buffer = self._buffer
        while True:
            with self._lock:
                if self._cause is not None:
                    raise poisoned(self._cause)
                batch = buffer.stamp(self.synced)
            if batch is None:
                break
            try:
                self._write(batch)
            except WALError:
                raise
            except Exception as error:
                self._poison(error)
                raise poisoned(error) from error
            self.written = batch.last  # first: an interruption here has the batch written again
            counters = self.counters
            counters.writes += 1
            counters.records = batch.last
            counters.bytes += len(batch.data)
            if not buffer.written():
                break
        if buffer.bytes_in - buffer.bytes_durable > self.max_unsynced // 4:
            self._much_written()

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
        future = loop.create_future()
        turns = self._turns.get(loop) or self._new_turns(loop)
        turns.waiting.append(future)
        turns.watch()
        return future

    def _new_turns(self, loop: asyncio.AbstractEventLoop) -> Turns:
        for other in [one for one in list(self._turns) if one.is_closed()]:
            self._turns.pop(other, None)
        turns = self._turns[loop] = Turns(loop, self._end_turn)
        return turns

    def _end_turn(self, waiting: list[Future], sync: bool) -> None:
        if waiting:
            try:
                self.drain()
            except WALError as error:
                settle(waiting, error)
            else:
                settle(waiting, None)
        if sync:
            self.start_sync()

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
        """Write what was appended, unless a batch gathers anyway: see the rules of this part.

        Args:
            sync: start a sync of it, without waiting for it: a moment later, between two turns of
                the running loop; where no loop runs, at once, or a moment after the last sync.

        Returns:
            Whether everything is with the operating system now; if not, see `out_future`.

        Raises:
            WALError: as `drain` does.
        """
        loop = _running_loop()
        turns = None
        if loop is not None and not self.syncs_inline:
            turns = self._turns.get(loop) or self._new_turns(loop)
        crowded = turns is not None and turns.crowded
        alone = not (crowded or self._target or self._flusher.kicked)
        if alone:
            self.drain()
        if sync and turns is not None:
            turns.postpone()
        elif sync and not self.syncs_inline:
            self._flusher.kick_soon()
        return alone

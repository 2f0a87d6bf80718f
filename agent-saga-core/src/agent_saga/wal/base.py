"""The write-ahead log above its backends: its owner's fence, forks, and its end.

Rules of this part:

- A log is taken in (`intake`), handed out (`draining`) and made durable (`durability`); a backend
  gives `_open`, `_write`, `_sync`, `_close`.
- After an announcement and before its effect, `check_fence` says whether the saga is still one's
  own. One look at the fences serves every announcement that was durable before it: whoever fences
  after the look reads those announcements.
- A forked child starts a new writer with an empty buffer at its first record.
"""

from __future__ import annotations

import asyncio
import atexit
import time
import weakref
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from agent_saga.domain.durations import CENTURY, seconds, shown
from agent_saga.domain.leaving import UNDO_WINDOW
from agent_saga.domain.records import Ev
from agent_saga.errors import (
    CompactionRefused,
    ConfigurationError,
    SagaFenced,
    SagaForked,
    WALError,
    WALPoisoned,
)
from agent_saga.observe.living import living
from agent_saga.observe.logger import logger
from agent_saga.wal.buffer import Batch, Durable, own_entry
from agent_saga.wal.contract import BackpressurePolicy, Capabilities, Counters
from agent_saga.wal.durability import Durability
from agent_saga.wal.intake import now_us
from agent_saga.wal.lock import EVERY_EPOCH, WHOLE_WRITER
from agent_saga.wal.os_port import restart_after_fork

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent_saga.wal.compaction import Compacted
    from agent_saga.wal.format import Record

__all__ = ["BackpressurePolicy", "BaseWAL", "Batch", "Capabilities", "Counters", "Durable"]

_AT_EXIT: Final = 5.0
_LOOK_SERVES: Final = 0.01
"""Seconds for which one look at the fences serves the steps that were announced before it."""

_Look = tuple[int, float, "Mapping[str, int]"]
"""The highest sequence durable before a look at the fences, its time, and what it found."""

_now = time.monotonic
_log = logger("agent_saga.wal")
_logs: Final[weakref.WeakSet[BaseWAL]] = weakref.WeakSet()


class BaseWAL(Durability):
    """A write-ahead log; a backend says where its lines go.

    Args:
        policy: what happens to intents when the log is not keeping up.
        stall_after: seconds after which a wait for the disk fails with `WALStalled`.
        max_unsynced: bytes that may wait for the disk before intents are refused; a quarter of it
            starts a sync that nobody asked for.
        mark_after: seconds of quiet after a sync before its watermark is written.

    Raises:
        ConfigurationError: an argument cannot be used.

    Attributes:
        address: where the log is, as `open_wal` takes it.
        capabilities: what the backend can do.
        seq: the sequence of the last record that was appended.
        written: the highest sequence that is with the operating system.
        synced: the highest sequence that is durable.
        synced_at: when that was last found, on the monotonic clock.
        counters: what the log did since it was opened.
    """

    address: str = ""
    capabilities: Capabilities

    def __init__(
        self,
        *,
        policy: BackpressurePolicy = BackpressurePolicy.RAISE,
        stall_after: float = 30.0,
        max_unsynced: int = 32 * 1024 * 1024,
        mark_after: float = 0.05,
    ) -> None:
        if not isinstance(policy, BackpressurePolicy):
            raise ConfigurationError(f"policy= takes a BackpressurePolicy, not {shown(policy)}.")
        if type(max_unsynced) is not int or max_unsynced < 1:
            raise ConfigurationError(
                f"max_unsynced= is a number of bytes above zero, not {shown(max_unsynced)}."
            )
        self.policy = policy
        self.stall_after = seconds("stall_after=", stall_after)
        self.max_unsynced = max_unsynced
        self.mark_after = seconds("mark_after=", mark_after, zero=True)
        self._observers = []
        self._forked = False
        self._reset()
        restart_after_fork(self)
        _logs.add(self)

    def _reset(self) -> None:
        super()._reset()
        self._fences: dict[str, int] = {}
        self._looked: _Look = (0, 0.0, self._fences)

    # --- what a backend gives ---------------------------------------------------------------------

    @abstractmethod
    def _close(self) -> None:
        """Give back what `_open` took, also where it failed half-way; may be called again."""

    @abstractmethod
    def read_all(self) -> Iterator[Record]:
        """Every record of every writer: per writer in sequence, writers by id.

        Raises:
            WALCorrupt: after the last record, when some of the log was damaged.
            WALFormatError: after the last record, when another version wrote some of it.
        """

    # --- compaction -------------------------------------------------------------------------------

    undo_window = UNDO_WINDOW
    """Seconds for which a saga that has ended well stays, when nobody says otherwise."""

    def compact(self, *, grace_seconds: float | None = None) -> Any:
        """Take settled sagas out of the log, also those of other writers; the chain stays whole.

        What is open, suspended, partial, stuck, unsettled, reopened or a human's case stays.

        Args:
            grace_seconds: seconds for which a saga stays after its last record; `undo_window` when
                None. Within them it can still be undone.

        Returns:
            A `Compacted`. On a thread whose event loop is running, an awaitable of it; the work is
            then done on a thread of its own.

        Raises:
            CompactionRefused: this log cannot be compacted, or somebody else is at work on it.
            WALError: something could not be read, written or attested.
            ConfigurationError: the grace is no number of seconds.

        Crash: nothing is lost; what was half done is ignored, or finished by the next compaction.
        Fails closed: on any doubt a saga stays.
        """
        grace = self.undo_window if grace_seconds is None else grace_seconds
        grace = seconds("grace_seconds=", grace, longest=CENTURY, zero=True)
        before = now_us() - int(grace * 1_000_000)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._compact(before)
        return asyncio.to_thread(self._compact, before)

    def _compact(self, before: int) -> Compacted:
        """Compact; sagas whose last record is older than `before`, in microseconds, leave."""
        del before
        raise CompactionRefused(f"The log {self.address} cannot be compacted.")

    # --- fence and fork ---------------------------------------------------------------------------

    def fence(self, saga: str, epoch: int = EVERY_EPOCH) -> None:
        """Fence a saga: from now on `check_fence` refuses its epochs below `epoch`.

        Args:
            saga: the saga's id, or "*" for everything that this writer does.
            epoch: the claimer's epoch.
        """
        with self._lock:
            self._fences[saga] = max(epoch, self._fences.get(saga, 0))

    def check_fence(self, saga: str, epoch: int, announced: int | None = None) -> None:
        """Check, after an announcement and before its effect, that nobody took the saga over.

        Args:
            saga: the saga's id.
            epoch: the epoch in which this process owns it.
            announced: the sequence of the announcement that was waited for; a look that began when
                it was durable serves it, for some milliseconds. None looks now.

        Raises:
            SagaFenced: a later owner has claimed it; the effect must not start.
            SagaForked: this is a forked child, and the saga is its parent's.

        Fails closed: a fence that cannot be read refuses.
        """
        if self._forked and not self._live:
            raise SagaForked(
                "The saga belongs to the parent process.",
                fix="Open a boundary of its own in the child, with detached=True.",
            )
        durable, looked_at, fences = self._looked
        if announced is None or announced > durable or _now() - looked_at > _LOOK_SERVES:
            fences = self._look()
        if not fences:
            return
        if epoch < fences.get(WHOLE_WRITER, 0):
            if self._closed:
                raise SagaFenced(
                    f"The log was closed before a call of saga {saga!r} began.",
                    rule="fence",
                    reason="Others may act on the sagas of a process that has closed its log.",
                    fix="Close the log when every boundary on it has ended.",
                )
            raise SagaFenced(
                "The lock of this process on its log was removed or replaced, or cannot be read; "
                f"somebody may have taken over saga {saga!r}.",
                rule="fence",
                reason="Without its lock this process may not act on any saga.",
                fix="Start this program again, and leave the files in the log's folder alone.",
            )
        if epoch < fences.get(saga, 0):
            raise SagaFenced(
                f"Another process has taken over saga {saga!r} from epoch {epoch}.",
                rule="fence",
                reason="It undoes or resumes the saga; this process may not act on it any more.",
            )

    def is_fenced(self, saga: str, epoch: int) -> bool:
        """Say whether a later owner of a saga is known; False where the fence cannot be read."""
        return epoch < self._look().get(saga, 0)

    def _look(self) -> Mapping[str, int]:
        """Look at the fences, and remember what was durable before."""
        durable, looked_at = self.synced, _now()
        fences = self._fences_now()
        self._looked = (durable, looked_at, fences)
        return fences

    def _fences_now(self) -> Mapping[str, int]:
        """The epochs below which each saga is fenced; cheap when nothing changed."""
        return self._fences

    def restart_in_child(self) -> None:
        """In a forked child: keep nothing of the parent's, and begin anew at the first record."""
        closed, observing = self._closed, self._buffer.observing
        try:
            self._forget()
        finally:
            self._forked = True
            self._reset()
            self._closed = closed
            self._buffer.observing = observing

    def _forget(self) -> None:
        """Let go, in a forked child, of what only the parent may hold."""

    # --- the end ----------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Write the last record, make everything durable and give the writer back.

        Args:
            timeout: seconds to wait at most (`stall_after` when None).

        Raises:
            WALStalled: the disk did not answer in time. As long as a write or a sync has not come
                back, the writer's lock and files are kept, if need be until the end of the process:
                nobody takes its sagas for abandoned, and nothing else gets the files' descriptors.

        Does nothing when the log was never written to, or is closed already.
        """
        deadline = time.monotonic() + (self.stall_after if timeout is None else timeout)
        try:
            # The last record then carries the watermark of everything before it.
            self._make_durable(self.seq, deadline)
            last = self._announce_close()
            if last:
                self._make_durable(last, deadline)
        finally:
            self._mark_closed()
            if self._flusher.stop(_left(deadline)) and self._io.acquire(timeout=_left(deadline)):
                try:
                    self._close()
                finally:
                    self._io.release()

    def _make_durable(self, seq: int, deadline: float) -> None:
        """Make the records up to `seq` durable, as far as the log still can."""
        if self._cause is not None:
            return
        try:
            self.drain()
            self.wait_durable(seq, max(0.0, deadline - time.monotonic()))
        except WALPoisoned:
            _log.warning("The log %s was closed without its last records.", self.address)

    def _announce_close(self) -> int:
        """Append the last record; its sequence, or 0 when there is none to append."""
        with self._held(self._opening), self._lock:
            if not self._live or self._closed or self._cause is not None:
                return 0
            seq = self._enqueue(own_entry(now_us(), Ev.WRITER_CLOSE, {"last": self.seq}))
            self._closed = True
            return seq

    def _mark_closed(self) -> None:
        """Take no more records."""
        with self._held(self._opening), self._lock:
            self._live = False
            self._closed = True

    async def aclose(self, timeout: float | None = None) -> None:
        """Close without blocking the event loop; see `close`."""
        await asyncio.to_thread(self.close, timeout)


def _left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _close_logs() -> None:
    """At the end of the process: whoever forgot to close a log loses nothing."""
    for log in living(_logs):
        try:
            log.close(_AT_EXIT)
        except WALError:
            _log.warning("The log %s could not be closed at exit.", log.address)


atexit.register(_close_logs)

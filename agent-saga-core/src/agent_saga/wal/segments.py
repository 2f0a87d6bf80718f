"""The segment files of one writer: allocated before use, never edited, replaced on errors.

Rules of this part:

- A segment is a file of zeros that is written from its start. The next ones are made in the
  background, so that an append waits for no allocation; one is always kept ready when an intent
  is let in, so that endings and undo records still fit when the disk is full. An intent never
  allocates by itself: a disk that hangs holds the thread in the background, and no intent for long.
- Segments are numbered as they are made. What is durable is said by syncs alone: a segment that
  was sealed is synced before the one behind it, then cut to its size.
- A failed or short write or a failed sync kills the segment: its descriptor is never written or
  synced again. Everything above the watermark is kept in memory and written again, byte for byte,
  into a new segment. An error there leaves this module, and the log is poisoned for good.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from agent_saga.errors import WALFull
from agent_saga.observe.logger import logger
from agent_saga.wal.directory import short_write, way_out, write_all
from agent_saga.wal.waiters import stalled
from agent_saga.wal.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.wal.buffer import Batch
    from agent_saga.wal.os_port import OsPort

__all__ = ["FIRST_SIZE", "LAST_SIZE", "Segments", "segment_name", "segment_size"]

FIRST_SIZE: Final = 256 * 1024
LAST_SIZE: Final = 16 * 1024 * 1024
_ENOUGH: Final = 2
_TRIES: Final = 3

_log = logger("agent_saga.wal")


def segment_name(number: int) -> str:
    """The file name of a writer's n-th segment."""
    return f"seg-{number:08d}.jsonl"


def segment_size(number: int) -> int:
    """How many bytes the n-th segment is given: doubling, up to a bound."""
    return int(min(FIRST_SIZE << min(number - 1, 16), LAST_SIZE))


_Place = tuple[int, int]
"""The last sequence that was written, and the offset behind its line in the current segment."""


class _Segment:
    """An open segment; `end` is the offset behind its last line once nothing more is written."""

    __slots__ = ("end", "fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.end = 0


class Segments:
    """The segments of one writer.

    Args:
        port: the system calls.
        folder: the writer's folder, which exists.

    Raises:
        OSError: the first segment cannot be made.

    `write` is called under the log's io lock, `sync` on the flusher's thread alone.
    """

    def __init__(self, port: OsPort, folder: str, io: threading.Lock, stall_after: float) -> None:
        self._port = port
        self._folder = folder
        self._io = io
        self._stall_after = stall_after
        self._made = 0
        self._making = threading.Lock()
        self._changed = threading.Condition()
        self._refusals = 0
        self._refusal: OSError | None = None
        self.spares: deque[_Segment] = deque()
        self._sealed: deque[_Segment] = deque()
        self._finished: deque[_Segment] = deque()
        self._dead: deque[_Segment] = deque()
        self._undurable: dict[int, bytes] = {}
        self._place: _Place = (0, 0)
        self._broken: OSError | None = None
        self._forgotten = False
        self.replaced = 0
        self._current: _Segment | None = self._make()
        self._preparer = Worker("agent-saga-wal-preparer", self._prepare)
        self._preparer.kick()

    # --- making -----------------------------------------------------------------------------------

    def _make(self) -> _Segment:
        """Allocate the next segment and make its name durable."""
        path, fd = self._create()
        try:
            self._port.fallocate(fd, segment_size(self._made))
            self._port.fsync(fd)
            self._port.sync_directory(self._folder)
        except BaseException:
            self._discard(_Segment(path, fd))
            raise
        return _Segment(path, fd)

    def _create(self) -> tuple[str, int]:
        """Create the file of the next number that is free."""
        while True:
            number = self._made + 1
            path = os.path.join(self._folder, segment_name(number))
            try:
                fd = self._port.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                self._made = number
            else:
                self._made = number
                return path, fd

    def _prepare(self) -> None:
        """In the background: make spares, cut what was sealed and synced."""
        try:
            while len(self.spares) < _ENOUGH and not self._forgotten:
                self._add_spare(_ENOUGH)
                self._tell(None)
        except OSError as error:
            _log.warning("No further segment of the log could be made: %s", error)
            self._tell(error)
        except BaseException as error:
            self._tell(OSError(f"the thread that makes it failed: {error!r}"))
            raise
        for segment in _each(self._finished):
            self._cut(segment)

    def _tell(self, refusal: OSError | None) -> None:
        """Wake whoever waits for a spare: there is one, or none can be made."""
        with self._changed:
            self._refusal = refusal
            self._refusals += refusal is not None
            self._changed.notify_all()

    def _await_spare(self) -> None:
        """Wait, bounded, until a spare was made in the background.

        Raises:
            OSError: none can be made.
            WALStalled: it is not ready in time.
        """
        with self._changed:
            before = self._refusals
            self._preparer.kick()
            if not self._changed.wait_for(
                lambda: self.spares or self._refusals != before, self._stall_after
            ):
                raise stalled(self._stall_after)
            if not self.spares and self._refusal is not None:
                raise self._refusal

    def _cut(self, segment: _Segment) -> None:
        """Give back what a sealed segment did not use; a failure costs room and nothing else."""
        try:
            self._port.ftruncate(segment.fd, segment.end)
            self._port.fsync(segment.fd)
        except OSError as error:
            _log.warning("A sealed segment could not be cut to its size: %s", error)
        self._close_file(segment)

    def _discard(self, segment: _Segment) -> None:
        self._close_file(segment)
        try:
            self._port.unlink(segment.path)
        except OSError:
            _log.debug("An unused segment stays: %s", segment.path)

    def _close_file(self, segment: _Segment) -> None:
        fd, segment.fd = segment.fd, -1
        if fd >= 0:
            try:
                self._port.close(fd)
            except OSError:
                _log.debug("A segment's descriptor could not be closed: %s", segment.path)

    def _add_spare(self, enough: int) -> None:
        """Make a spare unless there are enough; waits, bounded, for one that is being made."""
        if not self._making.acquire(timeout=self._stall_after):
            raise stalled(self._stall_after)
        try:
            if len(self.spares) < enough:
                self.spares.append(self._make())
                if self._forgotten:  # looked at second: either this takes it back, or `forget`
                    self._discard_spares()
        finally:
            self._making.release()

    def _take(self) -> _Segment:
        """The next segment: one that is ready, else one that is made now."""
        if not self.spares:
            self._add_spare(1)
        segment = self.spares.popleft()
        self._preparer.kick()
        return segment

    def room_for_intent(self) -> None:
        """Let an intent in only while a spare segment is ready for what comes after it.

        Raises:
            WALFull: none is ready, and none can be made.
            WALStalled: the one that is being made is not ready in time.
        """
        if self.spares:
            return
        try:
            self._await_spare()
        except OSError as error:
            raise WALFull(
                f"There is no room for the log to grow ({error}); the call was refused.",
                fix=way_out(error, f"Free space on the disk of {self._folder!r}."),
            ) from error

    # --- writing ----------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        """Hand lines to the operating system; again with the same lines after an interruption.

        Raises:
            OSError: the write failed, and so did writing to a new segment.
        """
        data, last = batch.data, batch.last
        self._undurable[last] = data
        if self._broken is not None:
            self._replace()
        done, end = self._place
        if done < last:
            segment = self._current
            if segment is None:
                segment, end = self._begin(), 0
            try:
                count = self._port.pwrite(segment.fd, data, end)
                if count != len(data):
                    raise short_write(count, data)
            except OSError as error:
                self._broken = error
                self._replace()
            else:
                self._place = (last, end + count)
        if batch.seals:
            self._seal()

    def _begin(self) -> _Segment:
        """Go on in the next segment, from its start."""
        segment = self._take()
        self._current, self._place = segment, (self._place[0], 0)
        return segment

    def _seal(self) -> None:
        """End the current segment, unless that is done; the next write goes into another."""
        segment = self._current
        if segment is not None:
            segment.end = self._place[1]
            if segment not in self._sealed:
                self._sealed.append(segment)
            self._current = None

    def _replace(self) -> None:
        """Leave the broken segments, and write what is not known durable into a new one."""
        _log.error("A segment of the log failed and is replaced: %s", self._broken)
        while self._sealed:
            self._dead.append(self._sealed.popleft())
        if self._current is not None:
            self._dead.append(self._current)
            self._current = None
        segment = self._take()
        data = b"".join(self._undurable.values())
        if data:
            write_all(self._port, segment.fd, data, 0)
        last = next(reversed(self._undurable), self._place[0])
        self._current, self._place = segment, (last, len(data))
        self.replaced += 1
        self._broken = None

    # --- durable ----------------------------------------------------------------------------------

    def sync(self) -> None:
        """Make everything that was written durable; the flusher's thread only.

        Raises:
            OSError: a sync failed, and so did the one of the segment that replaced it.
        """
        error: OSError | None = None
        for _ in range(_TRIES):
            with self._io:
                replaced, last = self.replaced, self._place[0]
                sealed, current = [*self._sealed], self._current
            error = self._sync_each(sealed, current)
            with self._io:
                if self.replaced != replaced:
                    continue
                if error is None:
                    return self._settle(sealed, last)
                self._broken = error
                self._replace()
        raise OSError(f"the segments failed one after the other, last with: {error}") from error

    def _sync_each(self, sealed: list[_Segment], current: _Segment | None) -> OSError | None:
        try:
            for segment in sealed:
                self._port.fdatasync(segment.fd)
            if current is not None:
                self._port.fdatasync(current.fd)
        except OSError as error:
            return error
        return None

    def _settle(self, sealed: list[_Segment], last: int) -> None:
        """Note what is durable, up to the sequence `last`; io lock held."""
        if next(reversed(self._undurable), 0) <= last:
            self._undurable = {}
        else:
            newer = {seq: data for seq, data in self._undurable.items() if seq > last}
            self._undurable = newer
        if sealed or self._dead:
            self._give_back(sealed)

    def _give_back(self, sealed: list[_Segment]) -> None:
        """Close segments that hold nothing which is needed here any more; io lock held."""
        for segment in sealed:
            self._sealed.remove(segment)
            self._finished.append(segment)
        while self._dead:
            self._close_file(self._dead.popleft())
        if sealed:
            self._preparer.kick()

    # --- the end ----------------------------------------------------------------------------------

    def close(self, timeout: float, *, whole: bool) -> None:
        """Close the files; when everything is durable, cut the last one and remove the spares."""
        stopped = self._preparer.stop(timeout)
        if stopped:
            self._prepare_end(whole=whole)
        self.forget()

    def _prepare_end(self, *, whole: bool) -> None:
        if whole:
            for segment in _each(self._finished):
                self._cut(segment)
        if whole and self._current is not None:
            self._current.end = self._place[1]
            self._cut(self._current)
        self._discard_spares()

    def _discard_spares(self) -> None:
        for segment in _each(self.spares):
            self._discard(segment)

    def forget(self) -> None:
        """Close every descriptor and touch nothing else.

        The thread in the background may still be held up by the disk: it closes what it has.
        """
        self._forgotten = True
        if self._current is not None:
            self._close_file(self._current)
        for segments in (self.spares, self._sealed, self._finished, self._dead):
            for segment in _each(segments):
                self._close_file(segment)


def _each(segments: deque[_Segment]) -> Iterator[_Segment]:
    """Take out each segment, beside a thread that may take and add some, too."""
    while True:
        try:
            segment = segments.popleft()
        except IndexError:
            return
        yield segment

"""The file log: a directory on one host, one folder per process, segments of JSON lines.

Rules of this part:

- Nothing is made before the first record. Every process that writes is a writer of its own, with
  a folder, a lock for its life and a chain; nobody touches another writer's segments.
- Processes, threads and event loops may share one path freely; a forked child begins a new
  writer.
- What the log promises is what the operating system can: `capabilities.durability` says it.
"""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any, Final

from agent_saga.domain.durations import shown
from agent_saga.domain.records import Ev
from agent_saga.errors import ConfigurationError, WALPathError
from agent_saga.wal.base import BaseWAL, Batch, Capabilities
from agent_saga.wal.compaction import Compacted, compact
from agent_saga.wal.directory import (
    WRITERS,
    cannot_begin,
    check_readable,
    make_log_directory,
    mark_poisoned,
)
from agent_saga.wal.lock import EVERY_EPOCH, GIVEN_BACK, WriterLock, add_fence
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import records, writers_of
from agent_saga.wal.segments import Segments, segment_size
from agent_saga.wal.writer import new_writer_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent_saga.wal.encoding import Fragment
    from agent_saga.wal.format import Record

__all__ = ["AsyncWAL", "FileWAL"]

_SEAL_ROOM: Final = 1024


def _checked(path: str | os.PathLike[str]) -> str:
    """Return a path that may be one of a log."""
    told = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(told, str) or not told or "\0" in told:
        raise ConfigurationError(
            f"FileWAL takes the path of the log's directory, not {shown(path)}.",
            fix="Give a text or a Path, such as FileWAL('agent-saga.wal').",
        )
    return told


class FileWAL(BaseWAL):
    """A write-ahead log in a directory.

    Args:
        path: the log's directory; it is made at the first record, relative to the directory that is
            current now.
        port: the system calls (tests inject faults here).
        force: accept a network file system, when only one host ever uses it.
        options: see `BaseWAL`.

    Raises:
        ConfigurationError: an argument can be none.

    Raises (at the first record):
        WALPathError: the path cannot hold a log; the message says what to do.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        port: OsPort | None = None,
        *,
        force: bool = False,
        **options: Any,
    ) -> None:
        self.path = os.path.abspath(_checked(path))
        self.address = f"file:{self.path}"
        if port is not None and not isinstance(port, OsPort):
            raise ConfigurationError(
                f"port= takes an OsPort, not {shown(port)}.",
                fix="Leave it out; only tests give one, to inject faults.",
            )
        self.port = OsPort() if port is None else port
        self.force = force
        self.capabilities = Capabilities(
            self.port.durability, True, True, False, self.port.can_share_locks
        )
        super().__init__(**options)

    def _reset(self) -> None:
        super()._reset()
        self._lock_file: WriterLock | None = None
        self._segments: Segments | None = None
        self._folder = ""
        self._segment = 0

    # --- what the log above asks for --------------------------------------------------------------

    def _open(self) -> Mapping[str, object]:
        make_log_directory(self.port, self.path, force=self.force)
        try:
            if self._lock_file is None:
                self._make_writer()
            self._segments = Segments(self.port, self._folder, self._io, self.stall_after)
            self._spares = self._segments.spares
        except OSError as error:
            raise cannot_begin(self.path, error) from error
        return self._facts()

    def _make_writer(self) -> None:
        """Make this process's folder and take its lock, before any record names it.

        What failed half-way is taken up again at the next record, so that a full disk does not
        fill with empty folders.
        """
        if not self._folder:
            self.writer = new_writer_id()
            folder = os.path.join(self.path, WRITERS, self.writer)
            self.port.mkdir(folder, 0o700)
            self.port.sync_directory(os.path.dirname(folder))
            self._folder = folder
        try:
            self._lock_file = WriterLock(self.port, self._folder)
        except (FileExistsError, WALPathError):
            self._folder = ""
            raise

    def _facts(self) -> dict[str, object]:
        inode = 0 if self._lock_file is None else self._lock_file.inode
        return {
            "pid": os.getpid(),
            "host": platform.node(),
            "boot": self.port.boot_id(),
            "lock": inode,
            "python": platform.python_version(),
            "durability": self.port.durability,
        }

    def _next_segment(self) -> int:
        self._segment += 1
        return segment_size(self._segment) - _SEAL_ROOM

    def _room_for_intent(self) -> None:
        segments = self._segments
        if segments is not None:
            segments.room_for_intent()

    def _write(self, batch: Batch) -> None:
        (self._segments or self._open_segments()).write(batch)

    def _sync(self, target: int) -> None:
        del target
        (self._segments or self._open_segments()).sync()

    def _open_segments(self) -> Segments:
        if self._segments is None:
            raise OSError("the log has no open segment")
        return self._segments

    def _close(self) -> None:
        segments, self._segments = self._segments, None
        if segments is not None:
            segments.close(
                self.stall_after, whole=self._cause is None and self.synced >= self.written
            )
        self._release_lock()

    def _release_lock(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _forget(self) -> None:
        if self._segments is not None:
            self._segments.forget()
        self._release_lock()

    def _poison(self, error: BaseException) -> None:
        super()._poison(error)
        if self._folder:
            mark_poisoned(self.port, self._folder, repr(error))

    # --- reading and fencing ----------------------------------------------------------------------

    def probe(self) -> None:
        """Raise if the log could not take a record now; creates nothing.

        Raises:
            WALPoisoned: it is poisoned or closed.
            WALPathError: something else stands at its path, or it cannot be read.
        """
        super().probe()
        check_readable(self.port, self.path)

    def read_all(self) -> Iterator[Record]:
        """Every record of every writer of the directory; see `BaseWAL.read_all`."""
        if self._live:
            self.drain()
        return records(self.path, self.port)

    def _compact(self, before: int) -> Compacted:
        self.probe()
        if self._live:
            self.drain()
        return compact(self.port, self.path, self._attest, before=before)

    def _attest(self, payloads: Iterable[Fragment]) -> None:
        for payload in payloads:
            self.append(Ev.COMPACTED, payload=payload)
        self.barrier_sync()

    def fence(self, saga: str, epoch: int = EVERY_EPOCH, *, writer: str = "") -> None:
        """Fence a saga in the writers that may still act on it.

        Args:
            saga: the saga's id, or "*" for everything that a writer does.
            epoch: the claimer's epoch; lower ones are fenced.
            writer: one writer's id; all writers of the log when "".

        Raises:
            WALError: a fence could not be written; the claimer must not act.
        """
        if not check_readable(self.port, self.path):
            raise WALPathError(f"There is no log at {self.path!r}.")
        for name in [writer] if writer else writers_of(self.path, self.port):
            add_fence(self.port, os.path.join(self.path, WRITERS, name), saga, epoch)

    def _fences_now(self) -> Mapping[str, int]:
        lock = self._lock_file
        if lock is not None:
            return lock.fences()
        return GIVEN_BACK if self._closed else self._fences


AsyncWAL = FileWAL

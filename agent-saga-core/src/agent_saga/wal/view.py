"""The files of a log as they stand, for as long as somebody reads them.

Rules of this part:

- Whoever reads, or takes a saga over, holds the shared lock of the log's directory; whoever puts a
  compaction in place holds the exclusive one, for moments. So a reader sees a saga whole or not at
  all, and a claim never meets a saga that is leaving.
- The locks are on directories that exist: reading makes nothing.
- A compaction that a crash left half in place is read through its plan.
- Waiting is bounded.
"""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Final, Self

from agent_saga.errors import WALPathError, WALStalled
from agent_saga.wal.descriptor import HeldDescriptor
from agent_saga.wal.directory import WRITERS
from agent_saga.wal.exchange import DRAFT, Plan, read_plan
from agent_saga.wal.lines import segments_in
from agent_saga.wal.os_port import OsPort

__all__ = ["DirectoryLock", "View"]

_LONGEST: Final = 30.0
_PAUSE: Final = 0.002


class DirectoryLock(HeldDescriptor):
    """A lock on a directory, for as long as this is open.

    Args:
        port: the system calls.
        path: the directory.
        shared: whether others may hold it too.
        longest: seconds to wait at most.

    Raises:
        WALStalled: others held it for longer.
        OSError: the directory cannot be opened or locked.
    """

    __slots__ = ()

    def __init__(self, port: OsPort, path: str, *, shared: bool, longest: float = _LONGEST) -> None:
        super().__init__(port, port.open(path, os.O_RDONLY))
        take = port.flock_shared if shared else port.flock
        deadline = time.monotonic() + longest
        try:
            while not take(self._fd):
                _check_time(path, deadline, longest)
                time.sleep(_PAUSE)
        except BaseException:
            self.close()
            raise


def _check_time(path: str, deadline: float, longest: float) -> None:
    if time.monotonic() >= deadline:
        raise WALStalled(
            f"The log {path!r} was locked by others for {longest:g} seconds.",
            fix="Try again; a reader or a compaction is at work.",
        )


class View:
    """A log's files, which no compaction exchanges while this is open.

    Args:
        port: the system calls.
        path: the log's directory; if there is none, nothing is locked.

    Raises:
        WALStalled: a compaction was being put in place for too long.
        WALPathError: the directory cannot be read.
        WALCorrupt: a compaction was being put in place, and its plan cannot be read.
    """

    __slots__ = ("_lock", "_path", "_plan", "_port")

    def __init__(self, port: OsPort, path: str) -> None:
        self._port = port
        self._path = path
        self._lock: DirectoryLock | None = None
        self._plan: Plan = {}
        if not port.can_share_locks:
            return
        try:
            self._lock = DirectoryLock(port, path, shared=True)
            self._plan = read_plan(port, path) or {}
        except (FileNotFoundError, NotADirectoryError):
            self.close()
        except OSError as error:
            self.close()
            raise WALPathError(f"The log's directory {path!r} cannot be read: {error}.") from error
        except BaseException:
            self.close()
            raise

    @property
    def is_half_in_place(self) -> bool:
        """Whether a compaction is only half in place."""
        return bool(self._plan)

    def leaves(self, writer: str) -> bool:
        """Whether a writer has left, and only its folder is still there."""
        exchange = self._plan.get(writer)
        return exchange is not None and exchange.leaves

    def segments(self, writer: str) -> list[str]:
        """The names of the files that are a writer's segments, in order.

        Raises:
            OSError: the writer's folder cannot be read.
        """
        if self.leaves(writer):
            return []
        folder = os.path.join(self._path, WRITERS, writer)
        names = segments_in(self._port, folder)
        exchange = self._plan.get(writer)
        if exchange is None:
            return names
        there = set(self._port.listdir(folder))
        fresh = {name for name in exchange.fresh if name + DRAFT in there}
        gone = set(exchange.gone) - set(exchange.fresh)
        known = sorted({*names, *fresh} - gone)
        return [name + DRAFT if name in fresh else name for name in known]

    def close(self) -> None:
        """Let compactions go on."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

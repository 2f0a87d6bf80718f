"""The claimer's side of a file log: whose writer is dead, and what it left is made durable.

Rules of this part:

- Only a lock that was acquired proves that its owner is dead; it is held for as long as the
  claimer acts on what that writer left. A lock file that is not the one which the writer made
  proves nothing while a process of the writer's number runs.
- A forked child keeps no descriptor of such a lock: its parent alone holds it.
- A killed owner's last records may be in the page cache only: a claimer syncs what it read before
  it lets anything rest on it.
- Nothing of another writer is edited.
- That a log has not changed is believed only when its last change is old enough to tell: a file
  system's times are coarse.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from msgspec import Struct

from agent_saga.domain.commands import quoted
from agent_saga.domain.effective import facts_of
from agent_saga.domain.records import Ev
from agent_saga.errors import WALError
from agent_saga.wal.departed import writers_that_left
from agent_saga.wal.descriptor import HeldDescriptor
from agent_saga.wal.directory import POISONED_FILE, WRITERS
from agent_saga.wal.format import Record
from agent_saga.wal.lines import segments_in
from agent_saga.wal.lock import LOCK_FILE
from agent_saga.wal.os_port import OsPort, close_quietly, reading
from agent_saga.wal.reader import scan_writer, writers_of

__all__ = [
    "DeadWriter",
    "LogState",
    "Writers",
    "dead_owner",
    "dead_writer",
    "dead_writers",
    "has_left",
    "is_recent",
    "log_state",
    "sync_writer",
    "told_apart",
]

_LOOKS: Final = 10
_LOOK_SECONDS: Final = 0.02
"""How often, and after how long, a lock is tried again that may be held by whoever only looks."""

LogState = tuple[tuple[str, int, int, int, int], ...]
"""What a writer's log looks like from outside: each segment's name, inode, size, last change of its
content and of anything about it; the last one is not for an editor to choose."""

_TICK_NS: Final = 50_000_000
_WHOLE_NS: Final = 1_000_000_000
"""A file system may give one time to all writes of a tick; a coarse one, of two seconds."""


class DeadWriter(HeldDescriptor):
    """A writer that is proved dead, for as long as this is open.

    Attributes:
        writer: its id.
    """

    __slots__ = ("writer",)

    def __init__(self, port: OsPort, writer: str, fd: int) -> None:
        super().__init__(port, fd)
        self.writer = writer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def dead_writer(path: str, writer: str, port: OsPort | None = None) -> DeadWriter | None:
    """Return the writer if it is dead, with its lock held; None while it lives.

    Args:
        path: the log's directory.
        writer: the writer's id.
        port: the system calls.

    Raises:
        WALError: its lock cannot be tried, so nothing is proved.
    """
    port = OsPort() if port is None else port
    place = os.path.join(path, WRITERS, writer, LOCK_FILE)
    if has_left(path, writer, port):
        return DeadWriter(port, writer, -1)
    try:
        fd = port.open(place, os.O_RDWR)
        try:
            taken = port.flock(fd)
            if taken:
                _check_file(port, path, writer, fd)
        except BaseException:
            close_quietly(port, fd)
            raise
    except OSError as error:
        raise _untold(path, writer, error) from error
    if taken:
        return DeadWriter(port, writer, fd)
    close_quietly(port, fd)
    return None


def _untold(path: str, writer: str, error: OSError) -> WALError:
    """Say that nobody can tell whether a writer lives, and what can be done.

    An empty file in the place of a lost lock proves nothing while the writer's process runs.
    """
    folder = os.path.join(path, WRITERS, writer)
    what = f"Whether the writer {writer} lives cannot be told: {error}."
    if isinstance(error, FileNotFoundError) and os.path.isdir(folder):
        pid, file = opening_of(path, writer).get("pid"), os.path.join(folder, LOCK_FILE)
        which = f"its process ({pid})" if type(pid) is int else "the process that wrote there"
        return WALError(what, fix=f"When {which} has ended, put a lock there: touch {quoted(file)}")
    fix = "Run as the user that owns the log, on the host where it was written."
    return WALError(what, fix=fix)


def dead_owner(path: str, writer: str, port: OsPort | None = None) -> DeadWriter | None:
    """Return a writer as `dead_writer` does, for whoever acts on the answer.

    Whoever only looks holds a dead writer's lock for a moment, and must not be taken for it.
    """
    for _ in range(_LOOKS):
        dead = dead_writer(path, writer, port)
        if dead is not None:
            return dead
        time.sleep(_LOOK_SECONDS)
    return dead_writer(path, writer, port)


def dead_writers(
    path: str, port: OsPort | None = None, *, known: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Return the writers of a log that are proved dead; who is dead stays dead.

    Args:
        path: the log's directory.
        port: the system calls.
        known: those that were proved dead before; they are not tried again.
    """
    port = OsPort() if port is None else port
    found = set()
    for writer in writers_of(path, port):
        if writer in known:
            found.add(writer)
            continue
        with contextlib.suppress(WALError):
            dead = dead_writer(path, writer, port)
            if dead is not None:
                dead.close()
                found.add(writer)
    return frozenset(found)


class Writers(Struct, frozen=True):
    """Which writers of a log live, as far as their locks tell.

    Attributes:
        alive, dead: the ids of those that hold their lock, and of those that are proved dead.
        untold: those of which nobody can tell, each with the reason and what can be done.
    """

    alive: frozenset[str]
    dead: frozenset[str]
    untold: Mapping[str, WALError]


def told_apart(path: str, port: OsPort | None = None) -> Writers:
    """Return which writers of a log live, for whoever only looks."""
    port = OsPort() if port is None else port
    alive: set[str] = set()
    dead: set[str] = set()
    untold: dict[str, WALError] = {}
    for writer in writers_of(path, port):
        try:
            held = dead_writer(path, writer, port)
        except WALError as error:
            untold[writer] = error
            continue
        (alive if held is None else dead).add(writer)
        if held is not None:
            held.close()
    return Writers(frozenset(alive), frozenset(dead), untold)


def has_left(path: str, writer: str, port: OsPort) -> bool:
    """Whether a writer left the log by compaction, which takes none out that may live.

    Raises:
        WALError: the log cannot be read.
    """
    try:
        port.stat(os.path.join(path, WRITERS, writer))
    except FileNotFoundError:
        return writer in writers_that_left(path, port)
    except OSError:
        return False
    return False


def _check_file(port: OsPort, path: str, writer: str, fd: int) -> None:
    """Refuse a lock file that the writer did not make, while its process may still live."""
    opened = _opening(port, path, writer)
    if opened.get("boot") != port.boot_id() or opened.get("lock") == port.fstat(fd).st_ino:
        return
    if _may_run(opened.get("pid")):
        raise OSError("its lock file was removed or replaced, and its process may live")


def _may_run(pid: object) -> bool:
    if type(pid) is not int or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def opening_of(path: str, writer: str) -> Mapping[str, Any]:
    """Return what a writer said of itself when it began; nothing if that cannot be read.

    Args:
        path: the log's directory.
        writer: the writer's id.
    """
    return _opening(OsPort(), path, writer)


def poisoned_reason(path: str, writer: str) -> str | None:
    """Return why a writer cannot write any more, as far as it could still say; None otherwise.

    Args:
        path: the log's directory.
        writer: the writer's id.
    """
    port = OsPort()
    try:
        with reading(port, os.path.join(path, WRITERS, writer, POISONED_FILE)) as fd:
            return port.pread(fd, 4096, 0).decode("utf-8", "replace")
    except OSError:
        return None


def _opening(port: OsPort, path: str, writer: str) -> Mapping[str, Any]:
    """Return what a writer said of itself in its first record; nothing if that cannot be read."""
    with contextlib.closing(scan_writer(path, writer, port)) as records:
        found = next(records, None)
    if isinstance(found, Record) and found.event == Ev.WRITER_OPEN:
        return facts_of(found)
    return {}


def log_state(path: str, writer: str, port: OsPort | None = None) -> LogState | None:
    """Return what a writer's log looks like; None while that could not tell of a change.

    Args:
        path: the log's directory.
        writer: the writer's id.
        port: the system calls.
    """
    port = OsPort() if port is None else port
    folder = os.path.join(path, WRITERS, writer)
    try:
        names = segments_in(port, folder)
        found = [(name, port.stat(os.path.join(folder, name))) for name in names]
    except OSError:
        return None
    if any(is_recent(seen.st_mtime_ns) for _, seen in found):
        return None
    return tuple(
        (name, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        for name, seen in found
    )


def is_recent(changed_ns: int) -> bool:
    """Say whether a change of this moment could have the same time."""
    tick = _TICK_NS if changed_ns % _WHOLE_NS else 2 * _WHOLE_NS
    return changed_ns > time.time_ns() - tick


def sync_writer(path: str, writer: str, port: OsPort | None = None) -> None:
    """Make everything durable that a writer has handed to the operating system.

    Raises:
        WALError: it could not be synced; nothing may rest on what was read.
    """
    port = OsPort() if port is None else port
    folder = os.path.join(path, WRITERS, writer)
    try:
        for segment in segments_in(port, folder):
            fd = port.open(os.path.join(folder, segment), os.O_RDWR)
            try:
                port.fdatasync(fd)
            finally:
                close_quietly(port, fd)
        port.sync_directory(folder)
    except OSError as error:
        raise WALError(f"What the writer {writer} left could not be synced: {error}.") from error

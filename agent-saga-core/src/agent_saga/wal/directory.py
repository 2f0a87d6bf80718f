"""The directory of a file log: what may stand at its path, and how it is made.

Rules of this part:

- The path is a directory that belongs to the log alone: it is made at the first record, readable
  by its owner only, and keeps itself out of version control. Reading makes nothing.
- A plain file, or a directory with other people's files, is refused with the rename to do, whether
  it is to be written or to be read; an empty directory is a log that has not begun.
- A file log is one host: a network file system is refused unless forced.
- Every directory that is made is made durable in its parent, the log's own parent included.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from agent_saga.domain.commands import quoted
from agent_saga.errors import WALFormatError, WALFull, WALPathError
from agent_saga.wal.os_port import NETWORK_FILE_SYSTEMS, reading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_saga.wal.os_port import OsPort

__all__ = [
    "LAYOUT",
    "POISONED_FILE",
    "WRITERS",
    "cannot_begin",
    "check_readable",
    "make_log_directory",
    "mark_poisoned",
    "short_write",
    "way_out",
    "write_all",
]

WRITERS: Final = "writers"
POISONED_FILE: Final = "poisoned"
"""In a writer's folder: it cannot write any more, and why, if it could still say so."""

LAYOUT: Final = 1
"""The version of how the directory is laid out; records carry a format version of their own."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})
_FORMAT_FILE: Final = "format"
_FORMAT_TEXT: Final = f"agent-saga log, layout {LAYOUT}\n".encode()
_IGNORE_FILE: Final = ".gitignore"
_OURS: Final = (_IGNORE_FILE, _FORMAT_FILE, WRITERS, "state.", "checkpoint", "compaction")


def make_log_directory(port: OsPort, path: str, *, force: bool) -> None:
    """Make the log's directory, or check the one that is there.

    Args:
        port: the system calls.
        path: an absolute path.
        force: accept a network file system.

    Raises:
        WALPathError: the path cannot hold a log; the message says what to do.
        WALFull: there is no room for it.
        WALFormatError: a newer version of agent-saga made the directory.
    """
    try:
        if not force:
            _check_local(port, path)
        made = _make_directories(port, path)
        _check_directory(port, path)
        _make_file(port, os.path.join(path, _IGNORE_FILE), b"*\n")
        _make_file(port, os.path.join(path, _FORMAT_FILE), _FORMAT_TEXT)
        made += _make_directories(port, os.path.join(path, WRITERS))
        for parent in dict.fromkeys([path, *(os.path.dirname(folder) for folder in made)]):
            port.sync_directory(parent)
    except OSError as error:
        raise cannot_begin(path, error) from error


def way_out(error: OSError, usual: str) -> str:
    """Return what to do about a refusal of the operating system; `usual` where it is no other."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Close files that are not needed, or let this process have more (ulimit -n)."
    return usual


def cannot_begin(path: str, error: OSError) -> WALFull | WALPathError:
    """What to say when the operating system does not let a log begin."""
    if error.errno in _NO_ROOM:
        return WALFull(
            f"There is no room for a log at {path!r} ({error}).",
            fix="Free space on its disk, or choose another directory (AGENT_SAGA_WAL, or wal=…).",
        )
    return WALPathError(
        f"The log's directory {path!r} cannot be used: {error}.",
        fix=way_out(
            error, "Choose a directory that this process may write to (AGENT_SAGA_WAL, or wal=…)."
        ),
    )


def check_readable(port: OsPort, path: str) -> bool:
    """Whether there is a log to read; False when nothing stands at the path, or an empty directory.

    Raises:
        WALPathError: something else stands there.
        WALFormatError: a newer version of agent-saga made it.
    """
    try:
        if not stat.S_ISDIR(port.stat(path).st_mode):
            raise _plain_file(path)
        return _check_format(port, path) or _holds_a_log(port, path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise WALPathError(f"The log's directory {path!r} cannot be read: {error}.") from error


def _plain_file(path: str) -> WALPathError:
    return WALPathError(
        f"The log's path {path!r} is a plain file; a log is a directory.",
        fix="Name another path for the log. If that file is an old log, and nobody else's: "
        f"mv {quoted(path)} {quoted(f'{path}.old')}",
    )


def _make_directories(port: OsPort, path: str) -> list[str]:
    """Make a directory and its missing parents; returns those that were made, outermost first."""
    try:
        if stat.S_ISDIR(port.stat(path).st_mode):
            return []
        raise _plain_file(path)
    except FileNotFoundError:
        made = _make_directories(port, os.path.dirname(path))
    try:
        port.mkdir(path, 0o700)
    except FileExistsError:
        return made
    return [*made, path]


def _check_local(port: OsPort, path: str) -> None:
    kind = port.file_system(path)
    if kind in NETWORK_FILE_SYSTEMS:
        raise WALPathError(
            f"The log's directory {path!r} is on a network file system ({kind}), where locks and "
            "syncs do not hold between hosts.",
            fix="Use a local disk, or pass force=True when only one host ever uses it.",
        )


def _check_directory(port: OsPort, path: str) -> None:
    if not _check_format(port, path):
        _check_own(path, port.listdir(path))


def _holds_a_log(port: OsPort, path: str) -> bool:
    """Say whether there is anything of ours in a directory that says no layout."""
    names = port.listdir(path)
    if WRITERS not in names:
        _check_own(path, names)
    return bool(names)


def _check_own(path: str, names: Iterable[str]) -> None:
    foreign = [name for name in names if not name.startswith(_OURS)]
    if foreign:
        raise WALPathError(
            f"The directory {path!r} holds other files ({foreign[0]!r}), so it is no log.",
            fix="Name the log's own directory (--wal-path, AGENT_SAGA_WAL, or wal=…).",
        )


def _check_format(port: OsPort, path: str) -> bool:
    """Say whether a directory tells its layout, and refuse one that is too new."""
    try:
        text = _read_file(port, os.path.join(path, _FORMAT_FILE))
    except FileNotFoundError:
        return False
    if text not in (_FORMAT_TEXT, b""):
        raise WALFormatError(
            f"The log {path!r} says {text[:80]!r}; this version reads layout {LAYOUT}.",
            fix="Use the version of agent-saga-core that wrote it, or a newer one.",
        )
    return True


def _read_file(port: OsPort, path: str) -> bytes:
    with reading(port, path) as fd:
        return port.pread(fd, 4096, 0)


def _make_file(port: OsPort, path: str, content: bytes) -> None:
    """Write a small file in one step, unless it is there."""
    try:
        port.stat(path)
    except FileNotFoundError:
        pass
    else:
        return
    draft = f"{path}.{os.urandom(8).hex()}"
    fd = port.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(port, fd, content, 0)
        port.fsync(fd)
    finally:
        port.close(fd)
    port.replace(draft, path)


def mark_poisoned(port: OsPort, folder: str, reason: str) -> None:
    """Leave word in a writer's folder that its log cannot be written; the disk may refuse it."""
    with contextlib.suppress(OSError):
        fd = port.open(os.path.join(folder, POISONED_FILE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            port.pwrite(fd, reason.encode("utf-8", "replace")[:4096], 0)
        finally:
            port.close(fd)


def write_all(port: OsPort, fd: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`.

    Raises:
        OSError: the write failed, or came up short.
    """
    count = port.pwrite(fd, data, offset)
    if count != len(data):
        raise short_write(count, data)


def short_write(count: int, data: bytes) -> OSError:
    """The error of a write that took only `count` bytes."""
    return OSError(f"a write of {len(data)} bytes came up short at {count}")

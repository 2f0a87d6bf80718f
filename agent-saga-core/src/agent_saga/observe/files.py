"""Opening files by name in folders where anything may stand under that name.

A pipe, a device or a socket in the place of a file would hang whoever opens it, or never end; so
opening never waits, and what is neither a file nor a directory is refused. A directory is opened
as one; to read it as a file is an error of the operating system.

Names survive a power loss once their folder was synced.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

__all__ = ["open_by_name", "read_by_name", "sync_folder"]

_ALWAYS: Final = (
    getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)


def open_by_name(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a file or directory and return its descriptor, which no started program inherits.

    Args:
        path: which.
        flags: as for `os.open`.
        mode: of a file that is made.

    Raises:
        OSError: it cannot be opened, or is neither a file nor a directory.
    """
    descriptor = os.open(path, flags | _ALWAYS, mode)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))


def read_by_name(path: str | os.PathLike[str]) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    with os.fdopen(open_by_name(path, os.O_RDONLY), "rb") as file:
        return file.read()


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a folder survive a power loss; Windows does so by itself.

    Raises:
        OSError: it is no folder, or cannot be synced.
    """
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""What SQLite's errors mean to whoever uses a state store.

Rules of this part:

- Busy is not an error but a wait, and every wait has a bound. The pauses between two tries are
  short, random and do not grow: growing pauses starve whoever has waited longest.
- Every other error names the file and what a person should do about it.
- A failed write or sync makes the file suspect: the kernel may have dropped what it could not
  write, so nothing later in the write-ahead file may rest on it.
"""

from __future__ import annotations

import random
import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_saga.errors import StateError, StateUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Blocked", "Damaged", "busy", "explain", "makes_suspect", "until_free"]

T = TypeVar("T")

PAUSE: Final = (0.0002, 0.0015)
"""Bounds in seconds of the random pause between two tries."""

_PRIMARY: Final = 0xFF

_MOVE_AWAY: Final = (
    "Stop every process that uses this log, then move the file away together with its -wal and "
    "-shm files, and keep them; a new one is made at the next write. The log still holds the truth."
)

_MEANINGS: Final = {
    sqlite3.SQLITE_CORRUPT: ("is damaged", _MOVE_AWAY),
    sqlite3.SQLITE_NOTADB: ("is damaged, or is no state store", _MOVE_AWAY),
    sqlite3.SQLITE_FULL: ("has no room on its disk", "Free some space."),
    sqlite3.SQLITE_READONLY: ("cannot be written", "Give this user the right to write it."),
    sqlite3.SQLITE_PERM: ("cannot be opened", "Give this user the right to read and write it."),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        "Check that it is a file in a folder that this user may read and write.",
    ),
    sqlite3.SQLITE_IOERR: ("could not be read or written", "Check the disk and its free space."),
}


class Blocked(sqlite3.OperationalError):
    """A checkpoint that waits for other connections, told the way SQLite tells of busy."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY


class Damaged(sqlite3.DatabaseError):
    """A file that holds what nobody writes there, told the way SQLite tells of damage."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def busy(error: BaseException) -> bool:
    """Say whether another connection holds what was asked for."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def makes_suspect(error: sqlite3.Error) -> bool:
    """Say whether a write or sync may have failed half-way."""
    return _code(error) in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}


def explain(error: sqlite3.Error, path: Path) -> StateError:
    """Return our error for one of SQLite's."""
    if busy(error):
        return StateUnavailable(f"{path} is locked by another process; nothing was changed.")
    what, fix = _MEANINGS.get(_code(error), ("cannot be used", "Check the file and its folder."))
    return StateError(f"The state store {path} {what}: {error}.", fix=fix)


def until_free(action: Callable[..., T], *args: Any, deadline: float, path: Path) -> T:
    """Try an action until no other connection is in its way.

    Args:
        action: what to try; it changed nothing when SQLite says that it is busy.
        args: what to call it with.
        deadline: the end of waiting, on the monotonic clock; there is always one try.
        path: the file, for the message.

    Raises:
        StateUnavailable: still busy at the deadline.
    """
    while True:
        try:
            return action(*args)
        except sqlite3.OperationalError as error:
            if not busy(error):
                raise
            if time.monotonic() >= deadline:
                raise explain(error, path) from error
        time.sleep(random.uniform(*PAUSE))  # noqa: S311 - a pause, not a secret


def _code(error: BaseException) -> int:
    """Return SQLite's primary code; 0 when the error carries none."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & _PRIMARY

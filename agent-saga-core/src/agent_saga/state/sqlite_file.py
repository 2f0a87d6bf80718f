"""One SQLite file and the one connection to it, as its private thread uses them.

Rules of this part:

- Every write begins with BEGIN IMMEDIATE, so that a decision never rests on documents that another
  process changes before the commit.
- FULL is set for durable transactions, NORMAL for the others. After a failed write or sync nothing
  is trusted until everything in the write-ahead file was moved into the database and synced.
- The file is made at the first write, readable by its owner only; reading makes nothing. A file
  that was removed or replaced is refused, since others would be using another one.
- A damaged or foreign file is refused, never repaired or emptied here: a person decides.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from typing import TYPE_CHECKING, Final, TypeVar

from agent_saga.errors import StateError, StateUnavailable
from agent_saga.observe.files import sync_folder
from agent_saga.state import sqlite_schema as schema
from agent_saga.state.sqlite_errors import (
    Blocked,
    Damaged,
    busy,
    explain,
    makes_suspect,
    until_free,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["SQLiteFile"]

T = TypeVar("T")

_FAILED: Final = (sqlite3.Error, UnicodeDecodeError, OSError)
_inherited: list[sqlite3.Connection] = []


class SQLiteFile:
    """The file of a store; used by one thread only.

    Args:
        path: the absolute path of the file; its folder is made when the file is.
        connect: opens a connection; a test gives one that fails on purpose.

    Attributes:
        place: the path as text.
    """

    def __init__(
        self, path: Path, connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    ) -> None:
        self.path = path
        self.place = str(path)
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._synchronous = ""
        self._writable = False
        self._suspect = False
        self._unsynced: list[Path] = []

    def exists(self) -> bool:
        """Say whether there is a file to use, or one that should be there."""
        return self._identity is not None or os.path.lexists(self.place)

    def read(self, action: Callable[[sqlite3.Connection], T], default: T, *, deadline: float) -> T:
        """Return what an action finds in the committed documents; `default` if there is no file.

        Args:
            action: reads with the connection that it is given.
            default: the answer of a store that nobody has written.
            deadline: the end of waiting, on the monotonic clock.

        Raises:
            StateUnavailable: another process kept the file locked until the deadline.
            StateError: the file is unreadable, damaged, foreign, newer, removed or replaced.
        """
        if not self.exists():
            return default
        try:
            connection = self._open(deadline)
            self._check_identity()

            def look() -> T:
                return action(connection) if schema.has_schema(connection) else default

            return until_free(look, deadline=deadline, path=self.path)
        except _FAILED as error:
            raise self._translated(error) from error
        except StateError as error:
            self._drop_unless_free_later(error)
            raise

    def write(
        self, action: Callable[[sqlite3.Connection], None], *, durable: bool, deadline: float
    ) -> None:
        """Carry out an action inside BEGIN IMMEDIATE; commit when it ends well.

        Args:
            action: reads and writes with the connection that it is given.
            durable: whether the commit waits for the disk.
            deadline: the end of waiting, on the monotonic clock.

        Raises:
            StateUnavailable: another process kept the file locked until the deadline.
            StateError: the file cannot be written, is damaged, foreign, newer, removed or replaced.
        """
        try:
            connection = self._connection
            if connection is None or not self._writable:
                connection = self._open_for_writing(deadline)
            level = "FULL" if durable else "NORMAL"
            if level != self._synchronous:
                connection.execute(f"PRAGMA synchronous = {level}")
                self._synchronous = level
            begin = "BEGIN IMMEDIATE"
            until_free(connection.execute, begin, deadline=deadline, path=self.path)
            try:
                self._check_identity()
                action(connection)
                connection.execute("COMMIT")
            except BaseException:
                schema.roll_back(connection)
                raise
        except _FAILED as error:
            raise self._translated(error) from error
        except StateError as error:
            self._drop_unless_free_later(error)
            raise

    def release(self) -> None:
        """Close the connection; the next use opens another one."""
        connection = self._forget()
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def abandon(self) -> None:
        """Drop the parent's connection in a forked child, without closing it."""
        connection = self._forget()
        if connection is not None:
            # Closing it here would work on the parent's file with locks that this process lacks.
            _inherited.append(connection)

    def _forget(self) -> sqlite3.Connection | None:
        connection, self._connection = self._connection, None
        self._synchronous = ""
        self._writable = False
        return connection

    def _open(self, deadline: float) -> sqlite3.Connection:
        """Return the connection; open it if there is none. The file must exist."""
        if self._connection is None:
            if self._identity is not None:
                self._check_identity()
            self._check_kind()
            address = f"{self.path.as_uri()}?mode=rw"
            connection = self._connect(address, uri=True, isolation_level=None, timeout=0)
            try:
                self._prepare(connection, deadline)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _check_kind(self) -> None:
        """Refuse what is no file in its place, and in that of the files beside it.

        Raises:
            StateError: a directory, a pipe or a device has its name.
        """
        for place in (self.place, f"{self.place}-wal", f"{self.place}-shm"):
            if not _may_be_regular(place):
                raise StateError(
                    f"{place} is no regular file; it cannot be the state store.",
                    fix="Move it away; look who put it there.",
                )

    def _prepare(self, connection: sqlite3.Connection, deadline: float) -> None:
        def prepare() -> None:
            schema.check_header(connection, self.path)
            if self._suspect:
                _checkpoint(connection)

        until_free(prepare, deadline=deadline, path=self.path)
        self._suspect = False

    def _open_for_writing(self, deadline: float) -> sqlite3.Connection:
        """Open the file, make what is missing of it, and return the connection."""
        if not self.exists():
            self._unsynced += _make_folder(self.path.parent)
            _make_file(self.path)
        connection = self._open(deadline)

        def fill() -> None:
            schema.use_write_ahead_file(connection, self.path)
            schema.make_schema(connection)
            schema.fill_write_ahead_file(connection, self.path)

        until_free(fill, deadline=deadline, path=self.path)
        while self._unsynced:
            sync_folder(self._unsynced[-1])
            self._unsynced.pop()
        self._writable = True
        return connection

    def _check_identity(self) -> None:
        """Refuse a file that is not the one this store used first.

        Raises:
            StateError: the file was removed or replaced.
        """
        try:
            status = os.stat(self.place)  # noqa: PTH116 - half of what a Path costs
            found = (status.st_dev, status.st_ino)
        except FileNotFoundError:
            found = None
        if self._identity is None:
            self._identity = found
        if found is None or found != self._identity:
            raise StateError(
                f"{self.path} was removed or replaced while it was in use; claims and allowances "
                "that it held may be lost.",
                fix="Stop every process that uses this log, then start them again.",
            )

    def _translated(self, error: sqlite3.Error | UnicodeDecodeError | OSError) -> StateError:
        """Return our error for one of SQLite or the system; drop a connection that failed."""
        if isinstance(error, UnicodeDecodeError):  # SQLite quotes what it cannot read in a schema
            error = Damaged("its schema is no text")
        if isinstance(error, sqlite3.Error):
            self._suspect = self._suspect or makes_suspect(error)
            if not busy(error):
                self.release()
            return explain(error, self.path)
        self.release()
        return StateError(
            f"The state store {self.path} cannot be used: {error.strerror or error}.",
            fix="Check that the log's folder can be made and written by this user.",
        )

    def _drop_unless_free_later(self, error: StateError) -> None:
        if not isinstance(error, StateUnavailable):
            self.release()


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Move everything that was committed into the database and sync it."""
    (blocked, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if blocked:
        raise Blocked("a checkpoint waits for other processes")


def _make_file(path: Path) -> None:
    """Make an empty file that only its owner may use, without opening it.

    Closing it again would drop the locks of another connection in this process.
    """
    try:
        os.mknod(path, 0o600 | stat.S_IFREG)
    except FileExistsError:
        return
    except (AttributeError, PermissionError):
        # Some systems make files by opening them only; SQLite then does so, and is not sharing yet.
        sqlite3.connect(path).close()
        path.chmod(0o600)


def _may_be_regular(place: str) -> bool:
    """Say whether a file, or nothing, has a name; one look, since others may remove it any time."""
    try:
        status = os.lstat(place)
    except FileNotFoundError:
        return True
    if stat.S_ISLNK(status.st_mode):
        status = os.stat(place)  # noqa: PTH116 - half of what a Path costs
    return stat.S_ISREG(status.st_mode)


def _make_folder(folder: Path) -> list[Path]:
    """Make the log's folder as the log would: for its owner only, and ignored by git.

    Returns the folders in which a name is new, or will be.
    """
    if folder.is_dir():
        return [folder]
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), (folder / ".gitignore").open("x") as ignore:
        ignore.write("*\n")
    return [folder, *(place.parent for place in missing)]

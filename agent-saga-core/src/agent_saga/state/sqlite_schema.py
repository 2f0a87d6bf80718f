"""The tables of a SQLite state store, and how its file is told from any other.

Rules of this part:

- The file carries an application id and a schema version. Another program's database and a newer
  schema are refused, never changed.
- What tells a file apart is read in one transaction, since another process may be filling it.
- Keys are compared as text in code point order, so that the keys of one prefix lie together.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING, Final

from agent_saga.errors import StateError
from agent_saga.observe.files import open_by_name
from agent_saga.state.sqlite_errors import Damaged

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "WRITE_AHEAD_BYTES",
    "check_header",
    "fetch",
    "fill_write_ahead_file",
    "has_schema",
    "make_schema",
    "roll_back",
    "scan",
    "store",
    "use_write_ahead_file",
]

APPLICATION_ID: Final = 0x53414741
SCHEMA_VERSION: Final = 1

PAGE_BYTES: Final = 1024
"""The pages of a new file. A commit writes the whole page of each document that it changes, and
most documents are short; a file that was made with others keeps them."""

CHECKPOINT_BYTES: Final = 1 << 20
"""Pages in the write-ahead file, in bytes, after which they are moved into the database."""

WRITE_AHEAD_BYTES: Final = 5 * CHECKPOINT_BYTES // 4
"""The usual size of the write-ahead file: those pages with their headers, and some room."""

_SCHEMA: Final = (
    "CREATE TABLE documents (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def check_header(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not a state store of a schema that this version knows.

    Raises:
        StateError: the file belongs to another program, or to a newer version.
    """
    app, version, tables = _header(connection)
    if app != APPLICATION_ID and (app or tables):
        raise StateError(
            f"{path} is a database of another program, not a state store.",
            fix="Give the log a folder of its own, or move that file out of it.",
        )
    if version > SCHEMA_VERSION:
        raise StateError(
            f"{path} has schema version {version}; this version knows {SCHEMA_VERSION}.",
            fix="Use a version of agent-saga-core at least as new as the one that wrote it.",
        )


def _header(connection: sqlite3.Connection) -> tuple[int, int, int]:
    connection.execute("BEGIN DEFERRED")
    try:
        (app,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        roll_back(connection)
    return app, version, tables


def has_schema(connection: sqlite3.Connection) -> bool:
    """Say whether the file has been filled; an empty one is being made by somebody."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(version)


def use_write_ahead_file(connection: sqlite3.Connection, path: Path) -> None:
    """Have the file keep a write-ahead file beside it, so that readers never wait for writers.

    Raises:
        StateError: the file system cannot carry one.
    """
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a file that is still empty
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StateError(
            f"{path} lies on a file system where processes cannot share memory.",
            fix="Put the log on a local disk.",
        )
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_BYTES // size}")


def make_schema(connection: sqlite3.Connection) -> None:
    """Make the tables unless they are there; atomic and durable."""
    if has_schema(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not has_schema(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def fill_write_ahead_file(connection: sqlite3.Connection, path: Path) -> None:
    """Give the write-ahead file its usual size in zeros; what lies behind its end is ignored.

    A sync of a file that grows, or whose space was only promised, costs twice one of a file that is
    written over. The lock of a writer keeps every other process from adding to the file meanwhile.
    A disk that refuses costs speed and nothing else.
    """
    write_ahead = path.with_name(f"{path.name}-wal")
    connection.execute("BEGIN IMMEDIATE")
    try:
        with contextlib.suppress(OSError):
            descriptor = open_by_name(write_ahead, os.O_RDWR)
            try:
                end = os.lseek(descriptor, 0, os.SEEK_END)
                os.write(descriptor, bytes(max(0, WRITE_AHEAD_BYTES - end)))
            finally:
                os.close(descriptor)
    finally:
        roll_back(connection)


def roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction without a change; what SQLite has ended itself hides no other error."""
    with contextlib.suppress(sqlite3.Error):
        connection.execute("ROLLBACK")


def fetch(connection: sqlite3.Connection, key: str) -> bytes | None:
    """Return the stored form of one document, or None."""
    row = connection.execute("SELECT body FROM documents WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    body = row[0]
    return body if type(body) is bytes else _odd_body(body)


def scan(connection: sqlite3.Connection, prefix: str) -> list[tuple[str, bytes]]:
    """Return the keys that begin with a prefix and their stored forms, by key."""
    found = []
    rows = connection.execute(
        "SELECT key, body FROM documents WHERE key >= ? ORDER BY key", (prefix,)
    )
    for key, body in rows:
        if not isinstance(key, str):
            raise Damaged("it holds a key that is no text")
        if not key.startswith(prefix):
            break
        found.append((key, body if type(body) is bytes else _odd_body(body)))
    rows.close()
    return found


def _odd_body(body: object) -> bytes:
    """Return the stored form of a column that a damaged file, or another program, has filled.

    Raises:
        Damaged: it is no text either.
    """
    if not isinstance(body, str):
        raise Damaged("it holds a document that is none")
    return body.encode()


def store(connection: sqlite3.Connection, key: str, body: bytes | None) -> None:
    """Store one document, or remove it when `body` is None."""
    if body is None:
        connection.execute("DELETE FROM documents WHERE key = ?", (key,))
    else:
        connection.execute(
            "INSERT INTO documents (key, body) VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET body = excluded.body",
            (key, body),
        )

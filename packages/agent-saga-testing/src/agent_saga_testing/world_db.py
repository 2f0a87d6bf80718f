"""The database behind a world: what was asked of it, and what took hold.

Rules of this part:

- One row for each call that reached the world, whatever became of it; an outcome is decided and
  stored in one transaction, so that several processes see one world.
- A call that takes hold gets the next moment: a request that arrives late takes hold later than its
  number says.
- Every use opens a connection of its own and closes it: a killed process leaves nothing half done.
  Only a process that nobody kills may keep one open; it then takes requests one at a time.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final

__all__ = [
    "Kind",
    "Outcome",
    "create",
    "effect",
    "forget",
    "keep_open",
    "open_world",
    "record",
    "settle",
    "take_fault",
]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, key TEXT, target INTEGER,
    data TEXT NOT NULL, outcome TEXT NOT NULL, moment INTEGER);
CREATE TABLE IF NOT EXISTS faults (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, what TEXT NOT NULL, error TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS spent (key TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""


class Kind(Enum):
    """What a call is for."""

    FORWARD = "forward"
    INVERSE = "inverse"


class Outcome(Enum):
    """What became of a call."""

    APPLIED = "applied"
    REPEATED = "repeated"
    REFUSED = "refused"
    FAILED = "failed"
    HELD = "held"
    NOTHING = "nothing"


def create(path: Path) -> None:
    """Make the tables, if they are not there."""
    with open_world(path) as db:
        for statement in _SCHEMA.split(";"):
            db.execute(statement)


_kept: dict[Path, sqlite3.Connection] = {}


def keep_open(path: Path) -> None:
    """Keep the connection to a world open until `forget`, in this process."""
    if path not in _kept:
        _kept[path] = _connected(path)


def forget(path: Path) -> None:
    """Close a connection that was kept open."""
    if path in _kept:
        _kept.pop(path).close()


def _connected(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
    db.execute("PRAGMA synchronous = OFF")
    return db


@contextlib.contextmanager
def open_world(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection inside a transaction, which is committed when the block ends well."""
    kept = _kept.get(path)
    opened = contextlib.closing(_connected(path)) if kept is None else contextlib.nullcontext(kept)
    with opened as db:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


def record(
    db: sqlite3.Connection,
    kind: Kind,
    name: str,
    key: str | None,
    target: int | None,
    data: dict[str, Any],
) -> int:
    """Store a call that reached the world; return its number. `settle` says what became of it."""
    call = db.execute(
        "INSERT INTO calls (kind, name, key, target, data, outcome) VALUES (?, ?, ?, ?, ?, 'held')",
        (kind.value, name, key, target, json.dumps(data)),
    ).lastrowid
    return call or 0


def settle(db: sqlite3.Connection, call: int, outcome: Outcome) -> None:
    """Store what became of a call; one that takes hold does so now."""
    db.execute(
        "UPDATE calls SET outcome = :outcome, moment = CASE :outcome WHEN 'applied'"
        " THEN (SELECT coalesce(max(moment), 0) + 1 FROM calls) END WHERE id = :call",
        {"outcome": outcome.value, "call": call},
    )


def take_fault(db: sqlite3.Connection, kind: Kind) -> tuple[str, str]:
    """Use up the oldest fault that waits for a call of this kind: what, and the error's name."""
    row = db.execute(
        "SELECT id, what, error FROM faults WHERE kind = ? ORDER BY id LIMIT 1", (kind.value,)
    ).fetchone()
    if row is None:
        return "", ""
    db.execute("DELETE FROM faults WHERE id = ?", (row[0],))
    return row[1], row[2]


def effect(db: sqlite3.Connection, where: str, *values: object) -> dict[str, Any] | None:
    """Return the applied forward call that a condition picks, as its caller saw it."""
    select = "SELECT id, name, data FROM calls WHERE kind = 'forward' AND outcome = 'applied' AND "
    row = db.execute(f"{select} {where} ORDER BY id LIMIT 1", values).fetchone()
    return None if row is None else {**json.loads(row[2]), "id": row[0], "name": row[1]}

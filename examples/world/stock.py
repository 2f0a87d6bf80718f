"""A warehouse's stock in SQLite: reserving takes from the shelf, releasing puts back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .database import database
from .faults import Faults

_TABLES = """
CREATE TABLE shelf (item TEXT PRIMARY KEY, free INTEGER NOT NULL CHECK (free >= 0));
CREATE TABLE reserved (
    id INTEGER PRIMARY KEY, item TEXT NOT NULL, pieces INTEGER NOT NULL, key TEXT UNIQUE
);
"""


class Stock:
    """Reserves pieces of an item under a key.

    Args:
        path: the database file; it is created.
        faults: the connections that get lost.
        shelf: how many pieces of each item there are.
    """

    def __init__(self, path: Path, faults: Faults, shelf: dict[str, int]) -> None:
        self._path, self._faults = path, faults
        with database(path) as db:
            db.executescript(_TABLES)
            db.executemany("INSERT INTO shelf VALUES (?, ?)", shelf.items())

    def reserve(self, item: str, pieces: int, key: str) -> dict[str, Any]:
        """Take pieces from the shelf and return the reservation.

        Raises:
            LookupError: there are not so many; nothing was reserved.
        """
        with self._faults.around("reserve"), database(self._path) as db:
            taken = db.execute(
                "UPDATE shelf SET free = free - ? WHERE item = ? AND free >= ?",
                (pieces, item, pieces),
            )
            if not taken.rowcount:
                raise LookupError(f"there are no {pieces} pieces of {item}")
            made = db.execute(
                "INSERT INTO reserved (item, pieces, key) VALUES (?, ?, ?)", (item, pieces, key)
            )
        return {"id": made.lastrowid, "item": item, "pieces": pieces}

    def release(self, number: int) -> None:
        """Put a reservation back on the shelf; a second time changes nothing."""
        with self._faults.around("release"), database(self._path) as db:
            row = db.execute("DELETE FROM reserved WHERE id = ? RETURNING item, pieces", (number,))
            for item, pieces in row.fetchall():
                db.execute("UPDATE shelf SET free = free + ? WHERE item = ?", (pieces, item))

    def find(self, key: str) -> dict[str, Any] | None:
        """Return the reservation that a key made, or None."""
        with database(self._path) as db:
            row = db.execute("SELECT id, item, pieces FROM reserved WHERE key = ?", (key,))
            found = row.fetchone()
        return None if found is None else dict(zip(("id", "item", "pieces"), found, strict=True))

    def state(self) -> dict[str, str]:
        """Return what is on the shelf."""
        with database(self._path) as db:
            rows = db.execute("SELECT item, free FROM shelf ORDER BY item").fetchall()
        return {f"stock: {item} on the shelf": str(free) for item, free in rows}

"""A ledger in SQLite: lines are added and never removed; a refund is a line of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .database import database
from .faults import Faults

_TABLE = """
CREATE TABLE lines (
    id INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL,
    kind TEXT NOT NULL, key TEXT UNIQUE
)
"""


class Ledger:
    """Charges customers and refunds them; a key that was used before adds nothing.

    Args:
        path: the database file; it is created.
        faults: the connections that get lost.
    """

    def __init__(self, path: Path, faults: Faults) -> None:
        self._path, self._faults = path, faults
        with database(path) as db:
            db.execute(_TABLE)

    def charge(self, customer: str, cents: int, key: str) -> dict[str, Any]:
        """Charge a customer and return the line: id, customer and cents."""
        with self._faults.around("charge"):
            return self._add(customer, cents, "charge", key)

    def refund(self, charge: dict[str, Any], key: str) -> None:
        """Give a charge back."""
        with self._faults.around("refund"):
            self._add(charge["customer"], -charge["cents"], "refund", key)

    def find(self, key: str) -> dict[str, Any] | None:
        """Return the line that a key made, or None."""
        with database(self._path) as db:
            row = db.execute("SELECT id, customer, cents FROM lines WHERE key = ?", (key,))
            found = row.fetchone()
        return None if found is None else dict(zip(("id", "customer", "cents"), found, strict=True))

    def _add(self, customer: str, cents: int, kind: str, key: str) -> dict[str, Any]:
        with database(self._path) as db:
            line = (customer, cents, kind, key)
            db.execute(
                "INSERT OR IGNORE INTO lines (customer, cents, kind, key) VALUES (?, ?, ?, ?)", line
            )
        found = self.find(key)
        if found is None:
            raise LookupError(f"the line {key} was not kept")
        return found

    def state(self) -> dict[str, str]:
        """Return every customer's balance."""
        with database(self._path) as db:
            rows = db.execute("SELECT customer, sum(cents) FROM lines GROUP BY customer").fetchall()
        return {f"ledger: {who} has paid": f"{cents / 100:.2f}" for who, cents in rows}

    def traces(self) -> dict[str, int]:
        """Return how many lines of each kind there are."""
        with database(self._path) as db:
            rows = db.execute("SELECT kind, count(*) FROM lines GROUP BY kind").fetchall()
        return {f"{kind} line": count for kind, count in rows}

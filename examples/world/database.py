"""One SQLite file, opened anew for every operation, so that any thread may act on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for one transaction; it is committed at the end, or undone by an error."""
    db = sqlite3.connect(path)
    try:
        with db:
            yield db
    finally:
        db.close()

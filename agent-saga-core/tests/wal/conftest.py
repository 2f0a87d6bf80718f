"""What the tests of the log share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_saga.errors import WALError
from agent_saga.wal.file import FileWAL
from agent_saga.wal.format import Record
from agent_saga.wal.reader import Damage, scan

Opener = Callable[..., FileWAL]


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Opener]:
    """Open file logs, by default all on one path; they are closed when the test ends."""
    logs: list[FileWAL] = []

    def opener(path: Path | None = None, **options: Any) -> FileWAL:
        options.setdefault("mark_after", 3600.0)  # so that no test depends on a moment of quiet
        log = FileWAL(tmp_path / "log" if path is None else path, **options)
        logs.append(log)
        return log

    yield opener
    for log in logs:
        with contextlib.suppress(WALError):
            log.close(1.0)


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., tuple[list[Record], list[Damage]]]:
    """Read a log with its chain checked: the records, and what is damaged."""

    def looker(path: Path | None = None) -> tuple[list[Record], list[Damage]]:
        found = list(scan(tmp_path / "log" if path is None else path, verify=True))
        records = [one for one in found if isinstance(one, Record)]
        return records, [one for one in found if isinstance(one, Damage)]

    return looker

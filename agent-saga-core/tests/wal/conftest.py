"""What the tests of the log share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_saga.errors import WALError
from agent_saga.wal.damage import Damage
from agent_saga.wal.file import FileWAL
from agent_saga.wal.format import Record, line_of
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import scan_log, scan_writer, writers_of
from agent_saga.wal.scan import take_writer
from agent_saga.wal.view import View

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


def assert_read_alike(path: Path) -> None:
    """Compare the fast way of reading each writer with the slow one."""
    for verify in (False, True):
        for writer in writers_of(str(path)):
            slow = list(scan_writer(str(path), writer, OsPort(), verify=verify))
            taken: list[tuple[bytes, ...]] = []

            def take(*record: bytes, taken: list[tuple[bytes, ...]] = taken) -> None:
                taken.append(record)

            with View(OsPort(), str(path)) as view:
                damages = take_writer(view, str(path), writer, OsPort(), take, verify=verify)
            assert [line for line, *_ in taken] == [
                line_of(one) for one in slow if isinstance(one, Record)
            ]
            assert damages == [one for one in slow if isinstance(one, Damage)]


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., tuple[list[Record], list[Damage]]]:
    """Read a log with its chain checked: the records, and what is damaged.

    It is read in every way that there is, and all must agree.
    """

    def looker(path: Path | None = None) -> tuple[list[Record], list[Damage]]:
        path = tmp_path / "log" if path is None else path
        assert_read_alike(path)
        found = list(scan_log(path, verify=True))
        records = [one for one in found if isinstance(one, Record)]
        return records, [one for one in found if isinstance(one, Damage)]

    return looker

"""Small segments, and writers that end with their test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compaction.logs import Writer

from agent_saga.wal import segments
from agent_saga.wal.os_port import OsPort


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "FIRST_SIZE", 4096)
    monkeypatch.setattr(segments, "LAST_SIZE", 4096)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def writer(path: Path) -> Iterator[Callable[..., Writer]]:
    """Make writers on one log; they are closed when the test ends."""
    writers: list[Writer] = []

    def make(port: OsPort | None = None) -> Writer:
        writers.append(Writer(path, port))
        return writers[-1]

    yield make
    for one in writers:
        with contextlib.suppress(BaseException):
            one.wal.close(1.0)

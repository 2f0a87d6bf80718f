"""Reading a log for what is not settled: streaming, with memory for open sagas only.

Rules of this part:

- The first pass keeps the ids of sagas that have no clean end, and of those that go on after one.
  The second pass collects the records of these sagas, from every writer.
- A saga whose writer's log is damaged behind its beginning may have lost records: it is a human's
  case, and never undone by itself. A torn tail is none: what it held was never confirmed to
  anybody.
- Reading never stops at one bad saga.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from agent_saga.domain.effective import Effective, effective
from agent_saga.domain.fold import resolve
from agent_saga.domain.records import Ev
from agent_saga.domain.views import SagaView
from agent_saga.errors import AgentSagaError
from agent_saga.wal.format import Record
from agent_saga.wal.reader import Damage, scan

_WELL = {Ev.SAGA_ROLLED_BACK, Ev.SAGA_CLOSED}
_NO_UNSETTLED = b'"unsettled":[]'


class Found:
    """One saga that is not settled, or was asked for.

    Attributes:
        id: the saga.
        effective: its records that count, those that are stale, its epoch and owner.
        view: the saga as the records that count tell it.
        writers: every writer that wrote about it, with the last sequence that was read.
        damaged: why its records cannot be trusted; empty otherwise.
    """

    __slots__ = ("damaged", "effective", "id", "view", "writers")

    def __init__(self, saga: str, records: list[Record], damages: Iterable[Damage]) -> None:
        self.id = saga
        self.writers = _last_read(records)
        self.damaged = _damaged(records, damages)
        self.effective, self.view = _understood(saga, records)

    @property
    def problems(self) -> list[str]:
        """Why it is a human's case whatever its steps say; empty otherwise."""
        return [self.damaged, *self.view.faults] if self.damaged else list(self.view.faults)


class Survey:
    """What a log holds that is not settled.

    Attributes:
        sagas: by id.
        damages: the places of the log that cannot be read.
    """

    __slots__ = ("damages", "sagas")

    def __init__(self, sagas: dict[str, Found], damages: list[Damage]) -> None:
        self.sagas = sagas
        self.damages = damages


def survey(path: str | os.PathLike[str]) -> Survey:
    """Return every saga of a log that has no clean end.

    Args:
        path: the log's directory.

    Raises:
        WALError: the directory as a whole is no log that can be read.
    """
    return _collected(path, open_ids(scan(path)))


def look(path: str | os.PathLike[str], saga: str) -> Found | None:
    """Return one saga, settled or not; None when the log does not have it."""
    return _collected(path, {saga}).sagas.get(saga)


def open_ids(found: Iterable[Record | Damage]) -> set[str]:
    """Return the ids of the sagas that have no clean end, or go on after one."""
    open_now: set[str] = set()
    for record in found:
        if isinstance(record, Damage) or not record.saga:
            continue
        if _ends_well(record):
            open_now.discard(record.saga)
        else:
            open_now.add(record.saga)
    return open_now


def _ends_well(record: Record) -> bool:
    if record.event in _WELL:
        return True
    payload = record.payload or b""
    return record.event == Ev.SAGA_COMMITTED and _NO_UNSETTLED in payload


def _collected(path: str | os.PathLike[str], wanted: set[str]) -> Survey:
    records: dict[str, list[Record]] = {}
    damages: list[Damage] = []
    for record in _reading(path, wanted):
        if isinstance(record, Damage):
            damages.append(record)
        elif record.saga in wanted:
            records.setdefault(record.saga, []).append(record)
    return Survey({saga: Found(saga, found, damages) for saga, found in records.items()}, damages)


def _reading(path: str | os.PathLike[str], wanted: set[str]) -> Iterator[Record | Damage]:
    if wanted:
        yield from scan(path)


def _last_read(records: Iterable[Record]) -> dict[str, Record]:
    return {record.writer: record for record in records}


def _damaged(records: list[Record], damages: Iterable[Damage]) -> str:
    first: dict[str, int] = {}
    for record in records:
        first.setdefault(record.writer, record.seq)
    for damage in damages:
        if damage.kind != "torn-tail" and damage.seq >= first.get(damage.writer, damage.seq + 1):
            return f"the log is damaged where records of it may have been: {damage.reason}"
    return ""


def _understood(saga: str, records: list[Record]) -> tuple[Effective, SagaView]:
    try:
        counting = effective(records)
    except (AgentSagaError, ValueError, KeyError, TypeError):
        counting = Effective([], [], 0, "")
    return counting, resolve(saga, records)

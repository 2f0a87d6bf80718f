"""Gathering the records of sagas from a log: of those that have no clean end, or of some by name.

Rules of this part:

- Each writer is read by itself, envelopes only. The lines of a saga are kept until it has ended
  well by itself, in the hands of the writer that began it; so memory is what open sagas take.
- A saga of which something is left and no beginning went on behind what was let go, or its
  beginning cannot be read. The log is read once more for all its records.
- Reading never stops at one bad saga.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from agent_saga.domain.records import Ev
from agent_saga.wal.directory import check_readable
from agent_saga.wal.format import Record, parsed
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import Damage, writers_of
from agent_saga.wal.scan import take_writer

__all__ = ["gather_open", "gather_some"]

_BEGINS: Final = Ev.SAGA_BEGIN.encode()
_COMMITS: Final = Ev.SAGA_COMMITTED.encode()
_ENDS: Final = frozenset({_COMMITS, Ev.SAGA_ROLLED_BACK.encode(), Ev.SAGA_CLOSED.encode()})
_NO_UNSETTLED: Final = b'"unsettled":[]'

Gathered = tuple[dict[str, list[Record]], list[Damage]]
"""The records by saga, each writer's in sequence; and the places that cannot be read."""


class _OpenHere:
    """The sagas that one writer wrote about and that have not ended well in its hands."""

    __slots__ = ("begun_elsewhere", "lines")

    def __init__(self) -> None:
        self.lines: dict[bytes, list[bytes]] = {}
        self.begun_elsewhere: set[bytes] = set()

    def take(self, line: bytes, event: bytes, saga: bytes, epoch: bytes) -> None:
        """Take a record in, and let go of a saga that has ended well."""
        known = self.lines.get(saga)
        if known is not None:
            known.append(line)
            if event in _ENDS and self._ends_well(line, event, saga, epoch):
                del self.lines[saga]
        elif saga:
            self.lines[saga] = [line]
            if event != _BEGINS:
                self.begun_elsewhere.add(saga)

    def _ends_well(self, line: bytes, event: bytes, saga: bytes, epoch: bytes) -> bool:
        if saga in self.begun_elsewhere or int(epoch) > 1:
            return False
        return event != _COMMITS or _NO_UNSETTLED in line


def gather_open(path: str | os.PathLike[str]) -> Gathered:
    """Return the records of every saga that has not simply ended well.

    Args:
        path: the log's directory.

    Raises:
        WALError: the directory as a whole is no log that can be read.
    """
    records: dict[str, list[Record]] = {}
    damages: list[Damage] = []
    begun: set[str] = set()
    for writer in _writers(path):
        here = _OpenHere()
        damages += take_writer(os.fspath(path), writer, OsPort(), here.take)
        for saga, lines in here.lines.items():
            own = _records(lines, writer)
            records.setdefault(own[0].saga, []).extend(own)
            if saga not in here.begun_elsewhere:
                begun.add(own[0].saga)
    lost = records.keys() - begun
    if lost:
        again, damages = gather_some(path, lost)
        records |= again
    return records, damages


def gather_some(path: str | os.PathLike[str], sagas: Iterable[str]) -> Gathered:
    """Return the records of some sagas, settled or not.

    Args:
        path: the log's directory.
        sagas: their ids.

    Raises:
        WALError: the directory as a whole is no log that can be read.
    """
    wanted = {saga.encode("utf-8", "surrogatepass") for saga in sagas}
    records: dict[str, list[Record]] = {}
    damages: list[Damage] = []
    lines: list[bytes] = []

    def take(line: bytes, _event: bytes, saga: bytes, _epoch: bytes) -> None:
        if saga in wanted:
            lines.append(line)

    for writer in _writers(path) if wanted else ():
        damages += take_writer(os.fspath(path), writer, OsPort(), take)
        for record in _records(lines, writer):
            records.setdefault(record.saga, []).append(record)
        lines.clear()
    return records, damages


def _writers(path: str | os.PathLike[str]) -> list[str]:
    port, place = OsPort(), os.fspath(path)
    return writers_of(place, port) if check_readable(port, place) else []


def _records(lines: Iterable[bytes], writer: str) -> list[Record]:
    found = [parsed(line, writer) for line in lines]
    return [record for record in found if record is not None]

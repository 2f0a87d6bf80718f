"""Gathering the records of sagas from a log: of those that have no clean end, or of some by name.

Rules of this part:

- Each writer is read by itself, envelopes only. The lines of a saga are kept until it has ended
  well by itself, in the hands of the writer that began it; so memory is what open sagas take. One
  with a record of an unknown kind has not.
- A saga of which something is left and no beginning went on behind what was let go, or its
  beginning cannot be read. The log is read once more for all its records.
- Reading never stops at one bad saga. It begins at a checkpoint where there is one that holds; a
  checkpoint is made of what was read, and of nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from typing import Final

from msgspec import Struct

from agent_saga.domain.fold import KNOWN
from agent_saga.domain.records import Ev
from agent_saga.wal import checkpoint
from agent_saga.wal.checkpoint import (
    NO_CHECKPOINT,
    Checkpoint,
    Covered,
    identities,
    is_closed,
    read_checkpoint,
)
from agent_saga.wal.damage import Damage, unreadable
from agent_saga.wal.directory import WRITERS, check_readable
from agent_saga.wal.format import Record, parsed
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import writers_of
from agent_saga.wal.scan import EnvelopeScan, take_writer
from agent_saga.wal.view import View

__all__ = ["Gathered", "OpenHere", "gather_open", "gather_some", "parsed_lines"]

_BEGINS: Final = Ev.SAGA_BEGIN.encode()
_COMMITS: Final = Ev.SAGA_COMMITTED.encode()
_ENDS: Final = frozenset({_COMMITS, Ev.SAGA_ROLLED_BACK.encode(), Ev.SAGA_CLOSED.encode()})
_KNOWN: Final = frozenset(event.encode() for event in KNOWN)
_NO_UNSETTLED: Final = b'"unsettled":[]'


class Gathered(Struct, frozen=True):
    """What was found.

    Attributes:
        records: by saga, each writer's in sequence.
        damages: the places that cannot be read.
        covered: for each writer, what nobody writes to any more, and what was open there.
        known: how many bytes of that a checkpoint had covered.
    """

    records: dict[str, list[Record]]
    damages: list[Damage]
    covered: Checkpoint = NO_CHECKPOINT
    known: int = 0


class OpenHere:
    """The sagas that one writer wrote about and that have not ended well in its hands.

    Args:
        ended: gets the lines of a saga that has, before they are let go.
    """

    __slots__ = ("_ended", "_strange", "begun_elsewhere", "lines")

    def __init__(self, ended: Callable[[bytes, list[bytes]], object] | None = None) -> None:
        self.lines: dict[bytes, list[bytes]] = {}
        self.begun_elsewhere: set[bytes] = set()
        self._strange: set[bytes] = set()
        self._ended = ended

    def recall(self, saga: bytes, lines: list[bytes]) -> None:
        """Take in what a checkpoint says was open."""
        self.lines[saga] = lines.copy()
        records = [parsed(line) for line in lines]
        if records[0] is None or records[0].event != Ev.SAGA_BEGIN:
            self.begun_elsewhere.add(saga)
        if any(record is None or record.event not in KNOWN for record in records):
            self._strange.add(saga)

    def take(self, line: bytes, event: bytes, saga: bytes, epoch: bytes) -> None:
        """Take a record in, and let go of a saga that has ended well."""
        known = self.lines.get(saga)
        if known is not None:
            known.append(line)
            if event not in _KNOWN:
                self._strange.add(saga)
            elif event in _ENDS and self._ends_well(line, event, saga, epoch):
                del self.lines[saga]
                if self._ended is not None:
                    self._ended(saga, known)
        elif saga:
            self.lines[saga] = [line]
            if event != _BEGINS:
                self.begun_elsewhere.add(saga)

    def _ends_well(self, line: bytes, event: bytes, saga: bytes, epoch: bytes) -> bool:
        if saga in self.begun_elsewhere or saga in self._strange or int(epoch) > 1:
            return False
        return event != _COMMITS or _NO_UNSETTLED in line


def gather_open(path: str | os.PathLike[str], dead: Container[str] = ()) -> Gathered:
    """Return the records of every saga that has not simply ended well.

    Reading begins at the checkpoint, if there is one that holds.

    Args:
        path: the log's directory.
        dead: the writers that were proved dead before.

    Raises:
        WALError: the directory as a whole is no log that can be read.
    """
    port, place = OsPort(), os.fspath(path)
    records: dict[str, list[Record]] = {}
    damages: list[Damage] = []
    begun: set[str] = set()
    covered: dict[str, Covered] = {}
    with View(port, place) as view:
        known = read_checkpoint(port, place, view) if check_readable(port, place) else {}
        for writer in _names(view, place, port):
            one = _OneWriter(view, place, writer, port, known.get(writer))
            damages += one.read(dead=writer in dead)
            if one.covered is not None:
                covered[writer] = one.covered
            for saga, lines in one.here.lines.items():
                own = parsed_lines(lines, writer)
                records.setdefault(own[0].saga, []).extend(own)
                if saga not in one.here.begun_elsewhere:
                    begun.add(own[0].saga)
        lost = records.keys() - begun
        if lost:
            again = gather_some(path, lost)
            records |= again.records
            damages = again.damages
        size = sum(one.size for one in known.values())
    return Gathered(records, damages, covered, size)


class _OneWriter:
    """One writer, read for what is open.

    Attributes:
        here: what is.
        covered: what a checkpoint can cover of it.
    """

    def __init__(
        self, view: View, path: str, writer: str, port: OsPort, start: Covered | None
    ) -> None:
        self.here = OpenHere()
        self.covered = start
        self._folder = os.path.join(path, WRITERS, writer)
        self._writer = writer
        self._port = port
        self._view = view
        self._start = start
        if start is not None:
            for saga, lines in start.lines.items():
                self.here.recall(saga, lines)

    def read(self, *, dead: bool) -> list[Damage]:
        """Read from the checkpoint on; returns what cannot be read."""
        try:
            names = self._view.segments(self._writer)
            files = identities(self._port, self._folder, names)
        except OSError as error:
            return [unreadable(self._writer, error)]
        scan = EnvelopeScan(self._folder, self._writer, names, self._port, self.here.take)
        first = 0
        if self._start is not None:
            scan.begin_at(self._start.expected)
            first = len(self._start.files)
        waiting: list[Covered] = []
        closed, grown, last = True, 0, scan.expected
        for index in range(first, len(names)):
            if not scan.read(index):
                return list(scan.judge())
            closed = closed and is_closed(files[index], scan.used[-1])
            grown += scan.used[-1]
            # What is open is copied only once so much was read that the copy costs nothing beside.
            if closed and grown >= checkpoint.WORTH and _many(scan.expected - last, self.here):
                lines = {saga: own.copy() for saga, own in self.here.lines.items()}
                waiting.append(Covered(files[: index + 1], scan.expected, lines))
                grown, last = 0, scan.expected
            self._cover(waiting, scan.expected - 1 if dead else scan.highest_mark)
        return []

    def _cover(self, waiting: list[Covered], durable: int) -> None:
        while waiting and waiting[0].expected - 1 <= durable:
            self.covered = waiting.pop(0)


def _many(records: int, here: OpenHere) -> bool:
    return records >= 4 * len(here.lines)


def gather_some(
    path: str | os.PathLike[str], sagas: Iterable[str], port: OsPort | None = None
) -> Gathered:
    """Return the records of some sagas, settled or not.

    Args:
        path: the log's directory.
        sagas: their ids.
        port: the system calls.

    Raises:
        WALError: the directory as a whole is no log that can be read.
    """
    port = OsPort() if port is None else port
    wanted = {saga.encode("utf-8", "surrogatepass") for saga in sagas}
    found = Gathered({}, [])
    lines: list[bytes] = []

    def take(line: bytes, _event: bytes, saga: bytes, _epoch: bytes) -> None:
        if saga in wanted:
            lines.append(line)

    with View(port, os.fspath(path)) as view:
        for writer in _names(view, os.fspath(path), port) if wanted else ():
            found.damages.extend(take_writer(view, os.fspath(path), writer, port, take))
            for record in parsed_lines(lines, writer):
                found.records.setdefault(record.saga, []).append(record)
            lines.clear()
    return found


def _names(view: View, path: str, port: OsPort) -> list[str]:
    if not check_readable(port, path):
        return []
    return [writer for writer in writers_of(path, port) if not view.leaves(writer)]


def parsed_lines(lines: Iterable[bytes], writer: str) -> list[Record]:
    """Return the records of lines that a scan has handed on."""
    found = [parsed(line, writer) for line in lines]
    return [record for record in found if record is not None]

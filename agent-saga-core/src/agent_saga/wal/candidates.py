"""What may leave a log: each writer read once, each saga judged when it has ended.

Rules of this part:

- If anything that had been durable cannot be read, nothing leaves: it may have told of any saga.
- A writer whose records do not simply follow one another keeps its files from there on. A torn tail
  costs the file that it is in.
- A saga that simply ended in the hands of one writer is judged there and let go; of the others the
  records are put together from all writers.
- Writers that are not proved dead may go on writing; `news` says what they wrote since.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from agent_saga.domain.leaving import is_named, may_leave
from agent_saga.domain.records import Ev
from agent_saga.wal.damage import Damage, broken
from agent_saga.wal.directory import WRITERS
from agent_saga.wal.format import Record
from agent_saga.wal.gaps import GAP
from agent_saga.wal.gathering import OpenHere, gather_some, parsed_lines
from agent_saga.wal.judging import LineStart, WriterScan
from agent_saga.wal.lines import segments_in
from agent_saga.wal.reader import writers_of
from agent_saga.wal.scan import EnvelopeScan
from agent_saga.wal.takeover import dead_writers

if TYPE_CHECKING:
    from agent_saga.wal.os_port import OsPort

__all__ = ["BOOKKEEPING", "Candidates", "LeavingSagas", "WriterState", "surveyed"]

BOOKKEEPING: Final = frozenset(
    {
        Ev.WRITER_OPEN.encode(),
        Ev.WRITER_CLOSE.encode(),
        Ev.MARK.encode(),
        Ev.SEGMENT_SEAL.encode(),
        GAP,
    }
)
"""The events of a writer's own that nothing rests on once it is dead."""

_BEGINNING: Final = LineStart(0, 0, 1, 0, b"")


class WriterState(Struct, frozen=True):
    """How a writer was read.

    Attributes:
        segments: the names of its files.
        ends: for each file that was read as it was written, the last sequence in it or before it.
        closed: how many of the files nobody writes to any more, and can be read.
        dead: it was proved dead before it was read.
        whole: all of it was read as it was written.
        expected: the sequence that comes next.
        place: where reading can go on.
        empty: it says nothing but that it opened and closed.
    """

    segments: list[str]
    ends: list[int]
    closed: int
    dead: bool
    whole: bool
    expected: int
    place: LineStart
    empty: bool

    @property
    def spare(self) -> bool:
        """Whether it is dead and left files behind that it never wrote to."""
        return self.dead and self.whole and len({0, *self.ends}) <= len(self.ends)

    @property
    def closed_last(self) -> int:
        """The last sequence in the closed files."""
        return self.ends[self.closed - 1] if self.closed else 0


class LeavingSagas:
    """The sagas that leave, those of them that their users named, and who wrote about them."""

    __slots__ = ("named", "sagas", "writers")

    def __init__(self) -> None:
        self.sagas: set[str] = set()
        self.named: set[str] = set()
        self.writers: set[str] = set()

    def add(self, saga: str, writers: set[str], *, named: bool) -> None:
        """Let a saga leave."""
        self.sagas.add(saga)
        self.writers |= writers
        if named:
            self.named.add(saga)


class Candidates(Struct, frozen=True):
    """What may leave.

    Attributes:
        writers: how each was read.
        leaving: what leaves.
        kept: why some of the log is left alone, in words.
    """

    writers: dict[str, WriterState]
    leaving: LeavingSagas
    kept: tuple[str, ...]

    def news(self, port: OsPort, path: str) -> Iterator[str]:
        """Yield the sagas that somebody wrote about since; all that leave, if that is unknown."""
        for writer in writers_of(path, port):
            state = self.writers.get(writer)
            if state is not None and state.dead:
                continue
            folder = os.path.join(path, WRITERS, writer)
            place = _BEGINNING if state is None else state.place
            known = 1 if state is None else state.expected
            scan = WriterScan(folder, writer, port, verify=False)
            for found in scan.read_from(place, segments_in(port, folder)):
                if isinstance(found, Record):
                    if found.seq >= known:
                        yield found.saga
                elif broken([found]):
                    yield from self.leaving.sagas


class _Ended(Struct, frozen=True):
    """A saga that one writer ended well, and that may leave."""

    writer: str
    last: int
    named: bool


class _Candidates:
    """What was found so far.

    Attributes:
        ended: the sagas that simply ended and may leave.
        pieces: the records of the others.
    """

    def __init__(self, before: int, living: frozenset[str]) -> None:
        self.before = before
        self.living = living
        self.ended: dict[str, _Ended] = {}
        self.pieces: dict[str, list[Record]] = {}
        self.begun: set[str] = set()

    def simply_ended(self, writer: str, lines: list[bytes]) -> None:
        """Judge a saga that one writer has ended."""
        records = parsed_lines(lines, writer)
        if records and may_leave(records[0].saga, records, self.before, self.living):
            last = records[-1]
            self.ended[last.saga] = _Ended(writer, last.seq, is_named(records))

    def add_pieces(self, writer: str, here: OpenHere) -> None:
        """Take in what one writer wrote about sagas that it did not simply end."""
        for saga, lines in here.lines.items():
            records = parsed_lines(lines, writer)
            if records:
                self.pieces.setdefault(records[0].saga, []).extend(records)
                if saga not in here.begun_elsewhere:
                    self.begun.add(records[0].saga)

    def judged(
        self, port: OsPort, path: str, closed: dict[str, int]
    ) -> tuple[LeavingSagas, list[Damage]]:
        """Return what leaves, and what could not be read the second time.

        Args:
            port: the system calls.
            path: the log's directory.
            closed: for each writer, the last sequence in its closed files.
        """
        leaving = LeavingSagas()
        torn = {s for s in self.pieces if s in self.ended or s not in self.begun}
        old = {s for s in torn if all(r.time < self.before for r in self.pieces[s])}
        again = gather_some(path, old, port)
        kept = broken(again.damages)
        if kept:
            return leaving, kept
        for saga, records in self.pieces.items():
            whole = again.records.get(saga, []) if saga in torn else records
            last = {record.writer: record.seq for record in whole}
            if may_leave(saga, whole, self.before, self.living) and _all_closed(last, closed):
                leaving.add(saga, set(last), named=is_named(whole))
        for saga, one in self.ended.items():
            if saga not in self.pieces and _all_closed({one.writer: one.last}, closed):
                leaving.add(saga, {one.writer}, named=one.named)
        return leaving, kept


def surveyed(port: OsPort, path: str, before: int) -> Candidates:
    """Read a log for what may leave; nobody else may be compacting it.

    Args:
        port: the system calls.
        path: the log's directory.
        before: a saga's last record must be older, in microseconds since the epoch.

    Raises:
        OSError: a folder cannot be read.
    """
    names = writers_of(path, port)
    dead = dead_writers(path, port)
    candidates = _Candidates(before, frozenset(names) - dead)
    damages: list[Damage] = []
    states = {
        writer: _read(port, path, writer, candidates, damages, dead=writer in dead)
        for writer in names
    }
    if damages:
        return Candidates({}, LeavingSagas(), tuple(map(_told, damages)))
    closed = {writer: state.closed_last for writer, state in states.items()}
    leaving, kept = candidates.judged(port, path, closed)
    return Candidates(states, leaving, tuple(map(_told, kept)))


def _told(damage: Damage) -> str:
    return f"something of writer {damage.writer} cannot be read: {damage.reason}"


def _read(
    port: OsPort,
    path: str,
    writer: str,
    found: _Candidates,
    damages: list[Damage],
    *,
    dead: bool,
) -> WriterState:
    folder = os.path.join(path, WRITERS, writer)
    segments = segments_in(port, folder)
    here = OpenHere(lambda _saga, lines: found.simply_ended(writer, lines))
    others = 0

    def take(line: bytes, event: bytes, saga: bytes, epoch: bytes) -> None:
        nonlocal others
        if saga:
            here.take(line, event, saga, epoch)
        if saga or event not in BOOKKEEPING:
            others += 1

    scan = EnvelopeScan(folder, writer, segments, port, take, verify=True)
    ends: list[int] = []
    goes_on = False
    for index in range(len(segments)):
        if not scan.read(index):
            stopped = scan.expected
            damages += broken(scan.judge())
            goes_on = scan.expected > stopped
            break
        ends.append(scan.expected - 1)
    found.add_pieces(writer, here)
    whole = len(ends) == len(segments)
    # What is written again further on may stand in any file behind the last certain place.
    regular = min(len(ends), scan.judged_from) if goes_on else len(ends)
    closed = regular if dead else _closed_behind(ends[:regular], scan.highest_mark)
    empty = dead and whole and not others and scan.expected > 1
    return WriterState(segments, ends, closed, dead, whole, scan.expected, scan.last_start, empty)


def _closed_behind(ends: list[int], mark: int) -> int:
    """How many files of a living writer are durable to their end and have records behind them."""
    last = ends[-1] if ends else 0
    return sum(end <= mark and end < last for end in ends)


def _all_closed(last: dict[str, int], closed: dict[str, int]) -> bool:
    return all(seq <= closed.get(writer, 0) for writer, seq in last.items())

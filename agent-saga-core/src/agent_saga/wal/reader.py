"""Reading a file log: every writer's records in order, and what is damaged; nothing is edited.

Rules of this part:

- Reading never raises for bad content, never edits, makes nothing, and keeps only a window of
  unsynced records in memory, however long the log is.
- At a bad place d of a writer: a later good record whose watermark is d or more means **damage**
  (d had been durable): it is told, and reading goes on behind it. Else it is a **torn tail**:
  what follows was never confirmed, and reading of this writer stops there.
- What tears a line leaves no whole one: a line that was written whole and is no record that fits
  was changed, and is damage also at the end (see `tearing`). Where the chain is checked, so is a
  whole record whose hash does not follow.
- A record may stand twice, with the same bytes: a segment that failed was written again from the
  watermark on. It is read once. Another record under the same sequence is damage.
- A line of a format that this version does not read is told as such; the others are read.
- The order: writers by id, each in sequence. A saga's order is (epoch, sequence): for the
  consumer.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from agent_saga.domain.commands import told_command
from agent_saga.domain.records import FORMAT
from agent_saga.errors import WALCorrupt, WALFormatError, WALPathError
from agent_saga.wal.directory import WRITERS, check_readable
from agent_saga.wal.format import first_hash, format_of, hash_after, hash_bytes, parsed
from agent_saga.wal.gaps import gap_of
from agent_saga.wal.lines import Line, lines_of
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.tearing import may_be_torn
from agent_saga.wal.view import View
from agent_saga.wal.writer import is_writer_id

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from agent_saga.wal.format import Record

__all__ = [
    "Damage",
    "LineStart",
    "WriterScan",
    "broken",
    "records",
    "scan_log",
    "scan_writer",
    "unreadable",
    "writers_of",
]


class Damage(msgspec.Struct, frozen=True):
    """A place in the log that cannot be read as it was written.

    `kind` is "damage" (it had been durable), "torn-tail" (it had not been confirmed to anybody; a
    writer that is still writing shows one too), or "format" (another version wrote it). `seq` is
    the first sequence that is missing, `offset` counts bytes in the segment.
    """

    writer: str
    segment: str
    seq: int
    offset: int
    reason: str
    kind: str = "damage"


class LineStart(NamedTuple):
    """Where a line of a writer begins, and what is known there.

    Args:
        segment: the index of the segment.
        offset: where the line begins, in bytes.
        expected: the sequence that comes next.
        highest_mark: the highest sequence that is known durable.
        previous: the hash of the record before it; empty when that is not known.
    """

    segment: int
    offset: int
    expected: int
    highest_mark: int
    previous: bytes


def broken(damages: Iterable[Record | Damage]) -> list[Damage]:
    """Those of them that had been durable, or that another version wrote: no torn tails."""
    return [one for one in damages if isinstance(one, Damage) and one.kind != "torn-tail"]


def writers_of(path: str, port: OsPort | None = None) -> list[str]:
    """The ids of a log's writers, oldest first; none when there is no log.

    Raises:
        WALPathError: what should hold them cannot be read.
    """
    port = OsPort() if port is None else port
    try:
        return [name for name in port.listdir(os.path.join(path, WRITERS)) if is_writer_id(name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise WALPathError(f"The log's directory {path!r} cannot be read: {error}.") from error


def scan_log(
    path: str | os.PathLike[str], port: OsPort | None = None, *, verify: bool = False
) -> Iterator[Record | Damage]:
    """Read a whole log.

    Args:
        path: the log's directory; nothing is read when it does not exist.
        port: the system calls.
        verify: check every record against its writer's chain too.

    Yields:
        Records and damages, writer by writer.

    Raises:
        WALPathError, WALFormatError: the directory as a whole is no log that can be read.
    """
    port = OsPort() if port is None else port
    path = os.path.abspath(path)
    if check_readable(port, path):
        with View(port, path) as view:
            for writer in writers_of(path, port):
                yield from _scan_seen(view, path, writer, port, verify=verify)


def records(path: str | os.PathLike[str], port: OsPort | None = None) -> Iterator[Record]:
    """Read the records of a whole log; what is damaged is raised at the end.

    Raises:
        WALCorrupt: some of it was damaged where it had been durable.
        WALFormatError: some of it has a format that this version does not read.
    """
    problems: list[Damage] = []
    for found in scan_log(path, port):
        if isinstance(found, Damage):
            if found.kind != "torn-tail":
                problems.append(found)
        else:
            yield found
    if problems:
        first = problems[0]
        kind = WALFormatError if all(one.kind == "format" for one in problems) else WALCorrupt
        raise kind(
            f"{len(problems)} places of the log cannot be read; the first: {first.reason} "
            f"(writer {first.writer}, {first.segment}, sequence {first.seq}, byte {first.offset}).",
            fix=told_command("verify", os.fspath(path)),
        )


def scan_writer(
    path: str, writer: str, port: OsPort, *, verify: bool = False
) -> Generator[Record | Damage]:
    """Read one writer's segments; see `scan`."""
    with View(port, path) as view:
        yield from _scan_seen(view, path, writer, port, verify=verify)


def _scan_seen(
    view: View, path: str, writer: str, port: OsPort, *, verify: bool
) -> Iterator[Record | Damage]:
    try:
        segments = view.segments(writer)
    except OSError as error:
        yield unreadable(writer, error)
        return
    yield from WriterScan(os.path.join(path, WRITERS, writer), writer, port, verify).read(segments)


def unreadable(writer: str, error: OSError) -> Damage:
    """The damage of a folder that cannot be read."""
    return Damage(writer, "", 1, 0, f"the writer's folder cannot be read ({error})")


_REWRITTEN: Final = "rewritten"
_DAMAGE: Final = "damage"
_TORN: Final = "torn-tail"


class WriterScan:
    """One pass over one writer.

    Attributes:
        expected: the sequence that comes next.
        window: what tells records above the highest watermark apart: only these may stand twice.
        previous: the hashes that the next record may be chained to; none when the chain was lost.
        loose: whether the sequence may jump, behind a place whose length in records is unknown.
        awaited: the sequence that a later segment holds again; what comes before it is passed over.
    """

    def __init__(self, folder: str, writer: str, port: OsPort, verify: bool) -> None:
        self.folder = folder
        self.writer = writer
        self.port = port
        self.verify = verify
        self.segments: list[str] = []
        self.expected = 1
        self.highest_mark = 0
        self.window: dict[int, object] = {}
        self.previous: list[bytes] = [first_hash(writer)]
        self.loose = False
        self.awaited = 0
        self.on_gap: Callable[[Line, int], object] = _nothing
        self._torn = False

    def read(self, segments: list[str]) -> Iterator[Record | Damage]:
        """Records and damages, in order."""
        self.segments = segments
        yield from self._read(0, 0)

    def read_from(self, place: LineStart, segments: list[str]) -> Iterator[Record | Damage]:
        """Records and damages from a place on; all before it is durable, or stands behind it."""
        self.segments = segments
        self.expected, self.highest_mark = place.expected, place.highest_mark
        self.previous = [place.previous] if place.previous else []
        yield from self._read(place.segment, place.offset)

    def _read(self, segment: int, offset: int) -> Iterator[Record | Damage]:
        with closing(lines_of(self.port, self.folder, self.segments, segment, offset)) as lines:
            for line in lines:
                record = parsed(line.data, self.writer)
                if record is not None and self._follows(record):
                    self._advance(record)
                    yield record
                elif record is not None or not self._passed_gap(line):
                    yield from self._judged(line, record)
                    if self._torn:
                        return
        if self.awaited:
            yield self._gone()

    def _gone(self) -> Damage:
        reason = f"what stood again further on is gone, from {self.expected} on"
        return Damage(self.writer, self.segments[-1], self.expected, 0, reason)

    def _judged(self, line: Line, record: Record | None) -> Iterator[Record | Damage]:
        """What is to be told of a line that is not the next record."""
        if record is not None and self._outruns(line, record):
            record = None
        damage = self._judge(line, record)
        if damage is not None:
            self._torn = damage.kind == _TORN
            yield damage
            if not self._torn and record is not None and record.seq >= self.expected:
                self._advance(record)
                yield record

    def _passed_gap(self, line: Line) -> bool:
        """Whether a line stands for records that left and come next; it is passed then."""
        gap = gap_of(line.data)
        if gap is None or not (
            gap.first == self.expected or (self.loose and gap.first > self.expected)
        ):
            return False
        self.on_gap(line, gap.first)
        self.expected = gap.last + 1
        self.loose, self.awaited = False, 0
        self.highest_mark = max(self.highest_mark, gap.last)
        self.window.clear()
        self.previous = [hash_bytes(gap.hash)]
        return True

    def _follows(self, record: Record) -> bool:
        """Whether a record is the next one, and fits the chain if that is asked."""
        if record.seq != self.expected and not (self.loose and record.seq > self.expected):
            return False
        return not self.verify or self._fits(record)

    def _fits(self, record: Record) -> bool:
        stated = _stated_hash(record)
        if not stated:
            return False
        previous = self.previous
        return not previous or any(hash_after(record, one) == stated for one in previous)

    def _advance(self, record: Record) -> None:
        self.expected = record.seq + 1
        self.loose = False
        self.awaited = 0
        window = self.window
        window[record.seq] = self._mark_of(record)
        if record.mark > self.highest_mark:
            self.highest_mark = record.mark
            while window and (first := next(iter(window))) <= record.mark:
                del window[first]
        if self.verify:
            self.previous = [_stated_hash(record)]

    def _mark_of(self, record: Record) -> object:
        """What two copies of one record have in common: all bytes when these are checked."""
        if self.verify:
            return hash((record.envelope, record.payload, record.salt, record.hash))
        return record.hash

    def _judge(self, line: Line, record: Record | None) -> Damage | None:
        """What a line means that is not the next record; None when it can be passed over."""
        if record is not None and record.seq < self.expected:
            return self._judge_repeated(line, record)
        if self.awaited and (record is None or record.seq > self.expected):
            return None
        other = format_of(line.data)
        if record is None and other is not None and other != FORMAT:
            self.loose, self.previous = True, []
            return self._damage(line, f"it has format {other}", "format")
        verdict = self._verdict(line, record)
        if verdict == _REWRITTEN:
            self.awaited = self.expected
            return None
        damage = self._damage(line, self._reason(line, record), verdict)
        if verdict == _DAMAGE:
            self._resume(record)
        return damage

    def _outruns(self, line: Line, record: Record) -> bool:
        """Whether a record's sequence is higher than that of the next one: it tells a wrong one."""
        if record.seq <= self.expected:
            return False
        with self._ahead(line) as lines:
            for ahead in lines:
                later = parsed(ahead.data, self.writer)
                if later is not None:
                    return later.seq <= record.seq
        return False

    def _ahead(self, line: Line) -> closing[Generator[Line]]:
        place = line.segment, line.behind
        return closing(lines_of(self.port, self.folder, self.segments, *place))

    def _judge_repeated(self, line: Line, record: Record) -> Damage | None:
        if self.window.get(record.seq) == self._mark_of(record):
            return None
        reason = f"another record stands under sequence {record.seq}"
        return Damage(
            self.writer, self.segments[line.segment], record.seq, line.offset, reason, _DAMAGE
        )

    def _verdict(self, line: Line, record: Record | None) -> str:
        """Whether what is missing was durable once, stands again further on, or neither."""
        wanted = self.expected
        if line.problem or (record is not None and record.mark >= wanted):
            return _DAMAGE
        with self._ahead(line) as lines:
            for ahead in lines:
                later = parsed(ahead.data, self.writer)
                if ahead.problem:  # what it holds might have told
                    return _DAMAGE
                if later is None:
                    gap = gap_of(ahead.data)
                    if gap is not None and gap.first >= wanted:  # what left had been durable
                        return _DAMAGE
                elif later.seq == wanted and (not self.verify or self._fits(later)):
                    return _REWRITTEN
                elif later.mark >= wanted:
                    return _DAMAGE
        changed = record is not None and record.seq == wanted
        begins = wanted == 1 and line.offset == line.zeros == 0
        foreign = begins and line.data and format_of(line.data) is None
        torn = not (changed or foreign) and (may_be_torn(line, record) or self._is_written(line))
        return _TORN if torn else _DAMAGE

    def _is_written(self, line: Line) -> bool:
        """Whether a line reads otherwise by now: somebody was writing it."""
        place = line.segment, line.offset
        with closing(lines_of(self.port, self.folder, self.segments, *place)) as lines:
            now = next(lines, line)
        return not now.problem and (now.data, now.ended) != (line.data, line.ended)

    def _reason(self, line: Line, record: Record | None) -> str:
        if line.problem:
            return line.problem
        if record is None:
            return "it is no whole record that fits here"
        if record.seq > self.expected:
            return f"the records from {self.expected} to {record.seq - 1} are missing"
        return "its hash does not follow from the record before it"

    def _damage(self, line: Line, reason: str, kind: str) -> Damage:
        segment = self.segments[line.segment]
        return Damage(self.writer, segment, self.expected, line.offset, reason, kind)

    def _resume(self, record: Record | None) -> None:
        """Go on behind a damaged place."""
        if record is None:
            self.expected += 1
            self.loose, self.previous = True, []
        elif record.seq > self.expected:
            self.expected = record.seq
            self.previous = []
        else:
            computed = [hash_after(record, one) for one in self.previous]
            self.previous = [one for one in (_stated_hash(record), *computed) if one]
            self.expected = record.seq + 1


def _nothing(line: Line, first: int) -> None:
    """Nobody asks about gaps."""


def _stated_hash(record: Record) -> bytes:
    """The hash that a record carries, or b"" when it is not one."""
    try:
        return hash_bytes(record.hash)
    except ValueError:
        return b""

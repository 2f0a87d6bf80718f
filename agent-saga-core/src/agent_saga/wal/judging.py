"""Judging the lines of one writer: which are its records, and what any other line means.

Rules of this part:

- At a bad place d: a later good record whose watermark is d or more means **damage** (d had been
  durable): it is told, and reading goes on behind it. Else it is a **torn tail**: what follows was
  never confirmed, and reading of this writer stops there.
- What tears a line leaves no whole one: a line that was written whole and is no record that fits
  was changed, and is damage also at the end (see `tearing`). Where the chain is checked, so is a
  whole record whose hash does not follow.
- A record may stand twice, with the same bytes: a segment that failed was written again from the
  watermark on. It is read once. Another record under the same sequence is damage.
- A line of a format that this version does not read is told as such; the others are read.
- Only a window of unsynced records is kept in memory.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from agent_saga.domain.records import FORMAT
from agent_saga.wal.damage import Damage
from agent_saga.wal.format import first_hash, format_of, hash_after, hash_bytes, parsed
from agent_saga.wal.gaps import gap_of
from agent_saga.wal.lines import Line, lines_of
from agent_saga.wal.tearing import may_be_torn

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from agent_saga.wal.format import Record
    from agent_saga.wal.os_port import OsPort

__all__ = ["LineStart", "WriterScan"]


class LineStart(Struct, frozen=True):
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
        if line.problem or (record is not None and record.mark >= self.expected):
            return _DAMAGE
        told = self._told_ahead(line)
        return told or (_TORN if self._is_torn(line, record) else _DAMAGE)

    def _told_ahead(self, line: Line) -> str:
        """What the lines behind a place tell of what is missing there; empty if none does."""
        with self._ahead(line) as lines:
            return next(filter(None, map(self._tells, lines)), "")

    def _tells(self, ahead: Line) -> str:
        """What one line further on tells of what is missing; empty if nothing."""
        later = parsed(ahead.data, self.writer)
        if ahead.problem:  # what it holds might have told
            return _DAMAGE
        if later is None:
            gap = gap_of(ahead.data)
            left = gap is not None and gap.first >= self.expected  # what left had been durable
            return _DAMAGE if left else ""
        if later.seq == self.expected and (not self.verify or self._fits(later)):
            return _REWRITTEN
        return _DAMAGE if later.mark >= self.expected else ""

    def _is_torn(self, line: Line, record: Record | None) -> bool:
        """Whether a sudden end can have left a line that no other one tells of."""
        changed = record is not None and record.seq == self.expected
        begins = self.expected == 1 and line.offset == line.zeros == 0
        foreign = begins and line.data and format_of(line.data) is None
        if changed or foreign:
            return False
        return may_be_torn(line, record) or self._is_written(line)

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

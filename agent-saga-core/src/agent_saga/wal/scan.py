"""Reading one writer fast: envelopes and whole lines, in little memory; nothing is parsed.

Rules of this part:

- The fast way takes lines that follow one another as they were written. At the first that does not,
  it stops, and `judging` goes on from the last place that is certain: what is damaged, torn or
  written twice has one judge.
- A line is handed on only if it is a whole record with the sequence that comes next; with
  `verify`, also only if it fits the chain.
- Memory is one piece of a segment, however long the log is.
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from agent_saga.wal.damage import Damage, unreadable
from agent_saga.wal.directory import WRITERS
from agent_saga.wal.format import LEAN, first_hash, hash_bytes, line_of, parsed
from agent_saga.wal.gaps import GAP, Gap, gap_of
from agent_saga.wal.judging import LineStart, WriterScan
from agent_saga.wal.limits import MAX_LINE
from agent_saga.wal.os_port import reading

if TYPE_CHECKING:
    from agent_saga.wal.format import Record
    from agent_saga.wal.lines import Line
    from agent_saga.wal.os_port import OsPort
    from agent_saga.wal.view import View

__all__ = ["EnvelopeScan", "Take", "take_writer"]

Take = Callable[[bytes, bytes, bytes, bytes], object]
"""Takes a record: its line, event, saga and epoch, as they stand in the log.

In the place of records that left stands a gap, with the event `GAP` and no saga.
"""

_CHUNK: Final = 256 * 1024
_ZEROS: Final = bytes(_CHUNK)
_SALT_KEY: Final = b',"x":"'
_HASH_KEY: Final = b'","h":"'
_END: Final = b'"}'
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")


def take_writer(
    view: View, path: str, writer: str, port: OsPort, take: Take, *, verify: bool = False
) -> list[Damage]:
    """Read one writer from its beginning to its end; returns what cannot be read.

    Args:
        view: the log's files.
        path: the log's directory.
        writer: the writer's id.
        port: the system calls.
        take: gets every record, in sequence.
        verify: check every record against the chain.
    """
    folder = os.path.join(path, WRITERS, writer)
    try:
        segments = view.segments(writer)
    except OSError as error:
        return [unreadable(writer, error)]
    return list(EnvelopeScan(folder, writer, segments, port, take, verify=verify).run())


class EnvelopeScan:
    """One pass over the segments of one writer.

    Args:
        folder: the writer's folder.
        writer: its id.
        segments: the names of its segments, in order.
        port: the system calls.
        take: gets every record, in sequence.
        verify: check every record against the chain.

    Attributes:
        expected: the sequence that comes next.
        highest_mark: the highest sequence that a record says was durable.
        previous: the hash of the last record, as 32 bytes; only with `verify`.
        used: for each file that was read, the bytes up to the end of its last line.
        segment, offset: where the piece stands whose lines are being handed on.
    """

    def __init__(
        self,
        folder: str,
        writer: str,
        segments: list[str],
        port: OsPort,
        take: Take,
        *,
        verify: bool = False,
    ) -> None:
        self.folder = folder
        self.writer = writer
        self.segments = segments
        self.port = port
        self.expected = 1
        self.highest_mark = 0
        self.previous = first_hash(writer)
        self.used: list[int] = []
        self.segment = self.offset = 0
        self._take = take
        self._verify = verify
        self._starts: deque[LineStart] = deque()

    @property
    def last_start(self) -> LineStart:
        """The last place at which a line is known to begin."""
        return self._starts[-1] if self._starts else LineStart(0, 0, 1, 0, b"")

    @property
    def judged_from(self) -> int:
        """The index of the file from which on `judge` reads."""
        return self._starts[0].segment if self._starts else 0

    def run(self, first: int = 0) -> Iterator[Damage]:
        """Read from a segment to the end of the last one; yields what cannot be read.

        Args:
            first: the index of the segment to begin with.
        """
        for index in range(first, len(self.segments)):
            if not self.read(index):
                yield from self.judge()
                return

    def begin_at(self, expected: int) -> None:
        """Begin with a file at whose beginning a sequence comes next, all before it durable."""
        self.expected, self.highest_mark = expected, expected - 1

    def begin_inside(self, expected: int) -> None:
        """Begin with a file whose first record is trusted, and of which nothing else is known."""
        self.expected, self.highest_mark, self.previous = expected, 0, b""

    def read(self, index: int) -> bool:
        """Read one segment; False at the first line that is not simply the next one."""
        self._start(index, 0)
        try:
            with reading(self.port, os.path.join(self.folder, self.segments[index])) as fd:
                return self._pieces(fd, index)
        except OSError:
            return False

    def judge(self) -> Iterator[Damage]:
        """Go on where `read` stopped, record by record, to the end of the writer."""
        scan = WriterScan(self.folder, self.writer, self.port, self._verify)
        known = self.expected

        def pass_gap(line: Line, first: int) -> None:
            if first >= known:
                self.segment = line.segment
                self._take(line.data, GAP, b"", b"0")

        scan.on_gap = pass_gap
        for found in scan.read_from(self._starts[0], self.segments):
            if isinstance(found, Damage):
                yield found
            elif found.seq >= known:
                self._take_record(found)
        self.expected, self.highest_mark = scan.expected, scan.highest_mark

    def _take_record(self, record: Record) -> None:
        saga = record.saga.encode("utf-8", "surrogatepass")
        self._take(line_of(record), record.event.encode(), saga, b"%d" % record.epoch)

    # --- the fast way -----------------------------------------------------------------------------

    def _pieces(self, fd: int, index: int) -> bool:
        rest, position, end, ended = b"", 0, 0, False
        while True:
            chunk = self.port.pread(fd, _CHUNK, position)
            if not chunk or _is_zero(chunk):
                if not _is_zero(rest):
                    return False
                if not chunk:
                    self.used.append(end)
                    return True
                rest, ended = b"", True
                position += len(chunk)
                continue
            if ended:
                return False
            data = rest + chunk if rest else chunk
            self._start(index, position - len(rest))
            *lines, rest = data.split(b"\n")
            if len(rest) > MAX_LINE or data.find(b"\0", 0, len(data) - len(rest)) >= 0:
                return False
            if not (self._checked(lines) if self._verify else self._handed(lines)):
                return False
            position += len(chunk)
            end = position - len(rest)

    def _start(self, index: int, offset: int) -> None:
        """Note a place to judge from; it is far enough back if all before it was durable."""
        self.segment, self.offset = index, offset
        starts = self._starts
        starts.append(LineStart(index, offset, self.expected, self.highest_mark, self.previous))
        while len(starts) > 1 and starts[1].expected - 1 <= self.highest_mark:
            starts.popleft()

    def _handed(self, lines: list[bytes]) -> bool:
        envelope, take = LEAN, self._take
        expected, highest = self.expected, self.highest_mark
        for line in lines:
            head = envelope(line)
            if head is None:
                gap = gap_of(line)
                if gap is None or gap.first != expected:
                    break
                expected, highest = gap.last + 1, max(highest, gap.last)
                take(line, GAP, b"", b"0")
                continue
            seq, mark, event, saga, epoch = head.groups()
            durable = int(mark)
            if int(seq) != expected or durable >= expected:
                break
            whole = line[-80:-74] == _SALT_KEY and line[-52:-45] == _HASH_KEY and line[-2:] == _END
            # What is erased, or no plain text, is judged where a record is parsed.
            if not (whole and line.isascii()) and parsed(line) is None:
                break
            if durable > highest:  # noqa: PLR1730 - a call of max() for each record is dear
                highest = durable
            expected += 1
            take(line, event, saga, epoch)
        else:
            self.expected, self.highest_mark = expected, highest
            return True
        self.expected, self.highest_mark = expected, highest
        return False

    def _checked(self, lines: list[bytes]) -> bool:
        """As `_handed`, for the lines that fit the chain."""
        good, previous = 0, self.previous
        for line in lines:
            follows = _hash_after(line, previous) if previous else _stated(line)
            follows = follows or _hash_behind(gap_of(line))
            if follows is None:
                break
            previous = follows
            good += 1
        self.previous = previous
        return self._handed(lines[:good]) and good == len(lines)


def _hash_after(line: bytes, previous: bytes) -> bytes | None:
    """Return the hash of the record behind one whose hash is `previous`; None if it has another."""
    at = line.find(b',"d":') + 1
    try:
        if at:
            digest = sha256(hash_bytes(line[-74:-52]) + line[at + 4 : -80]).digest()
        else:
            at = line.find(b',"y":"') + 1
            digest = hash_bytes(line[at + 5 : at + 48])
    except ValueError:
        return None
    found = sha256(previous + line[:at] + digest).digest()
    told = b2a_base64(found, newline=False).translate(_TO_URL, b"=")
    return found if told == line[-45:-2] else None


def _stated(line: bytes) -> bytes | None:
    """Return the hash that a line carries."""
    try:
        return hash_bytes(line[-45:-2])
    except ValueError:
        return None


def _hash_behind(gap: Gap | None) -> bytes | None:
    return None if gap is None else hash_bytes(gap.hash)


def _is_zero(data: bytes) -> bool:
    return data == _ZEROS[: len(data)] if len(data) <= _CHUNK else not data.strip(b"\0")

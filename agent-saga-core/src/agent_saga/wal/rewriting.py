"""New files without what leaves, beside the old ones, whole and durable.

Rules of this part:

- Only files in which a leaving saga has records are written anew, and those of a dead writer that
  are mostly allocated space. Files that follow one another become one, up to a bound.
- A kept record keeps its bytes. What lies between two kept ones becomes one gap, older gaps and the
  writer's own marks and seals included.
- A dead writer of which nothing is left but that it opened and closed leaves as a whole.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from agent_saga.domain.records import Ev
from agent_saga.wal.candidates import Candidates, WriterState
from agent_saga.wal.directory import WRITERS, write_all
from agent_saga.wal.exchange import DRAFT, Exchange, Plan
from agent_saga.wal.gaps import GAP, GrowingGap, digest_of, gap_of
from agent_saga.wal.scan import EnvelopeScan
from agent_saga.wal.segments import LAST_SIZE

if TYPE_CHECKING:
    from agent_saga.wal.os_port import OsPort

__all__ = ["Rewritten", "rewrite"]

_OWN: Final = frozenset({Ev.MARK.encode(), Ev.SEGMENT_SEAL.encode(), GAP})
_FRAME: Final = frozenset({Ev.WRITER_OPEN.encode(), Ev.WRITER_CLOSE.encode()})
_ROOMY: Final = 64 * 1024
_HASH: Final = slice(-45, -2)


class Rewritten(Struct, frozen=True):
    """What was written.

    Attributes:
        plan: what takes the place of what.
        gaps: for each new file with gaps, its writer and their digest.
        writers: the writers that leave, each with its last sequence and hash.
        records: how many records leave.
        shrunk: by how many bytes the files shrink.
    """

    plan: Plan
    gaps: list[tuple[str, str]]
    writers: list[tuple[str, int, str]]
    records: int
    shrunk: int

    @property
    def attested(self) -> bool:
        """Whether anything leaves that must be told."""
        return bool(self.gaps or self.writers)


def rewrite(port: OsPort, path: str, found: Candidates) -> Rewritten:
    """Write the new files of a log.

    Raises:
        OSError: something could not be read, written or synced.
    """
    plan: Plan = {}
    gaps: list[tuple[str, str]] = []
    writers: list[tuple[str, int, str]] = []
    records = shrunk = 0
    leaving = {saga.encode("utf-8", "surrogatepass") for saga in found.leaving.sagas}
    for writer, state in found.writers.items():
        if writer in found.leaving.writers or state.empty or state.spare:
            one = _Writer(port, path, writer, state, leaving)
            one.run()
            if one.exchange != Exchange():
                plan[writer] = one.exchange
            gaps += [(writer, digest) for digest in one.gaps]
            if one.exchange.leaves:
                writers.append((writer, state.expected - 1, one.last.decode("ascii")))
            records += one.records
            shrunk += one.shrunk
    return Rewritten(plan, gaps, writers, records, shrunk)


class _Writer:
    """One writer's files, written anew."""

    def __init__(
        self, port: OsPort, path: str, writer: str, state: WriterState, leaving: set[bytes]
    ) -> None:
        self.port = port
        self.writer = writer
        self.folder = os.path.join(path, WRITERS, writer)
        self.state = state
        self.leaving = leaving
        self.exchange = Exchange()
        self.gaps: list[str] = []
        self.records = self.shrunk = 0
        self.last = b""
        self._fresh: list[str] = []
        self._gone: list[str] = []
        self._stays = False
        self._lines: list[tuple[bytes, bytes, bool]] = []
        self._output: _Output | None = None

    def run(self) -> None:
        """Read file by file, and write what stays of those that change."""
        scan = EnvelopeScan(self.folder, self.writer, self.state.segments, self.port, self._take)
        for index in range(self.state.closed):
            self._lines = []
            if not scan.read(index):
                raise OSError(f"{self.state.segments[index]} changed while it was compacted")
            self._file(self.state.segments[index], scan.expected)
        self._finish_output()
        if self._fresh:
            # Their names too are durable before a plan can say that they are there.
            self.port.sync_directory(self.folder)
        if self.state.dead and self.state.whole and not self._stays and self.last:
            self._leave()
        else:
            self.exchange = Exchange(self._fresh, self._gone)

    def _take(self, line: bytes, event: bytes, saga: bytes, _epoch: bytes) -> None:
        leaves = saga in self.leaving if saga else event in _OWN
        self._lines.append((line, event, leaves))
        self.last = line[_HASH]

    def _file(self, name: str, behind: int) -> None:
        """Judge one file, and write what stays of it if it changes."""
        lines = self._lines
        size = self.port.stat(os.path.join(self.folder, name)).st_size
        if not lines:
            if self.state.dead:
                self._gone.append(name)
                self.shrunk += size
            return
        self._stays = self._stays or any(
            not leaves and event not in _FRAME for _, event, leaves in lines
        )
        left = sum(leaves and event not in _OWN for _, event, leaves in lines)
        used = sum(len(line) + 1 for line, _, _ in lines)
        roomy = self.state.dead and size - used >= _ROOMY
        merges = self._output is not None and all(leaves for _, _, leaves in lines)
        if not (left or roomy or merges):
            self._finish_output()
            return
        self._write(name, lines, behind)
        self.shrunk += size

    def _write(self, name: str, lines: list[tuple[bytes, bytes, bool]], behind: int) -> None:
        if self._output is not None and self._output.size >= LAST_SIZE:
            self._finish_output()
        if self._output is None:
            first = behind - _records_in(lines)
            self._output = _Output(self.port, os.path.join(self.folder, name), first)
            self._fresh.append(name)
        else:
            self._gone.append(name)
        self.records += self._output.add(lines)

    def _finish_output(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            output.finish()
            self.shrunk -= output.size
            if output.gaps:
                self.gaps.append(digest_of(self.writer, output.gaps))

    def _leave(self) -> None:
        """Let the writer leave as a whole."""
        for name in self.state.segments:
            if name not in self._gone and name not in self._fresh:
                self.shrunk += self.port.stat(os.path.join(self.folder, name)).st_size
        self.gaps = []
        self.exchange = Exchange(leaves=True)


def _records_in(lines: list[tuple[bytes, bytes, bool]]) -> int:
    """How many sequences a file holds, those of its gaps included."""
    count = 0
    for line, event, _ in lines:
        gap = gap_of(line) if event == GAP else None
        count += 1 if gap is None else gap.last - gap.first + 1
    return count


class _Output:
    """One new file, under a name that no reader looks at.

    Attributes:
        size: its bytes so far.
        gaps: its gaps, as lines.
    """

    def __init__(self, port: OsPort, place: str, first: int) -> None:
        self.gaps: list[bytes] = []
        self.size = 0
        self._port = port
        self._next = first
        self._gap: GrowingGap | None = None
        self._fd = port.open(place + DRAFT, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def add(self, lines: list[tuple[bytes, bytes, bool]]) -> int:
        """Write what stays of some lines; returns how many records leave."""
        kept: list[bytes] = []
        records = 0
        for line, event, leaves in lines:
            gap = gap_of(line) if event == GAP else None
            last = self._next if gap is None else gap.last
            if leaves:
                if self._gap is None:
                    self._gap = GrowingGap(self._next)
                self._gap.add(last, line[_HASH] if gap is None else gap.digest, line[_HASH])
                records += gap is None
            else:
                self._close_gap(kept)
                kept.append(line)
            self._next = last + 1
        self._write(kept)
        return records

    def finish(self) -> None:
        """Make the file whole and durable."""
        kept: list[bytes] = []
        self._close_gap(kept)
        try:
            self._write(kept)
            self._port.fsync(self._fd)
        finally:
            self._port.close(self._fd)

    def _close_gap(self, kept: list[bytes]) -> None:
        gap, self._gap = self._gap, None
        if gap is not None:
            self.gaps.append(gap.line())
            kept.append(self.gaps[-1])

    def _write(self, lines: list[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        if data:
            write_all(self._port, self._fd, data, self.size)
            self.size += len(data)

"""Is what a writer says of a saga as it was written? Read against its chain, from there to its end.

Rules of this part:

- Reading begins in the file that holds the record before the first one that matters, and goes on to
  the writer's end: a record is proved by all that stands behind it. What stands before it proves
  nothing about it, so it is not read.
- Of a file from which records left by compaction, a COMPACTED record in a chain of this log must
  tell; otherwise something may have been taken out by hand.
- A whole record whose hash does not follow was changed: it is damage also at the end of a log,
  where an unfinished line is a torn tail.
- Memory is one piece of a segment and the records of the saga that is asked about.
"""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from agent_saga.domain.records import Ev
from agent_saga.wal.attestations import attested_in
from agent_saga.wal.checkpoint import first_record_of
from agent_saga.wal.damage import Damage, unreadable
from agent_saga.wal.directory import WRITERS
from agent_saga.wal.format import Record, parsed
from agent_saga.wal.gaps import GAP, digest_of, gap_of
from agent_saga.wal.reader import writers_of
from agent_saga.wal.scan import EnvelopeScan, take_writer
from agent_saga.wal.takeover import LogState, log_state

if TYPE_CHECKING:
    from agent_saga.wal.os_port import OsPort
    from agent_saga.wal.view import View

__all__ = ["Proof", "attested", "proof_of"]

UNATTESTED: Final = "records left this file, and no COMPACTED record attests it"
_COMPACTED: Final = Ev.COMPACTED.encode()


class Proof(Struct, frozen=True):
    """What reading a writer against its chain has shown.

    Attributes:
        since: the sequence from which on it was read.
        state: what its log looked like before; None if that could not tell of a change.
        damages: the places that are not as they were written.
        gaps: the files from which records left: name, last sequence that left, digest.
        records: those of the saga that was asked about, in sequence.
        at: the monotonic time at which it looked so, in seconds.
    """

    since: int
    state: LogState | None
    damages: list[Damage]
    gaps: list[tuple[str, int, str]]
    records: list[Record]
    at: float = math.inf


def proof_of(view: View, path: str, writer: str, port: OsPort, *, since: int, saga: str) -> Proof:
    """Read a writer against its chain; what cannot be read is damage.

    Args:
        view: the log's files.
        path: the log's directory.
        writer: the writer's id.
        port: the system calls.
        since: the first sequence that matters.
        saga: whose records are handed on.
    """
    folder = os.path.join(path, WRITERS, writer)
    state, at = log_state(path, writer, port), time.monotonic()
    try:
        names = view.segments(writer)
    except OSError as error:
        return Proof(since, None, [unreadable(writer, error)], [], [])
    wanted = saga.encode("utf-8", "surrogatepass")
    lines: list[bytes] = []
    gaps: dict[str, list[bytes]] = {}

    def take(line: bytes, event: bytes, whose: bytes, _epoch: bytes) -> None:
        if whose == wanted:
            lines.append(line)
        elif event == GAP:
            gaps.setdefault(names[scan.segment], []).append(line)

    scan = EnvelopeScan(folder, writer, names, port, take, verify=True)
    first, expected = _start(port, folder, names, since)
    if first:
        scan.begin_inside(expected)
    damages = list(scan.run(first))
    records = [record for record in (parsed(line, writer) for line in lines) if record is not None]
    return Proof(since, state, damages, _gaps(writer, gaps), records, at)


def _start(port: OsPort, folder: str, names: list[str], since: int) -> tuple[int, int]:
    """Return the file to begin with, and its first sequence.

    A segment that failed is written again further on, so a later file may go back behind it.
    """
    lowest = since
    for index in range(len(names) - 1, 0, -1):
        try:
            first = first_record_of(port, os.path.join(folder, names[index]))
        except (OSError, ValueError):
            continue  # it was made ready and never used, or is judged when it is read
        if first < lowest:
            return index, first
        lowest = min(lowest, first)
    return 0, 1


def _gaps(writer: str, gaps: dict[str, list[bytes]]) -> list[tuple[str, int, str]]:
    found = []
    for name, lines in gaps.items():
        lasts = [gap.last for gap in map(gap_of, lines) if gap is not None]
        found.append((name, max(lasts, default=0), digest_of(writer, lines)))
    return found


def attested(view: View, path: str, port: OsPort) -> set[tuple[str, str]]:
    """Return the writers and digests of gaps that a chain of this log attests; reads all of it."""
    found: set[tuple[str, str]] = set()

    def take(line: bytes, event: bytes, _saga: bytes, _epoch: bytes) -> None:
        record = parsed(line) if event == _COMPACTED else None
        if record is not None:
            found.update(attested_in(record))

    for writer in writers_of(path, port):
        if not view.leaves(writer):
            take_writer(view, path, writer, port, take, verify=True)
    return found

"""Is a log as it was written? Every writer's chain, and what left by compaction.

Rules of this part:

- One pass, with the memory of one piece of a segment, however long the log is. Nothing is changed.
- A writer is intact only if each record follows from the one before it. A gap that compaction left
  counts only if a COMPACTED record in a chain of this log attests it; whatever else is not there is
  lost.
- A claim names how far it had read other writers: who ends before that, or is not there, has lost
  records.
- A torn end of a dead writer was never confirmed to anybody, and is not intact. One that lives may
  be in the middle of a line.
- Heads are not signed, so a cut end, or a log that was rewritten as a whole, is not seen; the
  report says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, NamedTuple

from agent_saga.domain.effective import cuts_of
from agent_saga.domain.records import Ev
from agent_saga.errors import ConfigurationError, NotFound
from agent_saga.wal.attestations import attested_in, writers_in
from agent_saga.wal.base import BaseWAL
from agent_saga.wal.damage import Damage, unreadable
from agent_saga.wal.directory import WRITERS, check_readable
from agent_saga.wal.file import FileWAL
from agent_saga.wal.format import Record, first_hash, hash_after, hash_bytes, parsed
from agent_saga.wal.gaps import GAP, digest_of, gap_of
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import writers_of
from agent_saga.wal.scan import EnvelopeScan
from agent_saga.wal.takeover import dead_writers
from agent_saga.wal.view import View

__all__ = ["ChainReport", "Problem", "WriterReport", "verify_chain"]

INTACT: Final = "intact"
TORN: Final = "torn tail"
DAMAGE: Final = "damage"
MISSING: Final = "missing segment"
MISMATCH: Final = "attestation mismatch"
_WORST: Final = (DAMAGE, MISSING, MISMATCH, TORN)

UNSIGNED: Final = (
    "Heads are not signed: a cut end, or a log that was rewritten as a whole, cannot be seen."
)

_COMPACTED: Final = Ev.COMPACTED.encode()
_CLAIM: Final = Ev.SAGA_CLAIM.encode()


class Problem(NamedTuple):
    """One thing that is not as it was written.

    Attributes:
        kind: "torn tail", "damage", "missing segment" or "attestation mismatch".
        segment, offset: where, in bytes.
        seq: the first sequence that is concerned.
        reason: what is wrong, in words.
    """

    kind: str
    segment: str
    offset: int
    seq: int
    reason: str


class WriterReport(NamedTuple):
    """What became of one writer's chain.

    Attributes:
        writer: its id.
        state: "intact", or the worst kind of its problems.
        records: how many records are there.
        left: how many records left by compaction, as is attested.
        problems: what is not as it was written.
        lost: how many records are not there and did not leave by compaction.
    """

    writer: str
    state: str
    records: int
    left: int
    problems: list[Problem]
    lost: int = 0


class ChainReport(NamedTuple):
    """What verifying a log found; true only if it is intact.

    Attributes:
        log: the log's address.
        writers: each writer's part, oldest first.
        departed: how many writers left as a whole, attested.
        heads: whether heads are signed: "unsigned".
    """

    log: str
    writers: list[WriterReport]
    departed: int
    heads: str = "unsigned"

    @property
    def intact(self) -> bool:
        """Whether every writer is intact; a log without records is."""
        return all(one.state == INTACT for one in self.writers)

    @property
    def records(self) -> int:
        """How many records are there."""
        return sum(one.records for one in self.writers)

    def __bool__(self) -> bool:
        return self.intact

    def summary(self) -> str:
        """Return the whole in one sentence."""
        told = f"{self.records} records of {len(self.writers)} writers"
        broken = sum(one.state != INTACT for one in self.writers)
        return f"{told}: {'intact' if not broken else f'{broken} writers are not intact'}."

    def as_dict(self) -> dict[str, object]:
        """Return the report as plain data."""
        writers = [
            {**one._asdict(), "problems": [problem._asdict() for problem in one.problems]}
            for one in self.writers
        ]
        return {
            "log": self.log,
            "intact": self.intact,
            "records": self.records,
            "writers": writers,
            "departed": self.departed,
            "heads": self.heads,
        }


def verify_chain(log: BaseWAL | str | os.PathLike[str] | Iterable[Record]) -> ChainReport:
    """Check that a log is as it was written.

    Args:
        log: a log, the path or `file:` address of one, or records in the order of `read_all`.

    Returns:
        A report; it is true only if everything is intact.

    Raises:
        NotFound: no log stands at the path.
        WALError: the directory as a whole is no log that can be read.
        ConfigurationError: it is no log and no path.

    Reads only; a crash leaves nothing behind. Fails closed: what cannot be read is not intact.
    """
    if isinstance(log, FileWAL):
        if log.written < log.seq:
            log.drain()
        return _of_files(log.path, log.port)
    if isinstance(log, BaseWAL):
        return _of_records(log.read_all(), log.address)
    if isinstance(log, str | os.PathLike):
        path = os.path.abspath(os.fspath(log).removeprefix("file:"))  # noqa: PTH100 - keeps symlinks
        _check_is_log(path, OsPort())
        return _of_files(path, OsPort())
    if isinstance(log, Iterable):
        return _of_records(log, "records")
    raise ConfigurationError(f"verify_chain takes a log, a path or records, not {log!r}.")


# --- files ----------------------------------------------------------------------------------------


class _Seen:
    """What the writers say of each other.

    Attributes:
        attested: the writers and digests of gaps that are attested.
        departed: the writers that left.
        read_to: how far claims had read each writer.
    """

    def __init__(self) -> None:
        self.attested: set[tuple[str, str]] = set()
        self.departed: dict[str, int] = {}
        self.read_to: dict[str, int] = {}

    def take(self, event: bytes, record: Record) -> None:
        """Take in a record that tells of other writers."""
        if event == _CLAIM:
            for writer, seq in cuts_of(record).items():
                self.read_to[writer] = max(seq, self.read_to.get(writer, 0))
        else:
            self.attested |= attested_in(record)
            self.departed |= writers_in(record)


class _Pass:
    """One writer's chain, while it is read.

    Attributes:
        records, left: how many are there, and how many left.
        last: the last sequence.
        gaps: the lines of the gaps, by file.
        problems: what is wrong.
    """

    def __init__(self, writer: str, seen: _Seen) -> None:
        self.writer = writer
        self.records = self.last = 0
        self.gaps: dict[str, list[bytes]] = {}
        self.problems: list[Problem] = []
        self._seen = seen

    def read(self, view: View, path: str, port: OsPort, *, lives: bool) -> None:
        """Read all of it."""
        folder = os.path.join(path, WRITERS, self.writer)  # noqa: PTH118 - pathlib is slow to load
        try:
            segments = view.segments(self.writer)
        except OSError as error:
            self.problems.append(_problem(unreadable(self.writer, error)))
            return

        def take(line: bytes, event: bytes, _saga: bytes, _epoch: bytes) -> None:
            if event == GAP:
                self.gaps.setdefault(segments[scan.segment], []).append(line)
                return
            self.records += 1
            if event in (_COMPACTED, _CLAIM):
                record = parsed(line, self.writer)
                if record is not None:
                    self._seen.take(event, record)

        scan = EnvelopeScan(folder, self.writer, segments, port, take, verify=True)
        for damage in scan.run():
            if damage.kind != "torn-tail" or not lives:
                self.problems.append(_problem(damage))
        self.last = scan.expected - 1

    def judge(self) -> WriterReport:
        """Compare with what the others say, and report."""
        mismatches, left = _unattested(self.writer, self.gaps, self._seen.attested)
        self.problems += mismatches
        read_to = self._seen.read_to.get(self.writer, 0)
        if read_to > self.last:
            reason = f"another writer had read it up to {read_to}, and it ends at {self.last}"
            self.problems.append(Problem(MISSING, "", 0, self.last + 1, reason))
        lost = max(self.last - self.records - left, 0)
        if lost and not self.problems:
            reason = f"{lost} records are missing, and nothing attests that they left"
            self.problems.append(Problem(MISSING, "", 0, 0, reason))
        state = _worst(self.problems)
        return WriterReport(self.writer, state, self.records, left, self.problems, lost)


def _unattested(
    writer: str, gaps: dict[str, list[bytes]], attested: set[tuple[str, str]]
) -> tuple[list[Problem], int]:
    """Return the files of a writer of which nothing attests what left, and how many left others."""
    reason = "records left this file, and no COMPACTED record attests it"
    problems, left = [], 0
    for name, lines in gaps.items():
        if (writer, digest_of(writer, lines)) in attested:
            left += sum(gap.last - gap.first + 1 for gap in map(gap_of, lines) if gap is not None)
        else:
            problems.append(Problem(MISMATCH, name, 0, 0, reason))
    return problems, left


def _check_is_log(path: str, port: OsPort) -> None:
    """Refuse a path at which no log stands: that would be intact, whatever was meant."""
    from pathlib import Path  # noqa: PLC0415 - slow to load

    if check_readable(port, path) and Path(path, WRITERS).exists():
        return
    raise NotFound(
        f"There is no log at {path}; nothing was verified.",
        fix="Name the folder that the program writes its log to.",
    )


def _of_files(path: str, port: OsPort) -> ChainReport:
    address = f"file:{path}"
    if not check_readable(port, path):
        return ChainReport(address, [], 0)
    seen = _Seen()
    with View(port, path) as view:
        names = [name for name in writers_of(path, port) if not view.leaves(name)]
        dead = dead_writers(path, port)
        passes = [_Pass(name, seen) for name in names]
        for one in passes:
            one.read(view, path, port, lives=one.writer not in dead)
    writers = [one.judge() for one in passes] + _missing(seen, set(names))
    return ChainReport(address, sorted(writers), len(seen.departed))


def _missing(seen: _Seen, names: set[str]) -> list[WriterReport]:
    """Return the writers that a claim names, and that are not there and have not left."""
    reason = "a claim names this writer, and its folder is not there"
    return [
        WriterReport(writer, MISSING, 0, 0, [Problem(MISSING, "", 0, 1, reason)])
        for writer in sorted(seen.read_to.keys() - names - seen.departed.keys())
    ]


def _problem(damage: Damage) -> Problem:
    kind = TORN if damage.kind == "torn-tail" else DAMAGE
    if kind == DAMAGE and damage.offset == 0 and damage.reason.endswith("are missing"):
        kind = MISSING
    return Problem(kind, damage.segment, damage.offset, damage.seq, damage.reason)


def _worst(problems: list[Problem]) -> str:
    kinds = {problem.kind for problem in problems}
    return next((kind for kind in _WORST if kind in kinds), INTACT)


# --- records --------------------------------------------------------------------------------------


def _of_records(records: Iterable[Record], address: str) -> ChainReport:
    """Check records that stand in no files; what left cannot be told from what was taken out."""
    counts: dict[str, int] = {}
    problems: dict[str, list[Problem]] = {}
    ends: dict[str, tuple[int, bytes]] = {}
    for record in records:
        if not isinstance(record, Record):
            raise ConfigurationError(f"verify_chain takes records of a log, not {record!r}.")
        writer = record.writer
        seq, previous = ends.get(writer) or (0, first_hash(writer))
        counts[writer] = counts.get(writer, 0) + 1
        told = problems.setdefault(writer, [])
        if record.seq != seq + 1:
            reason = f"the records from {seq + 1} to {record.seq - 1} are missing"
            told.append(Problem(MISSING, "", 0, seq + 1, reason))
        elif hash_after(record, previous) != _hash(record):
            reason = "its hash does not follow from the record before it"
            told.append(Problem(DAMAGE, "", 0, record.seq, reason))
        ends[writer] = record.seq, _hash(record)
    writers = [
        WriterReport(writer, _worst(problems[writer]), count, 0, problems[writer])
        for writer, count in sorted(counts.items())
    ]
    return ChainReport(address, writers, 0)


def _hash(record: Record) -> bytes:
    try:
        return hash_bytes(record.hash)
    except ValueError:
        return b"\0"

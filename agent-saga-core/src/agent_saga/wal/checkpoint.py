"""A checkpoint of the log: where reading for what is open can begin, and what was open there.

Rules of this part:

- A checkpoint is a shortcut and never a source: it names places in the log, and what is told of a
  saga is read there. What cannot be read, does not fit, is of another version or another start of
  this host, or stands before files that have changed, is ignored as a whole, and the log is read
  from its beginning.
- It covers only files to which nobody writes any more, and that are cut to their size. Of each it
  holds inode, size and last change, so that an edit, a compaction or a copy makes it void. Those of
  a moment ago are left out: a file system's times are coarse.
- It is written in one step, by whoever recovers; reading makes nothing. While anything is damaged
  none is written.
- Whoever can write it can write the log; it proves nothing.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from agent_saga.observe.logger import logger
from agent_saga.wal.directory import WRITERS, write_all
from agent_saga.wal.exchange import DRAFT
from agent_saga.wal.format import parsed
from agent_saga.wal.gaps import gap_of
from agent_saga.wal.limits import MAX_LINE
from agent_saga.wal.os_port import reading
from agent_saga.wal.takeover import is_recent
from agent_saga.wal.writer import is_writer_id

if TYPE_CHECKING:
    from agent_saga.wal.os_port import OsPort
    from agent_saga.wal.view import View

__all__ = [
    "CHECKPOINT",
    "NO_CHECKPOINT",
    "Checkpoint",
    "Covered",
    "File",
    "first_record_of",
    "identities",
    "is_closed",
    "read_checkpoint",
    "write_checkpoint",
]

CHECKPOINT: Final = "checkpoint"
WORTH = 1024 * 1024
"""Bytes that a checkpoint must cover more than the one before it."""

_MOST: Final = 64 * 1024 * 1024
_TAIL: Final = 64 * 1024
_PIECE: Final = 1024 * 1024
_VERSION: Final = 2

_log = logger("agent_saga.wal")

Lines = Mapping[bytes, list[bytes]]
"""Lines of records by saga, in sequence."""


File = tuple[str, int, int, int]
"""A file as it was: its name, inode, size and last change."""


class Covered(msgspec.Struct, frozen=True):
    """The part of a writer that a checkpoint covers.

    Attributes:
        files: its first files.
        expected: the sequence that comes next.
        lines: what was open there, with all of it that stands in those files.
    """

    files: list[File]
    expected: int
    lines: Lines

    @property
    def size(self) -> int:
        """The bytes in those files."""
        return sum(file[2] for file in self.files)


Checkpoint = Mapping[str, Covered]
"""By writer."""

NO_CHECKPOINT: Final[Checkpoint] = {}

_Place = tuple[int, int, int]


class _Writer(msgspec.Struct):
    files: list[File]
    last: int
    hash: str
    open: dict[str, list[_Place]]


class _Stored(msgspec.Struct):
    version: int
    boot: str
    writers: dict[str, _Writer]
    digest: str = ""


# --- reading --------------------------------------------------------------------------------------


def read_checkpoint(port: OsPort, path: str, view: View) -> Checkpoint:
    """Return the checkpoint of a log; an empty one if there is none that holds.

    Args:
        port: the system calls.
        path: the log's directory.
        view: its files.
    """
    try:
        stored = _stored(port, path)
        if stored is None or view.is_half_in_place or stored.boot != port.boot_id():
            return NO_CHECKPOINT
        found = {
            writer: _covered(port, os.path.join(path, WRITERS, writer), view.segments(writer), one)
            for writer, one in stored.writers.items()
        }
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        _log.info("The checkpoint of the log %s is not used: %s", path, error)
        return NO_CHECKPOINT
    return found


def _stored(port: OsPort, path: str) -> _Stored | None:
    try:
        with reading(port, os.path.join(path, CHECKPOINT)) as fd:
            if port.fstat(fd).st_size > _MOST:
                raise ValueError("it is too large")
            data = port.pread(fd, _MOST, 0)
    except FileNotFoundError:
        return None
    stored = msgspec.json.decode(data, type=_Stored)
    if stored.version != _VERSION or stored.digest != _digest(stored):
        raise ValueError("it is of another version, or torn")
    if not all(map(is_writer_id, stored.writers)):
        raise ValueError("it names what is no writer")
    return stored


def _covered(port: OsPort, folder: str, segments: list[str], stored: _Writer) -> Covered:
    """Return what is covered of a writer.

    Raises:
        ValueError: the log says otherwise.
        OSError: the log cannot be read.
    """
    names = segments[: len(stored.files)]
    _check_unchanged(port, folder, names, stored.files)
    if _last_line(port, os.path.join(folder, names[-1])) != (stored.last, stored.hash):
        raise ValueError(f"what it covers of {folder} ends otherwise")
    lines: dict[bytes, list[bytes]] = {}
    for saga, places in stored.open.items():
        found = _read_places(port, folder, names, places, saga)
        lines[saga.encode("utf-8", "surrogatepass")] = found
    return Covered(stored.files, stored.last + 1, lines)


def _check_unchanged(port: OsPort, folder: str, names: list[str], files: list[File]) -> None:
    """Refuse files that are not, to the inode and the moment, those that were read."""
    if not names or identities(port, folder, names) != files:
        raise ValueError(f"files of {folder} have changed")


def _read_places(
    port: OsPort, folder: str, names: list[str], places: list[_Place], saga: str
) -> list[bytes]:
    lines: list[bytes] = []
    last = 0
    for file, offset, length in places:
        if not (0 <= file < len(names) and offset >= 0 and 0 < length <= MAX_LINE):
            raise ValueError("a place is none")
        line = _read(port, os.path.join(folder, names[file]), length, offset)
        record = parsed(line)
        if record is None or record.saga != saga or record.seq <= last:
            raise ValueError("a place holds something else")
        last = record.seq
        lines.append(line)
    if not lines:
        raise ValueError("an open saga has no record")
    return lines


def identities(port: OsPort, folder: str, names: list[str]) -> list[File]:
    """Return how files look now.

    Raises:
        OSError: one of them cannot be looked at.
    """
    found = [(name, port.stat(os.path.join(folder, name))) for name in names]
    return [(name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in found]


def _last_line(port: OsPort, place: str) -> tuple[int, str]:
    """The last sequence of a file and its hash, as they stand in its last line."""
    size = port.stat(place).st_size
    for length in (_TAIL, MAX_LINE):
        tail = _read(port, place, min(length, size), max(0, size - length))
        if tail[-1:] == b"\n" and (length >= size or b"\n" in tail[:-1]):
            line = tail[:-1].rpartition(b"\n")[2]
            return _end_of(line)
    raise ValueError("a file does not end with a line")


def _end_of(line: bytes) -> tuple[int, str]:
    record, gap = parsed(line), gap_of(line)
    if record is not None:
        return record.seq, record.hash.decode("ascii")
    if gap is not None:
        return gap.last, gap.hash.decode("ascii")
    raise ValueError("a file does not end with a record")


def _read(port: OsPort, place: str, length: int, offset: int) -> bytes:
    with reading(port, place) as fd:
        return port.pread(fd, length, offset)


# --- writing --------------------------------------------------------------------------------------


def is_closed(file: File, used: int) -> bool:
    """Whether a file is cut to what is used of it, and was not of a moment ago.

    Args:
        file: how it looked before it was read.
        used: the bytes of it that hold lines.
    """
    return 0 < used == file[2] and not is_recent(file[3])


def write_checkpoint(port: OsPort, path: str, covered: Checkpoint) -> None:
    """Write a checkpoint durably; one that cannot be written is not there, and nothing else.

    Args:
        port: the system calls.
        path: the log's directory.
        covered: what it covers.
    """
    draft = os.path.join(path, f"{CHECKPOINT}.{os.urandom(8).hex()}{DRAFT}")
    try:
        writers = {
            writer: _stored_writer(port, os.path.join(path, WRITERS, writer), one)
            for writer, one in covered.items()
        }
        stored = _Stored(_VERSION, port.boot_id(), writers)
        stored.digest = _digest(stored)
        fd = port.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(port, fd, msgspec.json.encode(stored), 0)
            port.fsync(fd)
        finally:
            port.close(fd)
        port.replace(draft, os.path.join(path, CHECKPOINT))
        port.sync_directory(path)
    except (OSError, ValueError) as error:
        _log.warning("No checkpoint of the log %s could be written: %s", path, error)
        with contextlib.suppress(OSError):
            port.unlink(draft)


def _stored_writer(port: OsPort, folder: str, covered: Covered) -> _Writer:
    last, own = _last_line(port, os.path.join(folder, covered.files[-1][0]))
    if last != covered.expected - 1:
        raise ValueError("the log has changed meanwhile")
    wanted = [line for lines in covered.lines.values() for line in lines]
    places = _places(port, folder, covered.files, wanted)
    sagas = {
        saga.decode("utf-8", "surrogatepass"): [places[line] for line in lines]
        for saga, lines in covered.lines.items()
    }
    return _Writer(covered.files, last, own, sagas)


def _places(
    port: OsPort, folder: str, files: list[File], wanted: Iterable[bytes]
) -> dict[bytes, _Place]:
    """Find where lines stand.

    Raises:
        ValueError: one of them does not.
    """
    paths = [os.path.join(folder, name) for name, *_ in files]
    firsts = [first_record_of(port, path) for path in paths]
    found: dict[bytes, _Place] = {}
    by_file: dict[int, list[bytes]] = {}
    for line in wanted:
        by_file.setdefault(bisect_right(firsts, _end_of(line)[0]) - 1, []).append(line)
    for index, lines in by_file.items():
        for line, at in _offsets(port, paths[index], lines).items():
            found[line] = (index, at, len(line))
    if any(line not in found for lines in by_file.values() for line in lines):
        raise ValueError("a line is not where it was read")
    return found


def first_record_of(port: OsPort, place: str) -> int:
    """The first sequence of a file.

    Raises:
        ValueError: it does not begin with a record.
        OSError: it cannot be read.
    """
    for length in (_TAIL, MAX_LINE):
        line, ended, _ = _read(port, place, length, 0).partition(b"\n")
        if ended:
            gap = gap_of(line)
            return _end_of(line)[0] if gap is None else gap.first
    raise ValueError("a file does not begin with a line")


def _offsets(port: OsPort, place: str, lines: list[bytes]) -> dict[bytes, int]:
    """Find lines in a file, piece by piece."""
    overlap = max(map(len, lines)) + 2
    found: dict[bytes, int] = {}
    begin, piece = 0, b"\n" + _read(port, place, _PIECE, 0)
    while len(piece) > overlap or begin == 0:
        for line in lines:
            at = piece.find(b"\n" + line + b"\n")
            if at >= 0:
                found[line] = begin + at
        begin += max(1, len(piece) - overlap)
        piece = _read(port, place, _PIECE, begin - 1)
    return found


def _digest(stored: _Stored) -> str:
    plain = msgspec.json.encode([stored.version, stored.boot, stored.writers])
    return sha256(plain).hexdigest()

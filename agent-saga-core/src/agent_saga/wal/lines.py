"""The lines of a writer's segments, one after the other, in little memory.

Rules of this part:

- A line ends with a line break; zeros before it are allocated space and are stripped. A rest
  without a line break is given too: it is what was being written when everything stopped. So is
  what stands before a long run of zeros, since no line holds a zero.
- A line longer than any record is given as one line without content, and so is what the operating
  system cannot read: both are bad places, not errors.
- A live writer removes segments that it prepared and never used. One that is gone when its turn
  comes held nothing; what a removed one did hold is missed by the sequence of those that follow.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from agent_saga.wal.limits import MAX_LINE
from agent_saga.wal.os_port import close_quietly

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from agent_saga.wal.os_port import OsPort

__all__ = ["Line", "lines_of", "segments_in"]

_CHUNK: Final = 256 * 1024
_ZEROS: Final = bytes(_CHUNK)


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line and where it stands; `behind` is the offset of the next one.

    `zeros` tells how many zeros stood before it, `ended` whether it has its line break, `long` that
    it is longer than any record and so without content, `problem` why a place has none at all.
    """

    segment: int
    offset: int
    behind: int
    data: bytes
    zeros: int = 0
    problem: str = ""
    ended: bool = True
    long: bool = False


def segments_in(port: OsPort, folder: str) -> list[str]:
    """The names of a writer's segments in the order in which they were made."""
    names = port.listdir(folder)
    return [name for name in names if name.startswith("seg-") and name.endswith(".jsonl")]


def lines_of(
    port: OsPort, folder: str, segments: list[str], segment: int = 0, offset: int = 0
) -> Generator[Line]:
    """The lines from an offset of a segment to the end of the last one.

    Args:
        port: the system calls.
        folder: the writer's folder.
        segments: the names, in order.
        segment: the index of the first one to read.
        offset: where to begin in it, in bytes.
    """
    for index in range(segment, len(segments)):
        start = offset if index == segment else 0
        try:
            fd = port.open(os.path.join(folder, segments[index]), os.O_RDONLY)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and _is_gone(port, folder, segments[index]):
                continue
            problem = f"the segment cannot be opened ({error})"
            yield Line(index, start, start, b"", problem=problem)
            continue
        try:
            yield from _lines_in(port, fd, index, start)
        finally:
            close_quietly(port, fd)


def _is_gone(port: OsPort, folder: str, segment: str) -> bool:
    """Say whether a segment that was listed is there no more."""
    try:
        return segment not in segments_in(port, folder)
    except OSError:
        return False


def _lines_in(port: OsPort, fd: int, index: int, offset: int) -> Iterator[Line]:
    rest, long = b"", False
    position, void = offset, 0
    while True:
        try:
            chunk = port.pread(fd, _CHUNK, position)
        except OSError as error:
            problem = f"the segment cannot be read ({error})"
            yield Line(index, offset, offset, b"", problem=problem)
            return
        if not chunk or _is_zero(chunk):
            if long or not _is_zero(rest):
                written = rest.rstrip(b"\0")
                behind = position if long else offset + len(written)
                yield _line(index, offset, behind, written, void, long, ended=False)
                void = 0
            if not chunk:
                return
            void += len(rest) + len(chunk)
            rest, long = b"", False
            position = offset = position + len(chunk)
            continue
        position += len(chunk)
        *whole, rest = (rest + chunk if rest else chunk).split(b"\n")
        for data in whole:
            behind = offset + len(data) + 1
            yield _line(index, offset, behind, b"" if long else data, void, long)
            offset, long, void = behind, False, 0
        if long or len(rest) > MAX_LINE:
            offset, rest, long = offset + len(rest), b"", True


def _line(
    index: int, offset: int, behind: int, data: bytes, void: int, long: bool, *, ended: bool = True
) -> Line:
    content = data.lstrip(b"\0") if data[:1] == b"\0" else data
    zeros = void + len(data) - len(content)
    return Line(index, offset, behind, content, zeros, ended=ended, long=long)


def _is_zero(data: bytes) -> bool:
    return data == _ZEROS[: len(data)]

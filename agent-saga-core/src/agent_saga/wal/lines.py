"""The lines of a writer's segments, one after the other, in little memory.

Rules of this part:

- A line ends with a line break; zeros before it are allocated space and are stripped. A rest
  without a line break is given too: it is what was being written when everything stopped.
- A line longer than any record is given as one line without content, and so is what the operating
  system cannot read: both are bad places, not errors.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from agent_saga.wal.limits import MAX_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.wal.os_port import OsPort

__all__ = ["Line", "lines_of", "segments_in"]

_CHUNK: Final = 256 * 1024


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line and where it stands; `behind` is the offset of the next one.

    `problem` says why a place has no content at all.
    """

    segment: int
    offset: int
    behind: int
    data: bytes
    problem: str = ""


def segments_in(port: OsPort, folder: str) -> list[str]:
    """The names of a writer's segments in the order in which they were made."""
    names = port.listdir(folder)
    return [name for name in names if name.startswith("seg-") and name.endswith(".jsonl")]


def lines_of(
    port: OsPort, folder: str, segments: list[str], segment: int = 0, offset: int = 0
) -> Iterator[Line]:
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
            yield Line(index, start, start, b"", f"the segment cannot be opened ({error})")
            continue
        try:
            yield from _lines_in(port, fd, index, start)
        finally:
            port.close(fd)


def _lines_in(port: OsPort, fd: int, index: int, offset: int) -> Iterator[Line]:
    rest, long = b"", False
    position = offset
    while True:
        try:
            chunk = port.pread(fd, _CHUNK, position)
        except OSError as error:
            yield Line(index, offset, offset, b"", f"the segment cannot be read ({error})")
            return
        if not chunk:
            break
        position += len(chunk)
        *whole, rest = (rest + chunk if rest else chunk).split(b"\n")
        for data in whole:
            behind = offset + len(data) + 1
            yield Line(index, offset, behind, b"" if long else data.lstrip(b"\0"))
            offset, long = behind, False
        if rest and (long or len(rest) > MAX_LINE or not rest.strip(b"\0")):
            long = long or bool(rest.strip(b"\0"))
            offset += len(rest)
            rest = b""
    rest = rest.lstrip(b"\0")
    if rest or long:
        yield Line(index, offset, offset + len(rest), rest)

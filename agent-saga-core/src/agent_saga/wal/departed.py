"""What has left a log by compaction and must still be known: named sagas, and whole writers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from agent_saga.domain.records import Ev
from agent_saga.errors import WALError
from agent_saga.wal.attestations import names_in, writers_in
from agent_saga.wal.directory import WRITERS, check_readable
from agent_saga.wal.format import Record, parsed
from agent_saga.wal.limits import MAX_LINE
from agent_saga.wal.os_port import OsPort, reading
from agent_saga.wal.reader import writers_of
from agent_saga.wal.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["compactions", "has_departed", "named_that_left", "writers_that_left"]

_COMPACTED: Final = b'"e":"' + Ev.COMPACTED.encode() + b'"'
_CHUNK: Final = 1024 * 1024


def has_departed(path: str, saga: str) -> bool:
    """Say whether a saga that its user had named, or that was claimed, has left the log.

    Raises:
        WALError: the log cannot be read.
    """
    return saga in named_that_left(path)


def named_that_left(path: str) -> set[str]:
    """Return the sagas that have left a log, and that their users had named or somebody claimed.

    Raises:
        WALError: the log cannot be read.
    """
    return {name for record in compactions(path, OsPort()) for name in names_in(record)}


def writers_that_left(path: str, port: OsPort) -> set[str]:
    """Return the writers that have left a log.

    Raises:
        WALError: the log cannot be read.
    """
    return {writer for record in compactions(path, port) for writer in writers_in(record)}


def compactions(path: str, port: OsPort) -> Iterator[Record]:
    """Yield the COMPACTED records of a log; only lines that hold that word are looked at.

    Raises:
        WALError: the log cannot be read.
    """
    with View(port, path) as view:
        for writer in writers_of(path, port) if check_readable(port, path) else ():
            try:
                for line in _lines_with_it(view, path, writer, port):
                    record = parsed(line, writer)
                    if record is not None and record.event == Ev.COMPACTED:
                        yield record
            except OSError as error:
                raise WALError(
                    f"The writer {writer} of {path!r} cannot be read: {error}."
                ) from error


def _lines_with_it(view: View, path: str, writer: str, port: OsPort) -> Iterator[bytes]:
    folder = os.path.join(path, WRITERS, writer)
    for name in view.segments(writer):
        with reading(port, os.path.join(folder, name)) as fd:
            position, rest = 0, b""
            while chunk := port.pread(fd, _CHUNK, position):
                position += len(chunk)
                whole, ended, rest = (rest + chunk).rpartition(b"\n")
                if _COMPACTED in whole:
                    yield from [line for line in whole.split(b"\n") if _COMPACTED in line]
                if not ended and len(rest) > MAX_LINE:
                    rest = b""

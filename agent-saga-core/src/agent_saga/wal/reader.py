"""Reading a file log: every writer's records in order, and what is damaged; nothing is edited.

Rules of this part:

- Reading never raises for bad content, never edits, makes nothing, and keeps little in memory,
  however long the log is. What is damaged and what is a torn tail is told by `judging`.
- The order: writers by id, each in sequence. A saga's order is (epoch, sequence): for the
  consumer.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent_saga.domain.commands import told_command
from agent_saga.errors import WALCorrupt, WALFormatError, WALPathError
from agent_saga.wal.damage import Damage, unreadable
from agent_saga.wal.directory import WRITERS, check_readable
from agent_saga.wal.judging import WriterScan
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.view import View
from agent_saga.wal.writer import is_writer_id

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from agent_saga.wal.format import Record

__all__ = ["records", "scan_log", "scan_writer", "writers_of"]


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
    """Read one writer's segments; see `scan_log`."""
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

"""Making a checkpoint of what a survey has read: only if it saves something.

Rules of this part:

- Of a saga that is not settled, everything that stands in covered files is named. So is of one that
  is settled, unless all of it stands there: what comes later must find its beginning.
- A settled saga all of which is covered is forgotten; if somebody goes on with it, the log is read
  once more for it, as for any other.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent_saga.wal import checkpoint
from agent_saga.wal.checkpoint import Covered, write_checkpoint
from agent_saga.wal.format import line_of
from agent_saga.wal.os_port import OsPort

if TYPE_CHECKING:
    from agent_saga.wal.gathering import Gathered

__all__ = ["checkpoint_of", "keep_checkpoint"]


def keep_checkpoint(path: str, gathered: Gathered, settled: Collection[str]) -> None:
    """Write a checkpoint if it covers enough that the last one did not.

    Args:
        path: the log's directory.
        gathered: what was read; nothing of it was damaged.
        settled: those of its sagas about which there is nothing left to do.
    """
    size = sum(one.size for one in gathered.covered.values())
    if size - gathered.known >= checkpoint.WORTH:
        write_checkpoint(OsPort(), path, checkpoint_of(gathered, settled))


def checkpoint_of(gathered: Gathered, settled: Collection[str]) -> dict[str, Covered]:
    """Return what a checkpoint says.

    Args:
        gathered: what was read.
        settled: those of its sagas about which there is nothing left to do.
    """
    covered = gathered.covered
    last = {writer: one.expected - 1 for writer, one in covered.items()}
    lines: dict[str, dict[bytes, list[bytes]]] = {
        writer: {
            saga: own
            for saga, own in one.lines.items()
            if saga.decode("utf-8", "surrogatepass") not in gathered.records
        }
        for writer, one in covered.items()
    }
    for saga, records in gathered.records.items():
        inside = [one for one in records if one.seq <= last.get(one.writer, 0)]
        if saga in settled and len(inside) == len(records):
            continue
        name = saga.encode("utf-8", "surrogatepass")
        for one in inside:
            lines[one.writer].setdefault(name, []).append(line_of(one))
    return {
        writer: replace(one, lines=lines[writer]) for writer, one in covered.items() if one.files
    }

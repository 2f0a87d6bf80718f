"""The plan of a compaction that is being put in place: which files take the place of which.

Rules of this part:

- The new files lie beside the old ones, whole and durable, under names that no reader looks at. The
  plan is written in one step; from then on the new files are the log, and the old ones are not.
- Putting it in place is renaming and removing, which can be repeated. Whoever compacts next
  finishes what a crash left; until then readers read through the plan.
- A plan that cannot be read stops reading: without it nobody knows which files belong together.
- Only the holder of the log's exclusive lock writes, applies or removes a plan.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import msgspec

from agent_saga.errors import WALCorrupt
from agent_saga.wal.directory import WRITERS, write_all
from agent_saga.wal.os_port import OsPort, reading
from agent_saga.wal.writer import is_writer_id

__all__ = [
    "DRAFT",
    "PLAN",
    "Exchange",
    "Plan",
    "apply",
    "discard_drafts",
    "read_plan",
    "settle",
    "write_plan",
]

PLAN: Final = "compaction"
DRAFT: Final = ".new"
_MOST: Final = 64 * 1024 * 1024


class Exchange(msgspec.Struct, frozen=True):
    """What happens to the files of one writer.

    `fresh` names the segments whose new files lie beside them, `gone` those that are removed;
    `leaves` says that the writer's folder goes as a whole.
    """

    fresh: list[str] = []
    gone: list[str] = []
    leaves: bool = False


Plan = dict[str, Exchange]
"""By writer."""


class _Stored(msgspec.Struct):
    version: int
    plan: Plan
    digest: str


def write_plan(port: OsPort, path: str, plan: Plan) -> None:
    """Write the plan durably, in one step.

    Raises:
        OSError: it is not durable. It may stand there all the same, and then it holds.
    """
    place = os.path.join(path, PLAN)
    draft = f"{place}.{os.urandom(8).hex()}{DRAFT}"
    data = msgspec.json.encode(_Stored(1, plan, _digest(plan)))
    fd = port.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(port, fd, data, 0)
        port.fsync(fd)
    finally:
        port.close(fd)
    port.replace(draft, place)
    port.sync_directory(path)


def read_plan(port: OsPort, path: str) -> Plan | None:
    """Return the plan that is not yet in place; None when there is none.

    Raises:
        WALCorrupt: there is one, and it cannot be read.
        OSError: the file cannot be read.
    """
    try:
        with reading(port, os.path.join(path, PLAN)) as fd:
            data = port.pread(fd, _MOST, 0)
    except FileNotFoundError:
        return None
    try:
        stored = msgspec.json.decode(data, type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(path) from error
    names = [
        name for exchange in stored.plan.values() for name in (*exchange.fresh, *exchange.gone)
    ]
    if (
        stored.version != 1
        or stored.digest != _digest(stored.plan)
        or not (
            all(is_writer_id(writer) for writer in stored.plan) and all(map(_is_segment, names))
        )
    ):
        raise _unreadable(path)
    return stored.plan


def apply(port: OsPort, path: str, plan: Plan) -> None:
    """Put a plan in place: rename and remove.

    Nothing of it is durable before `settle`, and the plan stays until then: after a crash whoever
    compacts next applies it again.

    Raises:
        OSError: something could not be done; it can be done again.
    """
    for writer, exchange in sorted(plan.items()):
        folder = os.path.join(path, WRITERS, writer)
        for name in exchange.fresh:
            with contextlib.suppress(FileNotFoundError):
                port.replace(os.path.join(folder, name + DRAFT), os.path.join(folder, name))
        _remove(port, folder, exchange.gone)
        if exchange.leaves:
            _remove_folder(port, folder)


def settle(port: OsPort, path: str, plan: Plan) -> None:
    """Make durable what `apply` did, and remove the plan.

    Raises:
        OSError: something could not be synced; the plan stays, and whoever compacts next goes on.
    """
    for writer, exchange in sorted(plan.items()):
        if not exchange.leaves:
            port.sync_directory(os.path.join(path, WRITERS, writer))
    port.sync_directory(os.path.join(path, WRITERS))
    _remove(port, path, [PLAN])
    port.sync_directory(path)


def discard_drafts(port: OsPort, path: str) -> None:
    """Remove new files that no plan names; there must be no plan.

    Raises:
        OSError: the folders cannot be read.
    """
    _remove(port, path, [name for name in port.listdir(path) if name.endswith(DRAFT)])
    writers = os.path.join(path, WRITERS)
    for writer in filter(is_writer_id, port.listdir(writers)):
        folder = os.path.join(writers, writer)
        _remove(port, folder, [name for name in port.listdir(folder) if name.endswith(DRAFT)])


def _remove(port: OsPort, folder: str, names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            port.unlink(os.path.join(folder, name))


def _remove_folder(port: OsPort, folder: str) -> None:
    try:
        _remove(port, folder, port.listdir(folder))
        port.rmdir(folder)
    except FileNotFoundError:
        return


def _is_segment(name: str) -> bool:
    return name.startswith("seg-") and name.endswith(".jsonl") and os.path.basename(name) == name


def _digest(plan: Plan) -> str:
    return sha256(msgspec.json.encode(plan, order="deterministic")).hexdigest()


def _unreadable(path: str) -> WALCorrupt:
    return WALCorrupt(
        f"The log {path!r} was being compacted, and the plan of that cannot be read.",
        fix=f"Nothing is lost. Keep a copy of the folder and look at its file '{PLAN}'; "
        "without it, which segments belong together is unknown.",
    )

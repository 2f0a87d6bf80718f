"""Compaction: settled sagas leave the log, while other processes write, read and recover.

Rules of this part:

1. One compaction at a time, by the lock of the `writers` directory. It finishes what a crash left.
2. Closed segments only: every one of a dead writer, and of a living one those behind which a later
   record says that they were durable. Nobody writes to them any more. What cannot be read as it
   was written is left alone, and so are its sagas.
3. A saga leaves as a whole: judged from all its records (`domain.leaving`), all of which stand in
   closed segments.
4. New files are written beside the old ones and synced; what leaves is attested, durably, in the
   compactor's own chain (`attestations`).
5. Then, with every reader and claimer kept out for a moment, it is checked that nobody has written
   about a leaving saga meanwhile, and the new files take the place of the old ones (`exchange`).

A crash before 5 leaves files that nobody looks at; one in the middle of it leaves a plan, which
readers follow and the next compaction finishes. Fails closed: on any doubt nothing leaves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_saga.errors import CompactionRefused, WALError, WALStalled
from agent_saga.observe.logger import logger
from agent_saga.wal import exchange
from agent_saga.wal.attestations import Attestation, payloads
from agent_saga.wal.candidates import Candidates, surveyed
from agent_saga.wal.directory import WRITERS, check_readable
from agent_saga.wal.rewriting import Rewritten, rewrite
from agent_saga.wal.view import DirectoryLock

if TYPE_CHECKING:
    from agent_saga.wal.encoding import Fragment
    from agent_saga.wal.os_port import OsPort

__all__ = ["Compacted", "compact"]

_LONGEST: Final = 10.0
_TRIES: Final = 3

_log = logger("agent_saga.wal")


class Compacted(NamedTuple):
    """What a compaction did.

    Attributes:
        sagas: how many settled sagas were taken out.
        records: how many records left, with those that the log had written about itself.
        writers: how many writers left as a whole.
        bytes: by how many bytes the log's files shrank.
        kept: why some of the log was left alone, in words.
    """

    sagas: int = 0
    records: int = 0
    writers: int = 0
    bytes: int = 0
    kept: tuple[str, ...] = ()


Attest = Callable[[Iterable["Fragment"]], object]
"""Appends COMPACTED records to the compactor's chain, and returns when they are durable."""


def compact(port: OsPort, path: str, attest: Attest, *, before: int) -> Compacted:
    """Take settled sagas out of a log.

    Args:
        port: the system calls.
        path: the log's directory.
        attest: records what leaves.
        before: sagas whose last record is older leave, in microseconds since the epoch.

    Raises:
        CompactionRefused: another process compacts, readers did not let it, or sagas changed all
            the time. Nothing left.
        WALError: something could not be read, written or attested. Nothing left, or the plan of
            what leaves is kept and finished by the next compaction.
    """
    if not check_readable(port, path):
        return Compacted()
    if not port.can_share_locks:
        raise CompactionRefused("This operating system has no locks that compaction needs.")
    try:
        with ExitStack() as held:
            held.callback(_only_one(port, path).close)
            finish(port, path)
            for _ in range(_TRIES):
                done = _compacted(port, path, attest, before)
                if done is not None:
                    return done
    except OSError as error:
        raise WALError(
            f"The log {path!r} could not be compacted: {error}.",
            fix="Nothing is lost. Free space or repair the disk, and compact again.",
        ) from error
    raise CompactionRefused(
        "Sagas that were to leave were written about again and again; nothing left.",
        fix="Compact again later, or with a longer grace.",
    )


def finish(port: OsPort, path: str) -> None:
    """Put in place what a crash left half in place, and remove drafts; the caller is the only one.

    Raises:
        OSError: it could not be done; it can be tried again.
        WALCorrupt: what was being put in place cannot be read.
    """
    if exchange.read_plan(port, path) is not None:
        with ExitStack() as held:
            held.callback(_exclusive(port, path).close)
            plan = exchange.read_plan(port, path)
            if plan is not None:
                port.sync_directory(path)
                exchange.apply(port, path, plan)
        if plan is not None:
            exchange.settle(port, path, plan)
    exchange.discard_drafts(port, path)


def _compacted(port: OsPort, path: str, attest: Attest, before: int) -> Compacted | None:
    """Compact once; None if a leaving saga was written about meanwhile."""
    found = surveyed(port, path, before)
    try:
        new = rewrite(port, path, found)
        if not new.plan:
            return Compacted(kept=found.kept)
        if new.attested:
            attest(payloads(_told(found, new)))
        return _put_in_place(port, path, found, new)
    except BaseException:
        _take_back(port, path)
        raise


def _told(found: Candidates, new: Rewritten) -> Attestation:
    sagas = sorted(found.leaving.sagas)
    return Attestation(new.gaps, new.writers, sorted(found.leaving.named), sagas, new.records)


def _put_in_place(port: OsPort, path: str, found: Candidates, new: Rewritten) -> Compacted | None:
    with ExitStack() as held:
        held.callback(_exclusive(port, path).close)
        if _changed(port, path, found):
            exchange.discard_drafts(port, path)
            return None
        exchange.write_plan(port, path, new.plan)
        exchange.apply(port, path, new.plan)
    exchange.settle(port, path, new.plan)
    return Compacted(
        len(found.leaving.sagas), new.records, len(new.writers), new.shrunk, found.kept
    )


def _take_back(port: OsPort, path: str) -> None:
    """After an error: leave nothing behind, unless the plan may already hold."""
    try:
        if exchange.read_plan(port, path) is None:
            exchange.discard_drafts(port, path)
    except (OSError, WALError):
        _log.debug("What a failed compaction left stays until the next one.", exc_info=True)


def _changed(port: OsPort, path: str, found: Candidates) -> bool:
    """Whether anybody has written about a leaving saga since the survey."""
    return any(candidate in found.leaving.sagas for candidate in found.news(port, path))


def _only_one(port: OsPort, path: str) -> DirectoryLock:
    try:
        return DirectoryLock(port, os.path.join(path, WRITERS), shared=False, longest=0.0)
    except WALStalled as error:
        raise CompactionRefused(
            "Another process is compacting this log.", fix="Let it finish; nothing is lost."
        ) from error


def _exclusive(port: OsPort, path: str) -> DirectoryLock:
    try:
        return DirectoryLock(port, path, shared=False, longest=_LONGEST)
    except WALStalled as error:
        raise CompactionRefused(
            f"The log was being read for {_LONGEST:g} seconds without a pause; nothing left.",
            fix="Compact again when fewer programs read it.",
        ) from error

"""Sagas that the state store knows not to have ended, and of which the log tells nothing.

Rules of this part:

- The store hears of a saga before the log does, where its program gave it an id, or where it was
  suspended or taken over. If the log had records of it that nobody may take out, they are lost. If
  it may have had none, they are lost unless the log of the process that had it is there and whole:
  that one ended before its first record, or was taken out by compaction with nothing open in it.
- What left by compaction is named there, and is not lost.
- The store is asked before the log is read: what begins meanwhile is found in the log.
- Such a saga is a human's case. Nothing is known of it but its id, so nothing of it can be undone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from agent_saga.errors import WALError
from agent_saga.recovery.survey import Found, look_at
from agent_saga.state.claims import OPEN, claim_key
from agent_saga.wal.departed import named_that_left
from agent_saga.wal.directory import WRITERS
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.takeover import dead_writer, has_left, opening_of

if TYPE_CHECKING:
    from agent_saga.state.base import StateStore
    from agent_saga.state.document import Doc

__all__ = ["KnownSagas", "Vanished", "fault_of"]

_NOTHING: Final = "the log tells nothing of it, and the state store knows that it has not ended"
_UNSEEN: Final = "records are lost, and what it did may stand"

IsWhole = Callable[[str], bool]


class Mark(Struct, frozen=True):
    """What the store says of a saga that it does not know to have ended.

    Attributes:
        owner: whose it is; None for nobody's.
        epoch: since which takeover.
        records: the log had records of it that nobody may take out.
    """

    owner: str | None
    epoch: int
    records: bool


class KnownSagas:
    """What the state store knows of the sagas of a log.

    Args:
        store: returns the store.
    """

    def __init__(self, store: Callable[[], StateStore]) -> None:
        self._store = store

    def claim(self, saga: str) -> Doc | None:
        """Return a saga's claim."""
        return self._store().get(claim_key(saga))

    def open(self) -> dict[str, Mark]:
        """Return the sagas that are not known to have ended, by id."""
        return {key.removeprefix(OPEN): _mark(doc) for key, doc in self._store().scan(OPEN)}


def _mark(doc: Doc) -> Mark:
    """Read a mark; one of another form stands for a saga that had records."""
    owner, epoch, records = doc.get("owner"), doc.get("epoch"), doc.get("records")
    if not isinstance(owner, str | None) or type(epoch) is not int or type(records) is not bool:
        return Mark(None, 0, records=True)
    return Mark(owner, epoch, records)


class Vanished:
    """Finds the sagas that have vanished from a log; remembers those that were found to be there.

    Args:
        known: what the state store knows.
    """

    def __init__(self, known: KnownSagas) -> None:
        self._known = known
        self._fine: dict[str, Mark] = {}

    def beside(self, path: str, there: Collection[str], is_whole: IsWhole) -> list[Found]:
        """Return the vanished sagas of a log.

        Args:
            path: the log's directory.
            there: sagas of which the log tells.
            is_whole: whether the log of a writer is as it was written.

        Raises:
            StateError: the store cannot be read.
            WALError: the log cannot be read.
        """
        marks = {s: mark for s, mark in self._known.open().items() if s not in there}
        self._fine = {s: mark for s, mark in self._fine.items() if marks.get(s) == mark}
        asked = {s: mark for s, mark in marks.items() if s not in self._fine}
        reasons = _reasons(path, asked, is_whole)
        never = {s: mark for s, mark in asked.items() if s not in reasons}
        over = {mark.owner: _has_ended(path, mark.owner) for mark in never.values()}
        self._fine |= {s: mark for s, mark in never.items() if over[mark.owner]}
        if not reasons:
            return []
        told = set(look_at(path, reasons)) | named_that_left(path)
        self._fine |= {saga: asked[saga] for saga in reasons if saga in told}
        return [_vanished(saga, why) for saga, why in reasons.items() if saga not in told]

    def one(self, path: str, saga: str, is_whole: IsWhole) -> Found | None:
        """Return a saga that has vanished; None if it has not, or nobody knows of it."""
        there = self._known.open().keys() - {saga}
        return next(iter(self.beside(path, there, is_whole)), None)


def _has_ended(path: str, owner: str | None) -> bool:
    """Say whether nobody will record anything of a saga of this owner any more."""
    return owner is None or _is_dead(path, owner, OsPort())


def _reasons(path: str, marks: Mapping[str, Mark], is_whole: IsWhole) -> dict[str, str]:
    """Return, for each saga of which the log should tell something, why that is known."""
    owners = {mark.owner for mark in marks.values() if mark.owner and not mark.records}
    faults = {owner: fault_of(path, owner, OsPort(), is_whole) for owner in owners}
    reasons = {}
    for saga, mark in marks.items():
        if mark.records:
            reasons[saga] = _NOTHING
        elif mark.owner and faults[mark.owner]:
            reasons[saga] = f"{_NOTHING}; the log of its writer {mark.owner} {faults[mark.owner]}"
    return reasons


def _vanished(saga: str, why: str) -> Found:
    found = Found(saga, [], [])
    found.lost, found.proved = f"{why}: {_UNSEEN}", True
    return found


def fault_of(
    path: str, writer: str, port: OsPort, is_whole: IsWhole, damaged: Collection[str] = ()
) -> str:
    """Return what is wrong with the log of a writer; empty if nothing is, or while it lives.

    Args:
        path: the log's directory.
        writer: whose log.
        port: the system calls.
        is_whole: whether the log of a writer is as it was written.
        damaged: the writers that are known to be damaged.
    """
    if writer in damaged:
        return "is damaged"
    if has_left(path, writer, port):
        return ""
    if is_gone(path, writer, port):
        return "is gone"
    if not _is_dead(path, writer, port):
        return ""
    if not opening_of(path, writer):
        return "has lost its beginning"
    return "" if is_whole(writer) else "was changed"


def _is_dead(path: str, writer: str, port: OsPort) -> bool:
    """Say whether a writer is proved dead; where nobody can tell, nobody claims its sagas."""
    try:
        dead = dead_writer(path, writer, port)
    except WALError:
        return False
    if dead is not None:
        dead.close()
    return dead is not None


def is_gone(path: str, writer: str, port: OsPort) -> bool:
    """Say whether the log of a writer is not there although it did not leave by compaction."""
    try:
        port.stat(os.path.join(path, WRITERS, writer))  # noqa: PTH118 - as the log names it
    except FileNotFoundError:
        return not has_left(path, writer, port)
    except OSError:
        return False
    return False

"""What a log holds that is not settled, and what it says of one saga.

Rules of this part:

- Which records there are is `wal.gathering`'s; what they mean together is judged here.
- A saga whose writer's log is damaged behind its beginning may have lost records: it is a human's
  case, and never undone by itself. A torn tail is none: what it held was never confirmed to
  anybody.
- What is read here is believed for looking only; what is acted on is proved first (`proofs`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from agent_saga.domain.effective import effective, facts_of
from agent_saga.domain.fold import resolve
from agent_saga.domain.records import Ev
from agent_saga.wal.damage import Damage, broken
from agent_saga.wal.format import Record
from agent_saga.wal.gathering import gather_open, gather_some
from agent_saga.wal.keeping import keep_checkpoint
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.takeover import LogState, log_state

_NOTHING: Mapping[str, LogState] = {}
_NOWHERE: Mapping[str, int] = {}


class Found:
    """One saga that is not settled, or was asked for.

    Attributes:
        id: the saga.
        effective: its records that count, those that are stale, its epoch and owner.
        view: the saga as the records that count tell it.
        writers: every writer that wrote about it, with its last record that was read.
        damaged: why its records cannot be trusted; empty otherwise.
        lost: what the state store knows of it and the log has lost; empty if it was not asked.
        records: all its records, from every writer, each writer's in sequence.
        firsts: for each writer the first sequence at which a record of it stood, also if that is
            none any more when it is read against its chain.
        complete: the writers whose records were read to their end, since they were dead before,
            with what their logs looked like then.
        damages: the places of the log that cannot be read.
        damaged_writers: the writers of the log of which something cannot be read, with the last
            sequence that is missing.
        proved: whether the records were read against the chains of their writers.
        begun: the monotonic time before which nothing of them was read, in seconds.
    """

    __slots__ = (
        "begun",
        "complete",
        "damaged",
        "damaged_writers",
        "damages",
        "effective",
        "firsts",
        "id",
        "lost",
        "proved",
        "records",
        "view",
        "writers",
    )

    def __init__(
        self,
        saga: str,
        records: list[Record],
        damages: Iterable[Damage],
        complete: Mapping[str, LogState] = _NOTHING,
        *,
        begun: float = 0.0,
        firsts: Mapping[str, int] = _NOWHERE,
    ) -> None:
        self.begun = begun
        self.lost = ""
        self.id = saga
        self.records = records
        self.complete = complete
        self.proved = False
        self.writers = {record.writer: record for record in records}
        self.damages = list(damages)
        self.damaged_writers = _last_damages(damages)
        self.effective = effective(records)
        self.view = resolve(saga, records)
        self.firsts = _firsts(records, firsts)
        self.damaged = _damaged(self.firsts, damages, _seen_damages(self.effective.records))

    @property
    def vanished(self) -> bool:
        """Whether the log tells nothing of it, and only the state store knows of it."""
        return not (self.records or self.firsts)

    @property
    def problems(self) -> list[str]:
        """Why it is a human's case whatever its steps say; empty otherwise."""
        return [*filter(None, (self.damaged, self.lost)), *self.view.faults]

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to do about it."""
        return self.view.clean and not self.problems


class Survey:
    """What a log holds that is not settled.

    Attributes:
        sagas: by id.
        damages: the places of the log that cannot be read.
    """

    __slots__ = ("damages", "sagas")

    def __init__(self, sagas: dict[str, Found], damages: list[Damage]) -> None:
        self.sagas = sagas
        self.damages = damages

    def add(self, sagas: Iterable[Found]) -> None:
        """Add sagas of which the log tells nothing."""
        self.sagas |= {saga.id: saga for saga in sagas}


def survey(path: str | os.PathLike[str], *, dead: Iterable[str] = (), keep: bool = False) -> Survey:
    """Return every saga of a log that has no clean end; the log is read at most twice.

    Args:
        path: the log's directory.
        dead: the writers that were proved dead before.
        keep: write a checkpoint, so that the next survey need not read what this one has read.

    Raises:
        WALError: the directory as a whole is no log that can be read.
    """
    complete, begun = _states(path, dead), time.monotonic()
    gathered = gather_open(path, complete)
    damages = gathered.damages
    records = gathered.records
    found = {s: Found(s, own, damages, complete, begun=begun) for s, own in records.items()}
    if keep and not broken(damages):
        keep_checkpoint(os.fspath(path), gathered, {s for s, one in found.items() if one.settled})
    return Survey({s: saga for s, saga in found.items() if not saga.settled}, damages)


def look(path: str | os.PathLike[str], saga: str, *, dead: Iterable[str] = ()) -> Found | None:
    """Return one saga, settled or not; None when the log does not have it."""
    complete = _states(path, dead)
    gathered = gather_some(path, {saga})
    own = gathered.records.get(saga)
    return None if own is None else Found(saga, own, gathered.damages, complete)


def look_at(path: str | os.PathLike[str], sagas: Iterable[str]) -> dict[str, Found]:
    """Return several sagas, settled or not, reading the log once; those that it has, by id."""
    gathered = gather_some(path, set(sagas))
    return {s: Found(s, own, gathered.damages) for s, own in gathered.records.items()}


def _states(path: str | os.PathLike[str], dead: Iterable[str]) -> dict[str, LogState]:
    """Return what the logs of dead writers look like, before they are read."""
    port, place = OsPort(), os.fspath(path)
    states = ((writer, log_state(place, writer, port)) for writer in dead)
    return {writer: state for writer, state in states if state is not None}


def _last_damages(damages: Iterable[Damage]) -> dict[str, int]:
    last: dict[str, int] = {}
    for damage in damages:
        if damage.kind != "torn-tail":
            last[damage.writer] = max(damage.seq, last.get(damage.writer, 0))
    return last


def _seen_damages(records: Iterable[Record]) -> Mapping[str, int]:
    """Return the damages that a person knew of who closed the saga."""
    seen: Mapping[str, int] = {}
    for record in records:
        if record.event == Ev.SAGA_CLOSED:
            told = facts_of(record).get("damages")
            seen = told if isinstance(told, Mapping) else {}
    return seen


def _firsts(records: Iterable[Record], known: Mapping[str, int]) -> dict[str, int]:
    first = dict(known)
    for record in records:
        first[record.writer] = min(record.seq, first.get(record.writer, record.seq))
    return first


def _damaged(first: Mapping[str, int], damages: Iterable[Damage], seen: Mapping[str, int]) -> str:
    for damage in damages:
        if damage.kind == "torn-tail" or damage.seq <= seen.get(damage.writer, 0):
            continue
        if damage.seq >= first.get(damage.writer, damage.seq + 1):
            return f"the log is damaged where records of it may have been: {damage.reason}"
    return ""

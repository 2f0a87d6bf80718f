"""Which records of a saga count, when several writers wrote about it.

Rules of this part:

- A record is effective only if its writer opened its epoch (by SAGA_BEGIN or by a SAGA_CLAIM) and
  no later effective claim cuts before it: a claim names, for each writer, the last record that it
  read; a writer that it does not name is cut at 0. A claim that is itself cut cuts nothing.
- An epoch that two writers opened is nobody's: all its records are stale.
- Every other record is stale: it changes no state, and is never ignored. Only a late announcement
  that its own writer closed next as "not started", and that closing, are harmless.
- The order of a saga is (epoch, sequence).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct

from agent_saga.domain.records import Ev
from agent_saga.errors import WALError

NOT_STARTED: Final = "engine"
"""The `by` of a record that closes its own writer's announcement as not started."""

_ANNOUNCED: Final = {
    Ev.STEP_INTENT: Ev.STEP_NOT_APPLIED,
    Ev.STEP_COMPENSATING: Ev.STEP_COMPENSATION_NOT_APPLIED,
}
_OPENS: Final = frozenset({Ev.SAGA_BEGIN, Ev.SAGA_CLAIM})


class WrittenRecord(Protocol):
    """What is read of a record here."""

    @property
    def event(self) -> str:
        """What happened."""

    @property
    def saga(self) -> str:
        """The saga it belongs to."""

    @property
    def step(self) -> str:
        """The step it belongs to, or an empty string."""

    @property
    def epoch(self) -> int:
        """The epoch under which it was written."""

    @property
    def generation(self) -> int:
        """The step's generation."""

    @property
    def seq(self) -> int:
        """Its place in its writer's log."""

    @property
    def time(self) -> int:
        """Microseconds since the epoch, for display."""

    @property
    def writer(self) -> str:
        """Who wrote it."""

    @property
    def data(self) -> Any:
        """The payload as plain data."""


class Claim(Struct, frozen=True):
    """A takeover: who made it, and how far it read each writer."""

    epoch: int
    writer: str
    seq: int
    cuts: Mapping[str, int]


class Effective(Struct, frozen=True):
    """A saga's records, told apart.

    Attributes:
        records: those that count, in the saga's order.
        stale: those that do not count and are not harmless.
        epoch: the epoch that holds.
        owner: the writer that opened it.
        highest: the highest epoch of any record, stale ones included: none below it is free.
    """

    records: list[Any]
    stale: list[Any]
    epoch: int
    owner: str
    highest: int = 0


def effective(records: Iterable[WrittenRecord]) -> Effective:
    """Tell the records of one saga apart.

    Args:
        records: all of them, from every writer, each writer's in sequence.
    """
    found = list(records)
    claims = _claims(found)
    opened = _opened(found)
    counting: list[WrittenRecord] = []
    late: list[WrittenRecord] = []
    for record in found:
        counts = opened.get(record.epoch) == record.writer and _uncut(record, claims)
        (counting if counts else late).append(record)
    counting.sort(key=lambda record: (record.epoch, record.seq))
    epoch, owner = _holder(counting)
    highest = max((record.epoch for record in found), default=0)
    return Effective(counting, _unsafe(late), epoch, owner, highest)


def _opened(records: Sequence[WrittenRecord]) -> dict[int, str]:
    """Return who opened each epoch; an epoch that two writers opened belongs to nobody."""
    opened: dict[int, str] = {}
    for record in records:
        if record.event in _OPENS and opened.setdefault(record.epoch, record.writer) != (
            record.writer
        ):
            opened[record.epoch] = ""
    return opened


def _claims(records: Sequence[WrittenRecord]) -> list[Claim]:
    """Return the claims that are not themselves cut, latest first."""
    claims: list[Claim] = []
    found = [r for r in records if r.event == Ev.SAGA_CLAIM]
    for record in sorted(found, key=lambda r: -r.epoch):
        if _uncut(record, claims):
            claims.append(Claim(record.epoch, record.writer, record.seq, cuts_of(record)))
    return claims


def cuts_of(record: WrittenRecord) -> dict[str, int]:
    """Return up to where a claim has read each writer; nothing of it, when that cannot be read.

    So an unreadable claim makes everything before it stale: named, and a human's case.
    """
    cuts = facts_of(record).get("cuts")
    if not isinstance(cuts, Mapping):
        return {}
    found = {str(w): cut.get("seq") for w, cut in cuts.items() if isinstance(cut, Mapping)}
    return {writer: seq for writer, seq in found.items() if type(seq) is int}


def facts_of(record: WrittenRecord) -> Mapping[str, Any]:
    """Return a record's payload; empty when it was erased or cannot be read."""
    try:
        data = record.data
    except WALError:
        return {}
    return data if isinstance(data, Mapping) else {}


def _uncut(record: WrittenRecord, claims: Sequence[Claim]) -> bool:
    for claim in claims:
        if claim.epoch > record.epoch and record.seq > claim.cuts.get(record.writer, 0):
            return False
    return True


def _holder(records: Sequence[WrittenRecord]) -> tuple[int, str]:
    for record in reversed(records):
        if record.event in _OPENS:
            return record.epoch, record.writer
    return (records[-1].epoch, records[-1].writer) if records else (0, "")


def _unsafe(late: Sequence[WrittenRecord]) -> list[WrittenRecord]:
    """Return the stale records without the pairs of an announcement and its "not started"."""
    harmless: set[int] = set()
    open_calls: dict[tuple[object, ...], int] = {}
    for index, record in enumerate(late):
        if record.event in _ANNOUNCED:
            open_calls[_announcement(record)] = index
            continue
        announced = open_calls.pop(_closing(record), None)
        if announced is not None and _is_not_started(record):
            harmless |= {announced, index}
    return [record for index, record in enumerate(late) if index not in harmless]


def _is_not_started(record: WrittenRecord) -> bool:
    if record.event not in _ANNOUNCED.values():
        return False
    facts = facts_of(record)
    about = facts.get("about", facts)
    return isinstance(about, Mapping) and about.get("by") == NOT_STARTED


def _announcement(record: WrittenRecord) -> tuple[object, ...]:
    closing = _ANNOUNCED[record.event]
    return record.writer, record.epoch, closing, record.step, record.generation


def _closing(record: WrittenRecord) -> tuple[object, ...]:
    return record.writer, record.epoch, record.event, record.step, record.generation

"""Which sagas may leave the log: settled, told by one voice, and past the time of their undoing.

Rules of this part:

- A saga leaves only if it has ended, nothing of it stands or is unknown, no call of it may still
  run in a process that lives, and no record of it is stale, faulty or of an unknown kind. What is
  open, suspended, released, partial, stuck, reopened or a human's case stays.
- It stays until its last record is older than the time that was asked for. A time in the future
  keeps it.
- Judged from all its records together, from every writer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from agent_saga.domain.effective import WrittenRecord, effective, facts_of
from agent_saga.domain.fold import resolve
from agent_saga.domain.records import Ev

__all__ = ["UNDO_WINDOW", "is_named", "may_leave", "still_running"]

UNDO_WINDOW: Final = 30 * 86_400.0
"""Seconds for which a saga that has ended well stays, so that it can still be undone."""

_STARTS: Final = frozenset({Ev.STEP_INTENT, Ev.STEP_ATTEMPT, Ev.STEP_COMPENSATING})
_GIVEN_UP: Final = frozenset({Ev.STEP_UNKNOWN, Ev.STEP_COMPENSATION_UNKNOWN})
_SAYS_NOTHING: Final = frozenset({Ev.STEP_UNRESOLVED, Ev.STEP_ORPHANED, Ev.STEP_KEPT})


def may_leave(saga: str, records: list[Any], before: int, living: Container[str]) -> bool:
    """Say whether a saga may leave.

    Args:
        saga: its id.
        records: all of them, from every writer, each writer's in sequence.
        before: its last record must be older, in microseconds since the epoch.
        living: the writers whose processes may live.
    """
    if not records or any(record.time >= before for record in records):
        return False
    if not resolve(saga, records).clean:
        return False
    alone = all(record.writer == records[0].writer for record in records)
    ordered = records if alone else effective(records).records
    return not any(writer in living for writer in still_running(ordered).values())


def is_named(records: Iterable[WrittenRecord]) -> bool:
    """Say whether its user gave a saga an id of its own, or somebody claimed it.

    Then others than the log may know of it.
    """
    records = list(records)
    if any(record.event == Ev.SAGA_CLAIM for record in records):
        return True
    for record in records:
        if record.event == Ev.SAGA_BEGIN:
            about = facts_of(record).get("about")
            return isinstance(about, Mapping) and "key" in about
    return False


def still_running(records: Iterable[WrittenRecord]) -> dict[str, str]:
    """Return the calls without an ending: by step, the writer that made the call.

    Args:
        records: those that count, in the saga's order.
    """
    running: dict[str, str] = {}
    for record in records:
        if not record.step or record.event in _SAYS_NOTHING:
            continue
        if record.event in _STARTS or (record.event in _GIVEN_UP and _goes_on(record)):
            running[record.step] = record.writer
        else:
            running.pop(record.step, None)
    return running


def _goes_on(record: WrittenRecord) -> bool:
    facts = facts_of(record)
    about = facts.get("about")
    told = about if isinstance(about, Mapping) else facts
    return told.get("running") is True

"""Mending shared counts after a crash: what dead processes hold, and what the store has lost.

Rules of this part:

- What a dead writer holds is handed back only if its log, read to its end with its lock held, has
  no announcement of that call: nobody can announce it any more. What was announced stays counted.
- A store may be behind the log: it was removed or emptied, or a power loss took its last
  transactions (the counts are not synced at every call; the announcements are). So the first
  process after a start of the host reads what was announced within the windows, and counts what the
  store does not have; so does one that finds the store emptied while it runs. Where the two cannot
  be compared, the larger count holds.
- Nothing of another process is touched while it lives. A writer that cannot be proved dead keeps
  what it holds until that leaves the window.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from agent_saga.controls.amounts import Number, add, number_of
from agent_saga.controls.limits.asked import PREFIX, name_of
from agent_saga.controls.limits.count import LEASE, Count
from agent_saga.controls.limits.leases import LONGEST
from agent_saga.controls.limits.moments import Moment
from agent_saga.controls.limits.usage import Usage
from agent_saga.domain.effective import facts_of
from agent_saga.domain.records import Ev
from agent_saga.errors import WALError
from agent_saga.state.base import Change, Docs, StateStore
from agent_saga.wal.base import BaseWAL
from agent_saga.wal.file import FileWAL
from agent_saga.wal.format import Record
from agent_saga.wal.reader import scan_log, scan_writer
from agent_saga.wal.takeover import dead_writer

__all__ = ["META", "is_kept_up", "sweep", "upkeep", "usage_of"]

META: Final = "limits"
_MARK: Final = b'"limits"'
_ANNOUNCED: Final = frozenset({Ev.STEP_INTENT, Ev.STEP_COMMITTED})


class Announced(Struct, frozen=True):
    """One amount as an announcement has it.

    Attributes:
        name: the call. key, amount, window, scope: as they were taken. at: microseconds since the
            epoch.
    """

    name: str
    key: str
    amount: Number
    window: float
    scope: str
    at: int


def upkeep(state: StateStore, wal: BaseWAL | None, now: Moment) -> None:
    """Mend the counts before this process uses them; blocks. Repeating it changes nothing.

    Args:
        state: where the counts are.
        wal: the log of the calls that are counted.
        now: what the clocks say.

    Raises:
        StateError: the store cannot be used.
        WALError: the log cannot be read, so nobody knows what was let through.
    """
    if isinstance(wal, FileWAL):
        meta = state.get(META)
        if not is_kept_up(meta, wal, now):
            _catch_up(state, wal.path, now, emptied=meta is None)
        sweep(state, wal, now)


def is_kept_up(meta: Mapping[str, Any] | None, wal: BaseWAL | None, now: Moment) -> bool:
    """Say whether a store counts what a log announced; one that was emptied says nothing of it.

    Args:
        meta: what the store says of itself, its document `META`.
        wal: the log.
        now: what the clocks say.
    """
    if not isinstance(wal, FileWAL):
        return True
    return meta is not None and meta.get("boot") == now.boot and wal.path in meta.get("logs", ())


# --- what dead processes hold --------------------------------------------------------------------


def sweep(state: StateStore, wal: FileWAL, now: Moment) -> int:
    """Hand back what dead writers hold and never announced; return how many calls' holds ended."""
    held: dict[str, set[str]] = {}
    for _, doc in state.scan(PREFIX):
        for name, writer in _holders(doc):
            held.setdefault(writer, set()).add(name)
    ended = 0
    for writer, names in held.items():
        if writer and writer != wal.writer:
            ended += _sweep_writer(state, wal, writer, names, now)
    return ended


def _holders(doc: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return who holds what, by the call's name; nothing of a count that cannot be understood.

    Its calls are refused, and nobody else's.
    """
    try:
        return [(name, writer) for name, (_, _, writer, _) in doc["held"].items()]
    except (AttributeError, KeyError, TypeError, ValueError):
        return []


def _sweep_writer(
    state: StateStore, wal: FileWAL, writer: str, names: set[str], now: Moment
) -> int:
    with contextlib.suppress(WALError), contextlib.ExitStack() as stack:
        dead = dead_writer(wal.path, writer, wal.port)
        if dead is None:
            return 0
        stack.enter_context(dead)
        announced = set(_announced(scan_writer(wal.path, writer, wal.port)))
        keys = [k for k, doc in state.scan(PREFIX) if names & {name for name, _ in _holders(doc)}]

        def rule(docs: Docs) -> Change[None]:
            return Change(None, {k: _swept(d, names, announced, now) for k, d in docs.items()})

        if keys:
            state.transact(keys, rule, durable=False)
        return len(names)
    return 0


def _swept(
    doc: Mapping[str, Any] | None, names: set[str], announced: set[str], now: Moment
) -> dict[str, Any] | None:
    if doc is None:
        return None
    count = Count(dict(doc), now)
    for name in names & set(count.held):
        if name in announced or count.held[name][3]:
            count.settle(name)
        else:
            count.give_back(name)
    return count.document()


# --- what the store has lost ---------------------------------------------------------------------


def _catch_up(state: StateStore, path: str, now: Moment, *, emptied: bool) -> None:
    """Count what was announced within its window and is not in the store."""
    found = _still_counting(path, now)
    if found and emptied:
        time.sleep(LONGEST)  # a process that lives may spend a lease that the store no longer knows
        found = _still_counting(path, now)
    for key, entries in found.items():

        def rule(docs: Docs, key: str = key, entries: list[Announced] = entries) -> Change[None]:
            return Change(None, {key: _caught_up(docs[key], key, entries, now)})

        state.transact([key], rule, durable=False)

    def done(docs: Docs) -> Change[None]:
        meta = docs[META] or {}
        logs = meta.get("logs", []) if meta.get("boot") == now.boot else []
        return Change(None, {META: {"boot": now.boot, "logs": sorted({*logs, path})}})

    state.transact([META], done, durable=False)


def _still_counting(path: str, now: Moment) -> dict[str, list[Announced]]:
    """Return what a log announced and has not left its window, by the counts' keys."""
    found: dict[str, list[Announced]] = {}
    for taken in _announced(scan_log(path)).values():
        for one in taken:
            if one.at + one.window * 1_000_000 > now.wall:
                found.setdefault(one.key, []).append(one)
    return found


def _caught_up(
    doc: dict[str, Any] | None, key: str, entries: Sequence[Announced], now: Moment
) -> dict[str, Any] | None:
    """Return the larger of two counts: the log's, and the store's with what came after it."""
    length = max(one.window for one in entries)
    count = Count(doc, now, length)
    known_until = 0 if doc is None else doc["axis"][1]
    later = [one for one in entries if one.at > known_until and one.name not in count.held]
    whole = _sum(one.amount for one in entries)
    if doc is not None and add(count.window.total, _sum(one.amount for one in later)) >= whole:
        entries = later
    else:
        count = Count(None, now, length)
        count.about = dict(doc["about"]) if doc is not None else _about(key, entries[0])
    for one in sorted(entries, key=lambda entry: entry.at):
        count.add(one.amount, max(0.0, (now.wall - one.at) / 1_000_000))
    return count.document()


def _about(key: str, one: Announced) -> dict[str, Any]:
    return {"limit": key[len(PREFIX) :].rpartition("/")[0], "scope": one.scope, "most": None}


def _sum(amounts: Iterator[Number]) -> Number:
    total: Number = 0
    for amount in amounts:
        total = add(total, amount)
    return total


def _announced(records: Iterator[object]) -> dict[str, list[Announced]]:
    """Return what calls took, by their names, as their announcements have it."""
    found: dict[str, list[Announced]] = {}
    for record in records:
        if not isinstance(record, Record):
            continue
        if record.event in _ANNOUNCED and _MARK in (record.payload or b""):
            name = name_of(record.saga, record.step, record.generation)
            found[name] = list(_taken(record, name))
        elif record.event == Ev.STEP_INTENT:
            found.setdefault(name_of(record.saga, record.step, record.generation), [])
        elif record.event == Ev.STEP_NOT_APPLIED and facts_of(record).get("by") == "engine":
            found.pop(name_of(record.saga, record.step, record.generation), None)
    return found


def _taken(record: Record, name: str) -> Iterator[Announced]:
    limits = facts_of(record).get("limits")
    for one in limits.get("taken", ()) if isinstance(limits, Mapping) else ():
        with contextlib.suppress(TypeError, ValueError):
            key, amount, window, scope = one
            yield Announced(name, key, number_of(amount), float(window), str(scope), record.time)


# --- what people see -----------------------------------------------------------------------------


def usage_of(state: StateStore, now: Moment) -> list[Usage]:
    """Return what is counted now, by limit and scope; blocks, and changes nothing."""
    found = []
    for key, doc in state.scan(PREFIX):
        count = Count(doc, now)
        about = count.about
        most = about.get("most")
        name = about.get("limit") or key[len(PREFIX) :].rpartition("/")[0]
        if count.window.ends:
            used = count.window.total
            limit = None if most is None else number_of(most)
            calls = sum(not held.startswith(LEASE) for held in count.held)
            found.append(Usage(name, about.get("scope", ""), used, limit, count.length, calls))
    return sorted(found, key=lambda usage: (usage.limit, usage.scope))

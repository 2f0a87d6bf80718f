"""Whom a halt reaches, and what is under way at that moment, as the log alone tells it.

Rules of this part:

- Only writers that hold their lock are looked at. What they announced and did not end is in flight:
  it was announced before the halt was acknowledged, so it may still take effect.
- Reading makes nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from agent_saga.domain.effective import facts_of
from agent_saga.domain.records import Ev
from agent_saga.wal.format import Record
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import scan_log, scan_writer
from agent_saga.wal.takeover import told_apart

__all__ = ["InFlight", "Reach", "known_tools", "live_writers", "reached"]

_OPEN: Final = frozenset({Ev.STEP_INTENT, Ev.STEP_ATTEMPT})


class InFlight(NamedTuple):
    """A step that was announced and has not ended.

    Attributes:
        writer, saga, step: which one. tool, tags: what it calls.
        since: when it was announced, in microseconds since the epoch.
    """

    writer: str
    saga: str
    step: str
    tool: str
    tags: tuple[str, ...]
    since: int


class Reach(NamedTuple):
    """Whom a halt reaches.

    Attributes:
        writers: the process of each living writer, by the writer's id; 0 if it is not told.
        in_flight: the steps that they had announced and not ended.
    """

    writers: dict[str, int]
    in_flight: list[InFlight]


def live_writers(path: Path) -> frozenset[str]:
    """Return the writers of a log that live; one of which that cannot be told counts as living."""
    if not path.is_dir():
        return frozenset()
    found = told_apart(str(path))
    return found.alive | frozenset(found.untold)


def reached(path: Path, writers: Iterable[str]) -> Reach:
    """Return what these writers have under way."""
    port = OsPort()
    pids: dict[str, int] = {}
    in_flight: list[InFlight] = []
    for writer in sorted(writers):
        pids[writer] = 0
        steps: dict[tuple[str, str], InFlight] = {}
        for record in scan_writer(str(path), writer, port):
            if not isinstance(record, Record):
                continue
            if record.event == Ev.WRITER_OPEN:
                pid = facts_of(record).get("pid")
                pids[writer] = pid if type(pid) is int else 0
            elif record.step:
                _follow(steps, record)
        in_flight += steps.values()
    return Reach(pids, in_flight)


def _follow(steps: dict[tuple[str, str], InFlight], record: Record) -> None:
    key = record.saga, record.step
    if record.event == Ev.STEP_INTENT:
        tool, tags = _call_of(facts_of(record))
        steps[key] = InFlight(record.writer, *key, tool, tags, record.time)
    elif record.event not in _OPEN:
        steps.pop(key, None)


def known_tools(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the tools that a log knows, each with its tags."""
    found: dict[str, tuple[str, ...]] = {}
    for record in scan_log(path) if path.is_dir() else ():
        if isinstance(record, Record) and record.step:
            tool, tags = _call_of(facts_of(record))
            if tool:
                found[tool] = tags
    return found


def _call_of(facts: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    call = facts.get("call")
    if not isinstance(call, Mapping):
        tool = facts.get("tool")
        return (tool if isinstance(tool, str) else ""), ()
    tags = call.get("tags")
    listed = tuple(map(str, tags)) if isinstance(tags, list) else ()
    return str(call.get("tool") or ""), listed

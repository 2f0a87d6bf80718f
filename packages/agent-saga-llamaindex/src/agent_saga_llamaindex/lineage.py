"""Where events come from: which event a step sends again when it is run again.

Rules of this part:

- An event's line is the execution that made it, and which of its events it is: those that it sends,
  in order, then those that it returns. A step that is run again makes the same lines again; what
  handles such an event is the same execution as what handled it before, also in another process.
- An event from outside has no line, and what handles it is known by its piece of work.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from typing import Any

from workflows.events import Event

from agent_saga_llamaindex import seams

Path = tuple[str, ...]


class Lineage:
    """The lines of the events of a run, and where they were handled first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[int, list[str]] = {}
        self._kept: list[Any] = []  # an event that was gone would give its number to another one
        self._used: Counter[tuple[Path, int]] = Counter()
        self._live: dict[int, tuple[Any, Path, int]] = {}
        self._of_work: dict[Path, tuple[Path, str]] = {}

    def found(self, place: Path, events: tuple[Any, ...]) -> tuple[Path, str]:
        """Return the place of an execution by its piece of work, and the line of what it handles.

        Args:
            place: the steps that lead to it, and its own name and piece of work.
            events: what it handles.
        """
        with self._lock:
            known = self._of_work.get(place)
            if known is None:
                self._look_at_live()
                lines = [self._next(place[:-1], event) for event in events]
                line = _digest(lines) if lines and all(lines) else ""
                known = self._of_work[place] = (place, line)
            return known

    def settle(self, place: Path, at: Path, line: str) -> None:
        """Note which place the executions of a piece of work have."""
        with self._lock:
            self._of_work[place] = (at, line)

    def moved(self) -> list[list[Any]]:
        """Return each piece of work that is handled at the place of another one, with that."""
        with self._lock:
            return [[list(w), list(at)] for w, (at, _) in self._of_work.items() if w != at]

    def begin(self, worker: Any, place: Path) -> None:
        """Note that an execution begins: what it sends may be handled before it ends."""
        with self._lock:
            self._live[id(worker)] = (worker, place, 0)

    def end(self, worker: Any, result: Any) -> None:
        """Note what an execution made.

        Args:
            worker: the framework's object of it.
            result: what it returned; None if it failed.
        """
        with self._lock:
            self._look_at_live()
            _, place, _ = self._live.pop(id(worker))
            made = result if isinstance(result, list) else [result]
            for number, event in enumerate(made):
                self._note(event, place, f"returned {number}")

    def _look_at_live(self) -> None:
        for key, (worker, place, seen) in tuple(self._live.items()):
            sent = seams.sent_by(worker)
            for number, event in enumerate(sent[seen:], seen):
                self._note(event, place, f"sent {number}")
            self._live[key] = (worker, place, len(sent))

    def _note(self, event: Any, place: Path, what: str) -> None:
        if isinstance(event, Event):
            self._kept.append(event)
            self._lines.setdefault(id(event), []).append(_digest([*place, what]))

    def _next(self, taker: Path, event: Any) -> str:
        lines = self._lines.get(id(event), [])
        number = self._used[taker, id(event)]
        if number >= len(lines):
            return ""
        self._used[taker, id(event)] += 1
        return lines[number]


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

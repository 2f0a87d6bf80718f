"""What is known of the run that is going on here, and of the place in it that a tool is called at.

Rules of this part:

- A model's call is known by the calls that lead to it (a run inside a tool is inside its call), its
  id, and the turn: call ids alone are not unique, so how often the id was used in earlier turns is
  a part of the key.
- A workflow runs a step again from its first line when it failed and has a retry policy. The
  execution of a step is one thing through all of its attempts; what runs inside it, in workflows
  that the step runs, too, is made inside that execution.
- Tools that run in threads see the same objects.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

Path = tuple[str, ...]


class Counts:
    """How often models were asked and ids were used, in a run and the runs inside it."""

    __slots__ = ("_lock", "_runs", "_seen", "_turns")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: Counter[Path] = Counter()
        self._turns: Counter[Path] = Counter()
        self._seen: dict[tuple[Path, str], list[int]] = {}

    def run(self, path: Path) -> int:
        """Return which run inside a call begins now."""
        with self._lock:
            self._runs[path] += 1
            return self._runs[path]

    def turn(self, path: Path) -> None:
        """Note that a model is asked again."""
        with self._lock:
            self._turns[path] += 1

    def number(self, path: Path, call: str) -> int:
        """Return in how many earlier turns a call id was used."""
        with self._lock:
            turns = self._seen.setdefault((path, call), [])
            now = self._turns[path]
            if now not in turns:
                turns.append(now)
            return turns.index(now)


class Run:
    """One run that is a boundary, as its tools see it.

    Args:
        on_tool_failure: "continue", "rollback" or "ask".
        outer: the run that it is inside of, or None.

    Attributes:
        path: the ids of the calls that it is inside of, the outermost first.
        counts: what it shares with the runs round it.
        stop: why nothing of the run may begin any more; None while nothing stops it.
        before_turn: what is awaited before a model is asked; None for nothing.
        handlers: the framework's, of the run and of the runs inside it that are no boundaries.
    """

    __slots__ = ("before_turn", "counts", "handlers", "on_tool_failure", "path", "stop")

    def __init__(self, on_tool_failure: str = "continue", outer: Run | None = None) -> None:
        self.on_tool_failure = on_tool_failure
        self.counts: Counts = Counts() if outer is None else outer.counts
        self.stop: Exception | None = None
        self.before_turn: Callable[[], Awaitable[None]] | None = None
        self.handlers: list[Any] = []
        call = calling.get()
        around = call.inside if call is not None else ()
        self.path = around if outer is None else (*around, f"run {self.counts.run(around)}")


class Execution:
    """One execution of a workflow's step, through all of its attempts.

    Args:
        name: the step's.
        events: what it was called with.
        outer: the execution that it is inside of, or None.

    Attributes:
        failed: its last attempt ended with an error, so it may come again.
        made: tool and key of the steps that its attempts made, in order.
        left: those of them that the present attempt has not come to again.
    """

    __slots__ = ("_inner", "events", "failed", "left", "made", "name", "outer")

    def __init__(
        self, name: str = "", events: tuple[Any, ...] = (), outer: Execution | None = None
    ) -> None:
        self.name = name
        self.events = events
        self.outer = outer
        self.failed = False
        self.made: list[tuple[str, str]] = []
        self.left: list[tuple[str, str]] = []
        self._inner: list[Execution] = []

    def inside(self, name: str, events: tuple[Any, ...]) -> Execution:
        """Return the execution of a step inside this one: one that failed before, or a new one."""
        for one in self._inner:
            if one.failed and one.name == name and _same(one.events, events):
                one.failed = False
                one.left = list(one.made)
                return one
        made = Execution(name, events, self)
        self._inner.append(made)
        return made

    def end(self, *, failed: bool) -> None:
        """Note how an attempt of it ended."""
        self.failed = failed
        if not failed and self.outer is not None:
            self.outer._inner.remove(self)  # noqa: SLF001 - of the same class

    def chain(self) -> Iterator[Execution]:
        """Give it and the executions that it is inside of, the innermost first."""
        found: Execution | None = self
        while found is not None:
            yield found
            found = found.outer


def _same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Say whether a step was called with the same events, or with copies of them."""
    if len(some) != len(others):
        return False
    if all(one is other for one, other in zip(some, others, strict=True)):
        return True
    try:
        return bool(some == others)
    except Exception:
        return False


class Call(NamedTuple):
    """A call that a model made.

    Attributes:
        id: the model's id of it; empty for what is called inside another tool.
        path: the ids of the calls that it is made inside of, the outermost first.
    """

    id: str
    path: Path

    @property
    def inside(self) -> Path:
        """The path of calls that are made inside this one."""
        return (*self.path, self.id) if self.id else self.path


running: contextvars.ContextVar[Run | None] = contextvars.ContextVar(
    "agent_saga_llamaindex_run", default=None
)
"""The run that is going on here."""

calling: contextvars.ContextVar[Call | None] = contextvars.ContextVar(
    "agent_saga_llamaindex_call", default=None
)
"""The call that is being made."""

executing: contextvars.ContextVar[Execution | None] = contextvars.ContextVar(
    "agent_saga_llamaindex_execution", default=None
)
"""The execution of a workflow's step that the code is inside of."""


@contextlib.contextmanager
def entered(run: Run, around: Execution) -> Iterator[None]:
    """Let the code inside be a run; its model's calls are not those of the one round it."""
    state, call = running.set(run), calling.set(Call("", run.path))
    execution = executing.set(around)
    try:
        yield
    finally:
        executing.reset(execution)
        calling.reset(call)
        running.reset(state)


def key_of(call: Call, run: Run, mac: bytes) -> str:
    """Return the step key of a model's call."""
    number = run.counts.number(call.path, call.id)
    return json.dumps([*call.path, call.id, number, mac.hex()])

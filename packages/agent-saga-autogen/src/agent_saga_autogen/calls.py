"""What is known of the run that is going on here, and of the tool call that is made in it.

Rules of this part:

- A model's call is known by the agents and calls that lead to it, its id, and the turn: call ids
  alone are not unique, neither in a run nor in a team, so the agent's name and how often the id was
  used in its earlier turns are parts of the key.
- Every key tells the agents, also that of a call without an id: they remain the same where calls
  are made anew under other ids.
- What the code inside a call sees is kept in context variables. Where the framework loses those,
  `binding` brings them back.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from typing import Any, NamedTuple

Path = tuple[str, ...]


def _unknown(agents: Path, name: str) -> object:
    """Return that it is not known what a tool calls."""
    del agents, name
    return None


class Counts:
    """How often models were asked and ids were used, in a run and the runs inside it.

    Args:
        before: how often ids were used before the run waited, as `kept` gave it.
    """

    __slots__ = ("_before", "_runs", "_seen", "_turns")

    def __init__(self, before: Iterable[Any] = ()) -> None:
        self._before = {(tuple(path), str(call)): int(times) for path, call, times in before}
        self._runs: Counter[Path] = Counter()
        self._turns: Counter[Path] = Counter()
        self._seen: dict[tuple[Path, str], list[int]] = {}

    def run(self, path: Path) -> int:
        """Return which run inside a call begins now."""
        self._runs[path] += 1
        return self._runs[path]

    def turn(self, path: Path) -> None:
        """Note that a model has answered with calls again."""
        self._turns[path] += 1

    def number(self, path: Path, call: str) -> int:
        """Return in how many earlier turns a call id was used."""
        turns = self._seen.setdefault((path, call), [])
        now = self._turns[path]
        if now not in turns:
            turns.append(now)
        return self._before.get((path, call), 0) + turns.index(now)

    def kept(self, waiting: Container[tuple[Path, str]]) -> list[list[Any]]:
        """Return how often ids were used, as plain data.

        Args:
            waiting: the calls that wait, and will be made again as what they are.
        """
        times = dict(self._before)
        for one, turns in self._seen.items():
            times[one] = times.get(one, 0) + len(turns) - (one in waiting)
        return [[list(path), call, number] for (path, call), number in times.items() if number]


class Run:
    """One run that is a boundary, as its tools see it.

    Args:
        on_tool_failure: "continue", "rollback" or "ask".
        outer: the run that it is inside of, or None.

    Attributes:
        path: the agents and calls that it is inside of, the outermost first.
        counts: what it shares with the runs round it.
        stop: why nothing of the run may begin any more; None while nothing stops it.
        raised: what an agent raised last; a team tells of it in words alone.
        before_turn: what is awaited before a model is asked again; None for nothing.
        waiters: the agents whose calls can wait for a human; none where the run cannot.
        waiting: what their calls wait for, by the agents' names and the calls' ids.
        repeated: the ids that several calls of an agent's turn have, by the agents' names.
        aside: the turns that were set aside since, by the agents' names; see `waiting`.
        behind: what the tool of an agent calls, by its agents and the log's name of it.
    """

    __slots__ = (
        *("aside", "before_turn", "counts", "on_tool_failure", "path", "raised", "repeated"),
        *("behind", "stop", "waiters", "waiting"),
    )

    def __init__(
        self,
        on_tool_failure: str = "continue",
        outer: Run | None = None,
        before: Iterable[Any] = (),
    ) -> None:
        self.on_tool_failure = on_tool_failure
        self.counts: Counts = Counts(before) if outer is None else outer.counts
        self.waiters: tuple[Any, ...] = ()
        self.waiting: dict[str, dict[str, dict[str, Any]]] = {}
        self.aside: dict[str, Any] = {}
        self.repeated: dict[str, frozenset[str]] = {}
        self.behind: Callable[[Path, str], object] = outer.behind if outer else _unknown
        self.stop: Exception | None = None
        self.raised: Exception | None = None
        self.before_turn: Callable[[], Awaitable[None]] | None = None
        call = calling.get()
        around = call.inside if call is not None else ()
        self.path = around if outer is None else (*around, f"run {self.counts.run(around)}")

    def shared(self, call: Call) -> bool:
        """Say whether another call of the same turn has the same id."""
        return call.id in self.repeated.get(call.path[0], ())


class Call(NamedTuple):
    """A call that a model made.

    Attributes:
        id: the model's id of it; empty for what is called inside another tool.
        path: the agents and calls that it is made inside of, the outermost first.
        arguments: what the model chose, by name; None where no model did.
        waits: it is a call, or inside a call, of an agent whose calls can wait for a human.
        agents: the agents that it is made by, of any class and the outermost first.
    """

    id: str
    path: Path
    arguments: dict[str, Any] | None = None
    waits: bool = False
    agents: Path = ()

    @property
    def inside(self) -> Path:
        """The path of calls that are made inside this one."""
        return (*self.path, self.id) if self.id else self.path

    @property
    def can_wait(self) -> bool:
        """Whether it is a model's own call, and can wait for a human."""
        return self.waits and bool(self.id) and len(self.path) == 1


running: contextvars.ContextVar[Run | None] = contextvars.ContextVar(
    "agent_saga_autogen_run", default=None
)
"""The run that is going on here."""

calling: contextvars.ContextVar[Call | None] = contextvars.ContextVar(
    "agent_saga_autogen_call", default=None
)
"""The call that is being made."""


@contextlib.contextmanager
def called(call: Call | None) -> Iterator[None]:
    """Let the code inside be inside a call."""
    token = calling.set(call)
    try:
        yield
    finally:
        calling.reset(token)


@contextlib.contextmanager
def entered(run: Run) -> Iterator[None]:
    """Let the code inside be a run; its model's calls are not those of the one round it."""
    state = running.set(run)
    try:
        with called(Call("", run.path, agents=agents_here())):
            yield
    finally:
        running.reset(state)


def agents_here() -> Path:
    """Return the agents that are at work here, the outermost first."""
    call = calling.get()
    return () if call is None else call.agents


def inside(id: str = "", arguments: dict[str, Any] | None = None) -> Call:  # noqa: A002
    """Return a call that is made here.

    Args:
        id: the model's id of it; empty for what is called inside another tool.
        arguments: what the model chose.
    """
    call = calling.get()
    if call is None:
        return Call(id, (), arguments)
    return Call(id, call.inside, arguments, call.waits, call.agents)


def key_of(call: Call, run: Run, mac: bytes) -> str:
    """Return the step key of a model's call."""
    number = run.counts.number(call.path, call.id)
    return json.dumps([list(call.agents), *call.path, call.id, number, mac.hex()])


def unnamed_key(agents: Path, number: int, mac: bytes) -> str:
    """Return the step key of a call without an id.

    Args:
        agents: those that it is made by.
        number: which of their equal calls it is.
        mac: the arguments' fingerprint.
    """
    return json.dumps([list(agents), "", number, mac.hex()])


def agents_of(key: str) -> Path | None:
    """Return the agents that a step's key tells of; None if it tells of none."""
    try:
        agents, *_ = json.loads(key)
        return tuple(map(str, agents)) if isinstance(agents, list) else None
    except (ValueError, TypeError):
        return None


def is_ours(key: str) -> bool:
    """Say whether a step's key is one of this package."""
    try:
        agents, *_, number, mac = json.loads(key)
    except (ValueError, TypeError):
        return False
    named = isinstance(agents, list) and all(isinstance(agent, str) for agent in agents)
    return named and isinstance(number, int) and isinstance(mac, str)


def spoken(agents: Path | None) -> str:
    """Return agents in words."""
    return ", in it ".join(agents or ()) or "The program"

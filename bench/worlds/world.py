"""What a world is: tasks with recorded trajectories, and a state that can be looked at.

Rules of this part:

- A `Place` is one task's world: its tools are called by name, its whole state is read for the
  judge alone. Neither inverses nor probers ever see `snapshot`; they call tools.
- A tool reports an error by returning it; `WorldError` carries that answer, as an agent would read
  it. Whether the call changed something all the same is for a prober to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Args = Mapping[str, Any]
Tools = Callable[..., Any]
"""Calls a tool of the world: `tools("name", argument=value)`."""


class WorldError(Exception):
    """A tool of the world answered with an error."""


class Given(dict[str, Any]):
    """The arguments of a call, as a row reads them: what was not given is None."""

    def __missing__(self, key: str) -> None:
        return None


@dataclass(frozen=True)
class GoldCall:
    """One call of a recorded trajectory."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Task:
    """One task: what an agent that does it right calls, in order."""

    world: str
    name: str
    calls: tuple[GoldCall, ...]
    source: Any = field(default=None, repr=False)


class Place(Protocol):
    """The world of one task."""

    def call(self, tool: str, args: Args) -> Any:
        """Call a tool; raise `WorldError` when it answers with an error."""

    def snapshot(self) -> Any:
        """Return the whole state as plain data; for the judge alone."""

    def fingerprint(self) -> Any:
        """Return something that differs when the state does; for the judge alone."""


class World(Protocol):
    """A world that tasks are played in."""

    name: str
    secrets: frozenset[str]
    """Arguments that must not be written down; a session keeps them for its inverses."""
    patience: float
    """Seconds after which an answer is late; every call is over long before."""

    def __hash__(self) -> int:
        """A world is known by itself."""

    def tasks(self) -> Sequence[Task]:
        """Return the tasks that come with it, in its own order."""

    def open(self, task: Task) -> Place:
        """Return a fresh world for a task."""

    def offered(self, task: Task) -> frozenset[str]:
        """Return the names of all tools that an agent could call in a task's world."""

    def plan(self, tool: str) -> Any:
        """Return how a tool is declared; see `plans`."""

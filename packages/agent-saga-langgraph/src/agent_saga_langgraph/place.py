"""Where in a graph a call stands, and the step key that follows from it.

Rules of this part:

- A place is the outermost graph's checkpoint that its superstep began with, the outermost task, and
  for each graph that is called inside it: which one in turn, the node, the superstep, and which of
  several tasks. A task that LangGraph repeats has all of these again; the ids of inner tasks it
  has not, and they are no part of it.
- A graph that is called inside on a thread of its own counts its supersteps over all calls: there
  a superstep counts from the first of this call, unless the call goes on from a checkpoint.
- A step key is the place, the model's id of the call if it has one, the ordinal among equal ones,
  and the arguments' MAC. Whether a call is a step with another key is said in `attempts`.
- A call outside any graph has no place; the engine counts it by itself.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.runtime import ExecutionInfo, get_runtime

from agent_saga_langgraph.tries import Tries, tries_here
from agent_saga_langgraph.witness import (
    CHECKPOINTER,
    Task,
    Turn,
    inside,
    is_part,
    path,
    turns_at,
)

__all__ = [
    "Level",
    "Mark",
    "Place",
    "Spot",
    "has_checkpointer",
    "here",
    "key",
    "path",
    "read",
    "spot",
]


class Level(NamedTuple):
    """Where a call stands in one graph that is called inside a task.

    Attributes:
        node, step, nth: the node, the superstep, and which of several tasks of it: -1 for one,
            less than that for what another task calls.
        graph: how many graphs the task had called before this one; -1 for one on a thread of its
            own that goes on from a checkpoint.
        at: the superstep as the graph counts it; it makes no difference.
        number, asked: of a task that another one calls: its number as LangGraph counts, and a
            fingerprint of the call, if it was noted; they make no difference.
    """

    node: str
    step: int
    nth: int
    graph: int
    at: int = 0
    number: int = -1
    asked: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Level) and self[:4] == other[:4]

    def __hash__(self) -> int:
        return hash(self[:4])


class Spot(NamedTuple):
    """Where a call stands, as it is recorded.

    Attributes:
        checkpoint: the outermost graph's checkpoint that the superstep began with.
        task: the outermost task, with its id.
        inner: one for each graph that is called inside.
    """

    checkpoint: str
    task: str
    inner: tuple[Level, ...] = ()

    @property
    def nodes(self) -> list[str]:
        """The nodes that lead to the call, without the ids of tasks."""
        return [path(self.task), *[level.node for level in self.inner]]


class Place(NamedTuple):
    """Where the running code stands.

    Attributes:
        spot: as it is recorded.
        turns: the attempts that it is part of, outermost first.
        watched: these are known; else the attempts round the innermost graph are not.
        tries: the runs round it, and which try of each it is in.
    """

    spot: Spot
    turns: tuple[Turn, ...]
    watched: bool = True
    tries: Tries = ()

    @property
    def is_kept(self) -> bool:
        """Whether the outermost graph can be gone on with."""
        return self.turns[0].kept


class Mark(NamedTuple):
    """What a step key tells about the call.

    Attributes:
        spot: where it was made.
        caller: the model's id of the call, or an empty string.
        number: which of several with equal arguments.
        mac: the arguments' MAC, in hex.
        apart: what else tells the call from others: a MAC in hex, UNCLEAR, or an empty string.
    """

    spot: Spot
    caller: str
    number: int
    mac: str
    apart: str = ""

    @property
    def checkpoint(self) -> str:
        """The outermost graph's checkpoint that the call's superstep began with."""
        return self.spot.checkpoint


UNCLEAR: Final = "?"
"""Nobody can tell the call from others by what it was given."""
_UNSEEN: Final = "unseen"


def here() -> Place | None:
    """Return the place of the running code, or None outside a graph."""
    config = ensure_config()
    metadata: Mapping[str, Any] = config.get("metadata") or {}
    name = str(metadata.get("langgraph_checkpoint_ns") or "")
    if not name:
        return None
    info, seen = _execution(), turns_at(name)
    watched = bool(seen)
    if not watched:
        seen = _unwatched(name, metadata, info)
    known = seen[0].checkpoint
    if not known and all(is_part(seen[0], turn) for turn in seen[1:]):
        above: Mapping[str, str] = (config.get("configurable") or {}).get("checkpoint_map") or {}
        known = above.get("") or (info.checkpoint_id if info is not None else "")
        seen[0].checkpoint = known
    if len(seen) == 1:
        seen[0].kept = has_checkpointer(config)
    return Place(Spot(known, seen[0].task.name, _levels(seen)), seen, watched, tries_here())


def _unwatched(
    name: str, metadata: Mapping[str, Any], info: ExecutionInfo | None
) -> tuple[Turn, ...]:
    """Return turns for a task that nobody saw begin, from what its own configuration tells."""
    step, indexes = int(metadata.get("langgraph_step", 0)), metadata.get("langgraph_path") or ()
    attempt = info.node_attempt if info is not None else 1
    outermost, nested, _ = name.partition("|")
    head = name.rpartition("|")[0]
    turn = Turn(Task(name), (_UNSEEN, name, attempt), (_UNSEEN, head), step, step, indexes)
    return (Turn(Task(outermost), (_UNSEEN, outermost)), turn) if nested else (turn,)


def _levels(seen: tuple[Turn, ...]) -> tuple[Level, ...]:
    levels = []
    for outer, turn in itertools.pairwise(seen):
        graph, step, nth = 0, turn.step, turn.index
        again = outer.number > 1  # LangGraph goes on counting where the last attempt was given up
        if not is_part(outer, turn):
            graph, step = (-1, step) if turn.resumed else (0, step - turn.first)
        elif nth < -1:
            nth += first_call(outer)
        else:
            graph = inside(outer, turn) - (min(outer.begun, default=0) if again else 0)
        called = outer.calls.get(-2 - turn.index) if turn.index < -1 else None
        if called is not None:
            levels.append(Level(turn.node, step, nth, graph, turn.step, -2 - turn.index, called[0]))
        else:
            levels.append(Level(turn.node, step, nth, graph, turn.step))
    return tuple(levels)


def first_call(turn: Turn) -> int:
    """Return the number of the first call of another task that a turn made, as LangGraph counts."""
    if turn.calls and turn.base is not None:
        return turn.base
    return min(turn.called, default=0) if turn.number > 1 else 0


def has_checkpointer(config: RunnableConfig) -> bool:
    """Say whether the graph that runs here can be gone on with; no, where nobody can tell.

    LangGraph hands its checkpointer down under a key of its own, which is not promised. Without the
    key a node counts as one that cannot wait: an interrupt in it then fails, and is undone.
    """
    return checkpointer(config) is not None


def checkpointer(config: RunnableConfig) -> Any:
    """Return the checkpointer of the graph that runs here; None where nobody can tell."""
    return (config.get("configurable") or {}).get(CHECKPOINTER)


def stores_on_the_way(config: RunnableConfig) -> bool:
    """Say whether checkpoints may be stored before the graph that runs here ends.

    LangGraph hands down how durable a run is under a key that is not promised. Without it the
    answer is yes, and whoever looks for a checkpoint waits for it in vain.
    """
    return (config.get("configurable") or {}).get("__pregel_durability") != "exit"


def is_on_thread() -> bool:
    """Say whether the running code is in a graph that can be gone on with; see above."""
    return has_checkpointer(ensure_config()) and here() is not None


def _execution() -> ExecutionInfo | None:
    try:
        return get_runtime().execution_info
    except (KeyError, RuntimeError):
        return None


def key(mark: Mark) -> str:
    """Return the step key of a call."""
    return json.dumps(mark)


def read(text: str) -> Mark | None:
    """Return what a step key tells; None when it is not one of this package."""
    try:
        where, *rest = json.loads(text)
        return Mark(spot(where), *rest)
    except (ValueError, TypeError):
        return None


def spot(plain: Any) -> Spot:
    """Return a spot that became plain data.

    Raises:
        ValueError, TypeError: it is none.
    """
    checkpoint, task, inner = plain
    return Spot(str(checkpoint), str(task), tuple(Level(*level) for level in inner))

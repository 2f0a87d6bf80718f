"""Which attempt at which task of a graph the running code belongs to.

LangGraph runs a task again from its first line: after an error, after an interrupt, after a crash.
Nothing that a node sees says so of the nodes round it: a graph that is called by hand inside a node
has new ids each time. So a callback handler watches tasks begin and end.

Rules of this part:

- A *turn* is one attempt at one task. The turns round the running code stand in a context variable,
  outermost first; threads, tasks and graphs that are called inside inherit it.
- Of what LangChain repeats it sees which try begins; see `tries`.
- The handler is there inside a boundary only, also where a program gives callbacks of its own.
- It watches, and decides nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tracers.context import register_configure_hook
from langgraph.callbacks import GraphCallbackHandler, GraphInterruptEvent, GraphResumeEvent

from agent_saga_langgraph.tries import Runs, tries

_NODE = "graph:step:"
"""How the tag begins that LangGraph gives the run of a node, and nothing inside the node."""
_PUSHED = "__pregel_push"
CHECKPOINTER = "__pregel_checkpointer"
"""Where LangGraph hands down its checkpointer; it is not promised."""


class Called(NamedTuple):
    """A call of another task by a task.

    Attributes:
        fingerprint: what is called, and with what.
        cached: its result is kept in a cache, if the graph has one.
    """

    fingerprint: str
    cached: bool = False


class Task:
    """What may be attempted several times.

    Attributes:
        name: its namespace, ids included.
        turns: how often it was begun here.
        done: the turn that ended well, or None.
        calls: how many calls of other tasks LangGraph has counted; None when nobody knows.
        lock: held while such a call is counted.
    """

    __slots__ = ("calls", "done", "lock", "name", "turns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.turns = 0
        self.done: Turn | None = None
        self.calls: int | None = 0
        self.lock = threading.RLock()


class Turn:
    """One attempt at a task.

    Attributes:
        task: what is attempted; number: how often it was begun here, this time included.
        run: which attempt it is; graph: the run of the graph that it belongs to.
        node, step, index: the node, the superstep, and which of several tasks of it: -1 for one,
            less than that for what another task calls.
        first: the first superstep that the graph's run did; resumed: it went on from a checkpoint.
        checkpoint: the outermost graph's checkpoint that its superstep began with, once known.
        begun: the first superstep of each graph that was called inside, by how many came before.
        called: the numbers of the tasks that it called and that were begun.
        calls: its calls of other tasks, by number, those included whose results were recorded.
        base: how many calls earlier turns had made; None when nobody knows.
        kept: its graph has a checkpointer; noted of the outermost one.
    """

    __slots__ = (
        "base",
        "begun",
        "called",
        "calls",
        "checkpoint",
        "first",
        "graph",
        "index",
        "kept",
        "node",
        "number",
        "resumed",
        "run",
        "step",
        "task",
    )

    def __init__(
        self,
        task: Task,
        run: object,
        graph: object = None,
        step: int = 0,
        first: int = 0,
        path: Sequence[Any] = (),
    ) -> None:
        task.turns += 1
        self.task, self.number = task, task.turns
        self.run, self.graph = run, graph
        self.node = task.name.rpartition("|")[2].partition(":")[0]
        self.step, self.first = step, first
        self.index = _index(path)
        self.resumed = False
        self.checkpoint = ""
        self.begun: dict[int, int] = {}
        self.called: set[int] = set()
        self.calls: dict[int, Called] = {}
        self.base = task.calls
        self.kept = False

    def call(self, called: Called) -> int | None:
        """Count a call of another task, and return its number; None when nobody knows it."""
        number = self.task.calls
        if number is not None:
            self.calls[number] = called
            self.task.calls = number + 1
        return number

    def lose_count(self) -> None:
        """Note that nobody knows any longer how many calls LangGraph has counted."""
        self.task.calls = None


def _index(path: Sequence[Any]) -> int:
    """Return which of several tasks of a superstep a path of LangGraph names."""
    if not path or path[0] != _PUSHED:
        return -1
    numbers = [part for part in path if isinstance(part, int) and not isinstance(part, bool)]
    if not numbers:
        return -1
    return -2 - numbers[-1] if is_call(path) else numbers[-1]


def is_call(path: Sequence[Any]) -> bool:
    """Say whether a path of LangGraph names a task that another one calls, in the same graph."""
    return bool(path) and path[-1] is True


turns: contextvars.ContextVar[tuple[Turn, ...]] = contextvars.ContextVar(
    "agent_saga_langgraph_turns", default=()
)


class Witness(GraphCallbackHandler):
    """Watches the tasks of graphs begin and end.

    Attributes:
        outermost: the tasks that no other one that was watched is round, by name.
        runs: the runs in which LangChain may try something again.
        stops: of each graph that stopped at an interrupt, its run and the turns round it.
    """

    run_inline = True
    ignore_llm = ignore_retriever = ignore_agent = ignore_chat_model = True
    ignore_custom_event = True

    def __init__(self) -> None:
        self.outermost: dict[str, Task] = {}
        self._tasks: dict[tuple[object, str], Task] = {}
        self._first: dict[object, int] = {}
        self._open: dict[UUID, tuple[Turn, ...]] = {}
        self._resumed: set[object] = set()
        self.runs = Runs()
        self.stops: list[tuple[object, tuple[Turn, ...]]] = []

    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note that a task was begun, or, inside one, where its graph stands."""
        self.runs.begun(run_id, parent_run_id, tags or ())
        about: Mapping[str, Any] = metadata or {}
        name = about.get("langgraph_checkpoint_ns") or _namespace()
        if not name:
            self._open[run_id] = ()
            return
        outer = self._open.get(parent_run_id) if parent_run_id is not None else None
        if outer is None:
            outer = turns_at(name)
        if outer and outer[-1].task.name == name:
            if not is_node(tags or ()):
                self._open[run_id] = outer
                _note_checkpoint(outer)
                return
            outer = outer[:-1]
        turn = self._begun(name, run_id, parent_run_id, about)
        if not outer:
            self.outermost[name] = turn.task
        elif turn.index < -1:
            outer[-1].called.add(-2 - turn.index)
        else:
            outer[-1].begun.setdefault(inside(outer[-1], turn), turn.first)
        self._open[run_id] = (*outer, turn)
        turns.set((*outer, turn))

    def _begun(self, name: str, run: UUID, graph: UUID | None, about: Mapping[str, Any]) -> Turn:
        step = int(about.get("langgraph_step", 0))
        first = self._first.setdefault(graph, step)
        task = self._tasks.setdefault((graph, name), Task(name))
        turn = Turn(task, run, graph, step, first, about.get("langgraph_path") or ())
        turn.resumed = graph in self._resumed
        return turn

    def was_left(self, seen: Sequence[Turn]) -> bool:
        """Say whether a task was left when its graph stopped, inside a task of another graph."""
        stopped = {graph for graph, within in self.stops if within}
        return any(turn.graph in stopped and turn.task.done is None for turn in seen)

    def on_interrupt(self, event: GraphInterruptEvent) -> None:
        """Note that a graph stopped, and gave that to its caller as its result."""
        within = self._open.get(event.run_id, ()) if event.run_id is not None else ()
        self.stops.append((event.run_id, within))

    def on_resume(self, event: GraphResumeEvent) -> None:
        """Note that a graph goes on from a checkpoint; said before any of its tasks is begun."""
        self._resumed.add(event.run_id)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Note that a task, or a try, ended well."""
        self.runs.ended(run_id)
        for turn in self._closed(run_id)[-1:]:
            if turn.run == run_id:
                turn.task.done = turn

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Note that an attempt was given up."""
        self.runs.ended(run_id, error)
        self._closed(run_id)

    def _closed(self, run_id: UUID) -> tuple[Turn, ...]:
        self._first.pop(run_id, None)
        self._resumed.discard(run_id)
        return self._open.pop(run_id, ())


def is_node(tags: Sequence[str]) -> bool:
    """Say whether a run is that of a node, by its tags."""
    return any(tag.startswith(_NODE) for tag in tags)


def turns_at(name: str) -> tuple[Turn, ...]:
    """Return the turns round the running code, down to that of a task; none if it is not there.

    What was called before in the same place may have left its own turns behind them.
    """
    seen = turns.get()
    while seen and seen[-1].task.name != name:
        seen = seen[:-1]
    return seen


def _note_checkpoint(open_turns: tuple[Turn, ...]) -> None:
    """Keep where the outermost graph stands: a graph on a thread of its own cannot see it."""
    turn = open_turns[0]
    if not turn.checkpoint and len(open_turns) == 1:
        configurable: Mapping[str, Any] = ensure_config().get("configurable") or {}
        turn.kept = configurable.get(CHECKPOINTER) is not None
        turn.checkpoint = str((configurable.get("checkpoint_map") or {}).get("") or "")


def inside(outer: Turn, turn: Turn) -> int:
    """Return how many graphs were called in a turn before the one that another turn belongs to."""
    rest = turn.task.name.split("|")[len(outer.task.name.split("|")) : -1]
    return int(rest[0]) if rest and rest[0].isdigit() else 0


def is_part(outer: Turn, turn: Turn) -> bool:
    """Say whether a turn's graph counts its supersteps inside that of another turn.

    A graph that is called on a thread of its own does not.
    """
    return path(turn.task.name).startswith(f"{path(outer.task.name)}|")


def path(name: str) -> str:
    """Return a namespace without the ids of tasks, and without what counts graphs."""
    parts = [part.partition(":")[0] for part in name.split("|")]
    return "|".join(part for part in parts if not part.isdigit())


_watching: contextvars.ContextVar[Witness | None] = contextvars.ContextVar(
    "agent_saga_langgraph_witness", default=None
)
register_configure_hook(_watching, inheritable=True)


@contextlib.contextmanager
def watched() -> Iterator[Witness]:
    """Have the tasks of all graphs watched that run inside."""
    witness, name = _watching.get() or Witness(), _namespace()
    within = turns_at(name)
    if name and not within:  # the node round the boundary was begun before anybody watched
        within = (Turn(Task(name), uuid4()),)
    token, before, tried = _watching.set(witness), turns.set(within), tries.set(tries.get())
    try:
        yield witness
    finally:
        tries.reset(tried)
        turns.reset(before)
        _watching.reset(token)


def seen_by(witness: Witness | None, config: RunnableConfig | None) -> RunnableConfig:
    """Return a configuration whose callbacks, or those of the code round it, have a witness too."""
    given: RunnableConfig = config or {}
    if witness is None:
        return given
    callbacks = given.get("callbacks") or ensure_config().get("callbacks")
    if isinstance(callbacks, BaseCallbackManager):
        found = callbacks.copy()
        if witness not in found.handlers:
            found.add_handler(witness, inherit=True)
        return {**given, "callbacks": found}
    return {**given, "callbacks": [*(callbacks or ()), witness]}


def _namespace() -> str:
    metadata: Mapping[str, Any] = ensure_config().get("metadata") or {}
    return str(metadata.get("langgraph_checkpoint_ns") or "")

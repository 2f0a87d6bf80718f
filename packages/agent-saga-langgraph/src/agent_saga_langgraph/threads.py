"""Which saga a run on a thread belongs to. Judges what was read; reads nothing itself.

Rules of this part:

- Without a checkpointer nothing can be resumed: every run is a saga of its own, unless it is given
  a key.
- With one, the saga's id stands in the metadata of the checkpoints that its run made. A new id is
  the thread and the checkpoint that the run begins at: so a run whose first checkpoint was lost in
  a crash is found again.
- The checkpoints of a run inside a boundary of the program name that saga instead; and all of them
  name the log. What follows from that is judged in `owners`.
- A saga that waits, or whose process died, is gone on with. One that has ended is not; the thread
  of one that was undone is refused, since its state tells of effects that the world no longer has.
  If it had no effect, its state tells of none: another saga begins in its place.
- A new input on a thread that waits drops what waits: what was done there is lost to the graph.
  So does an edit of its state, except for what the edited state tells of.
- A run that begins at an older checkpoint, or at a copy of one, begins a branch, and a saga of its
  own; see `travel` for what must be undone before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt, PregelTask, StateSnapshot

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import SagaState, StepState
from agent_saga.errors import ConfigurationError, SagaClosed
from agent_saga_langgraph.wishes import History

if TYPE_CHECKING:
    from agent_saga.recovery.survey import Found

SAGA: Final = "agent_saga"
"""The key in a checkpoint's metadata under which the saga's id stands."""

INSIDE: Final = "agent_saga_inside"
"""The same for the saga of a boundary round the run, by the log's own id of it."""

LOG: Final = "agent_saga_log"
"""The key under which stands what tells the log from others; see `logs`."""

LABEL: Final = "langgraph"
"""The label of a saga under which its thread and graph stand."""

_SCOPE: Final = "langgraph:"
_BY_HAND = ("update", "fork")
"""How checkpoints that no run made call their source."""

_CAME_TO_NOTHING: Final = (StepState.NEW, StepState.NOT_APPLIED)
_GOES_ON = frozenset({SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED})


class Thread:
    """What a graph's checkpointer says about a thread, seen from where a run begins.

    Args:
        id: the thread's id.
        snapshots: all its checkpoints, newest first.
        at: the checkpoint that the run begins at; the latest one when empty.

    Attributes:
        latest: the checkpoint that the run begins at; None on a thread that a graph never ran on.
        line: that one and those that led to it, newest first.
        branched: there are checkpoints beside the line, or behind its end.
    """

    __slots__ = ("branched", "id", "latest", "line", "snapshots")

    def __init__(self, id: str, snapshots: Iterable[StateSnapshot], at: str = "") -> None:  # noqa: A002
        self.id = id
        self.snapshots = list(snapshots)
        by_id = {checkpoint_of(snapshot.config): snapshot for snapshot in self.snapshots}
        if at and at not in by_id:
            raise ConfigurationError(
                f"The thread {id!r} has no checkpoint {at!r}.",
                fix="Take one of graph.get_state_history(config).",
            )
        self.line: list[StateSnapshot] = []
        at = at or next(iter(by_id), "")
        while at in by_id:
            snapshot = by_id.pop(at)
            self.line.append(snapshot)
            at = checkpoint_of(snapshot.parent_config)
        self.branched = bool(by_id)
        self.latest = self.line[0] if self.line else None

    @property
    def made(self) -> StateSnapshot | None:
        """The latest checkpoint that a run made."""
        return next((s for s in self.line if not by_hand(s)), None)

    @property
    def saga(self) -> str | None:
        """The id of the saga whose run made that; None if it was a part of a program's saga."""
        return saga_of(self.made)

    @property
    def inside(self) -> str | None:
        """The id, in the log, of the program's saga that the run which made that was a part of."""
        return inside_of(self.made)

    @property
    def ends(self) -> list[str]:
        """Where runs may have begun that left no checkpoint."""
        return ["start", *[checkpoint_of(s.config) for s in self.snapshots]]

    @property
    def sagas(self) -> set[str]:
        """The ids of all sagas of its own that the thread may have had first at each place."""
        named = {saga for s in self.snapshots if (saga := saga_of(s)) is not None}
        return named | {self.begun(at) for at in self.ends}

    @property
    def programs(self) -> set[str]:
        """The ids, in the log, of the program's sagas that runs of the thread were a part of."""
        return {saga for s in self.snapshots if (saga := inside_of(s)) is not None}

    @property
    def begins_branch(self) -> bool:
        """Whether a run begins at an older checkpoint, or at a copy or an edit of one."""
        if not self.branched or self.latest is None:
            return False
        older = self.latest is not self.snapshots[0]
        return older or by_hand(self.latest)

    @property
    def waits(self) -> bool:
        """Whether the graph stands before work that it has not done."""
        return self.latest is not None and stopped_early(self.latest)

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What the thread waits for."""
        return tuple(self.latest.interrupts) if self.latest is not None else ()

    def begun_at(self, number: int = 1) -> str:
        """Return the id of a saga that begins here; later numbers where earlier ones are used."""
        at = checkpoint_of(self.latest.config) if self.latest is not None else "start"
        return self.begun(at, number)

    def begun(self, at: str, number: int = 1) -> str:
        """Return the id of a saga that begins at a checkpoint of the thread."""
        return f"langgraph:{self.id}:{at}" + (f":{number}" if number > 1 else "")

    def history(self, done: frozenset[str], *kept: object, resuming: bool) -> History:
        """Return which supersteps were completed, and which checkpoints still count.

        Args:
            done: the checkpoints of the line whose superstep was completed.
            kept: what the saga kept of its attempts when it was suspended, and later.
            resuming: the run goes on with what waits; a new input drops it instead.
        """
        dropped = {checkpoint_of(s.parent_config) for s in self.line if source_of(s) == "input"}
        if self.latest is not None and not resuming:
            dropped.add(checkpoint_of(self.latest.config))
        told: set[str] = set()
        for edit, edited in itertools.pairwise(self.line):
            if by_hand(edit) and checkpoint_of(edited.config) not in done:
                dropped.add(checkpoint_of(edited.config))
                told |= {task.id for task in edited.tasks if is_told(task, edit)}
        known = {checkpoint_of(snapshot.config) for snapshot in self.line}
        return History(done, known - dropped, told, *kept)

    def gone_back(self) -> frozenset[str]:
        """Return the checkpoints of the line that an edit by hand has gone back to before.

        An edit in the place of a node that did not wait (`as_node=`) makes other nodes come next.
        If one of them is on the line, it and what came after it will be done again.
        """
        line, again = self.line, set[str]()
        edits = list(itertools.takewhile(by_hand, line))
        for edit, edited in itertools.pairwise(line[: len(edits) + 1]):
            again |= jumped(edited, edit)
        again &= set(line[0].next) if line else set()
        passed = list[str]()
        for snapshot in line[len(edits) :]:
            passed.append(checkpoint_of(snapshot.config))
            if not again.isdisjoint(task.name for task in snapshot.tasks):
                return frozenset(passed)
        return frozenset()


def jumped(edited: StateSnapshot, edit: StateSnapshot) -> set[str]:
    """Return the nodes that come next since an edit was made in the place of one that did not wait.

    LangGraph keeps what is written in the place of a node as the result of one of its tasks.
    """
    tasks = edited.tasks
    stopped = {task.name for task in tasks if task.interrupts} or {task.name for task in tasks}
    if any(task.result is not None and task.name in stopped for task in tasks):
        return set()
    return set(edit.next) - {task.name for task in tasks}


def is_told(task: PregelTask, snapshot: StateSnapshot) -> bool:
    """Say whether a state that was edited holds what a task had written, and will not repeat it."""
    if task.error is not None or task.interrupts or task.name in snapshot.next:
        return False
    written, values = task.result, snapshot.values
    if not isinstance(written, Mapping) or not isinstance(values, Mapping):
        return written is not None and _holds(values, written)
    return all(name in values and _holds(values[name], one) for name, one in written.items())


def _holds(value: Any, written: Any) -> bool:
    several = isinstance(value, list) and isinstance(written, list)
    try:
        if several:
            return all(any(_same(one, item) for one in value) for item in written)
        return (isinstance(value, list) and any(_same(one, written) for one in value)) or _same(
            value, written
        )
    except Exception:  # values are the user's: comparing them may do anything
        return False


def _same(one: Any, other: Any) -> bool:
    """Say whether two values are equal, or one message: in a state it has been given an id."""
    said = [
        (type(each), each.content, getattr(each, "tool_call_id", None))
        for each in (one, other)
        if isinstance(each, BaseMessage)
    ]
    return said[0] == said[1] if len(said) == 2 else bool(one == other)


def checkpoint_of(config: RunnableConfig | None) -> str:
    """Return the checkpoint that a configuration names, or an empty string."""
    return str(((config or {}).get("configurable") or {}).get("checkpoint_id") or "")


def thread_of(config: RunnableConfig) -> str:
    """Return the thread that a run is on.

    Raises:
        ConfigurationError: the configuration names none, and the graph has a checkpointer.
    """
    thread = (config.get("configurable") or {}).get("thread_id")
    if thread is None:
        raise ConfigurationError(
            "The graph has a checkpointer, and the configuration names no thread.",
            fix='Give config={"configurable": {"thread_id": "…"}}.',
        )
    return str(thread)


def saga_of(snapshot: StateSnapshot | None) -> str | None:
    """Return the id of the saga whose run made a checkpoint, or None."""
    return _noted(snapshot, SAGA)


def inside_of(snapshot: StateSnapshot | None) -> str | None:
    """Return the id of the program's saga that the run which made a checkpoint was a part of."""
    return _noted(snapshot, INSIDE)


def log_of(snapshot: StateSnapshot) -> str:
    """Return what tells the log of the run that made a checkpoint, or an empty string."""
    return _noted(snapshot, LOG) or ""


def saga_id_of(snapshot: StateSnapshot) -> str | None:
    """Return the id, in the log, of the saga that a checkpoint's run was, or was a part of."""
    own = saga_of(snapshot)
    return inside_of(snapshot) if own is None else identity.saga_id_of(own)


def scope_of(thread: str) -> str:
    """Return how the savepoint of a thread's run inside a boundary of the program is called."""
    return f"{_SCOPE}{thread}"


def on_thread(path: Iterable[str]) -> bool:
    """Say whether a savepoint is, or is inside, that of a thread's run; see `scope_of`."""
    return any(part.startswith(_SCOPE) for part in path)


def _noted(snapshot: StateSnapshot | None, key: str) -> str | None:
    found: Mapping[str, Any] = (snapshot.metadata if snapshot is not None else None) or {}
    value = found.get(key)
    return value if isinstance(value, str) else None


def latest_of(config: RunnableConfig | None) -> RunnableConfig:
    """Return a configuration that names the thread's latest checkpoint."""
    given = config or {}
    configurable = dict(given.get("configurable") or {})
    configurable.pop("checkpoint_id", None)
    return {**given, "configurable": configurable}


def by_hand(snapshot: StateSnapshot) -> bool:
    """Say whether no run made a checkpoint; a run that begins a branch makes a copy of its own."""
    return source_of(snapshot) in _BY_HAND and saga_id_of(snapshot) is None


def source_of(snapshot: StateSnapshot) -> str:
    """Return what made a checkpoint: "input" or "loop" of a run, "update" or "fork" by hand."""
    return str((snapshot.metadata or {}).get("source"))


def stopped_early(snapshot: StateSnapshot) -> bool:
    """Say whether work remains; a task whose writes are stored is not `next`, and not yet done."""
    return bool(snapshot.next or snapshot.tasks)


def goes_on(given: object) -> bool:
    """Say whether a run's input goes on with what waits, rather than beginning something."""
    return given is None or isinstance(given, Command)


def usable(state: SagaState | None) -> bool:
    """Say whether a saga can be gone on with; None is one that has no record."""
    return state is None or state in _GOES_ON


def did_nothing(found: Found | None) -> bool:
    """Say whether a saga was undone that had no effect: a thread's state tells of none."""
    if found is None or found.view.state is not SagaState.ROLLED_BACK:
        return False
    return all(
        step.reversible or step.state in _CAME_TO_NOTHING for step in found.view.steps.values()
    )


def continued(thread: Thread, saga: str, state: SagaState | None, *, resuming: bool) -> bool:
    """Say whether a run goes on with the saga that the thread's latest checkpoint names.

    Args:
        thread: where the run is.
        saga: the saga's id.
        state: the saga's, as its log tells; None when it left no record.
        resuming: the run's input goes on with what waits.

    Raises:
        SagaClosed: the saga was undone, or has ended while the thread waits.

    A run that begins a branch goes on only with a saga that waits; else it begins one.
    """
    if state in _GOES_ON or (state is None and thread.waits):
        return True
    if not thread.begins_branch:
        check_ended(thread, saga, state, resuming=resuming)
    return False


def check_ended(thread: Thread, saga: str, state: SagaState | None, *, resuming: bool) -> None:
    """See that a saga which has ended lets another run begin on its thread.

    Raises:
        SagaClosed: it was undone, or has ended while the thread waits; arguments as for
            `continued`.
    """
    if state in (None, SagaState.COMMITTED) and not (resuming and thread.waits):
        return
    how = "has been committed" if state is SagaState.COMMITTED else f"is {state.value}"  # type: ignore[union-attr]
    raise SagaClosed(
        f"The saga {saga!r} of thread {thread.id!r} {how}; the thread's state tells of effects "
        "that the world may no longer have, or would repeat them.",
        rule="ended",
        reason="a run cannot go on in a saga that has ended",
        fix="Take another thread_id; or go back to an earlier checkpoint with rollback_to(graph, "
        "config); or give key='…' to begin a saga of its own on this thread.",
    )

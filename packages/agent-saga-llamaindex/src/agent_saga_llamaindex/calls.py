"""What is known of the run that is going on here, and of the place in it that a tool is called at.

Rules of this part:

- A model's call is known by the calls that lead to it (a run inside a tool is inside its call), its
  id, and the turn: call ids alone are not unique, so how often the id was used in earlier turns is
  a part of it.
- A workflow runs a step again from its first line: after a failure, if it has a retry policy; when
  an event comes that it waited for; when its context is restored. The framework gives a step the
  same piece of work then. So the place of a call is the steps that it is made inside of, each with
  its piece of work; the same place is the same place in any process.
- A workflow of the bare framework that a step runs itself is not seen. But LlamaIndex tells, where
  a tool is called in it, which step runs and at which piece of work: that place is known, too.
- Tools that run in threads see the same objects.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_saga_llamaindex import seams
from agent_saga_llamaindex.lineage import Lineage

if TYPE_CHECKING:
    from agent_saga_llamaindex.asking import RunAnswers

Path = tuple[str, ...]


class Counts:
    """How often models were asked and ids were used, in a run and the runs inside it."""

    __slots__ = ("_lock", "_seen", "_turns")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: Counter[Path] = Counter()
        self._seen: dict[tuple[Path, str], list[int]] = {}

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


class Execution:
    """One execution of a workflow's step, or one run of a workflow that code begins.

    Args:
        place: the steps that lead to it, each with its piece of work; itself the last.
        outer: the execution that it is inside of, or None.
        line: that of the event that it handles; empty if it has none.
        before: how many calls the saga knew when it began.
        worker: the framework's object of this execution, or None.

    Attributes:
        met: the keys of earlier calls that it has come to again.
        pending: the questions of the gate that its calls wait for, by request id.
    """

    __slots__ = (
        *("_lock", "_numbers", "_runs", "_unseen", "before", "line", "met", "outer", "pending"),
        *("place", "worker"),
    )

    def __init__(
        self,
        place: Path = (),
        outer: Execution | None = None,
        *,
        line: str = "",
        before: int = 0,
        worker: object = None,
    ) -> None:
        self.place = place
        self.line = line
        self.outer = outer
        self.before = before
        self.worker = worker
        self.met: set[tuple[str, str]] = set()
        self.pending: dict[str, Mapping[str, Any]] = {}
        self._lock = threading.Lock()
        self._numbers: Counter[tuple[str, bytes]] = Counter()
        self._runs = 0
        self._unseen: dict[str | int, Execution] = {}

    def in_unseen(self, worker: Any, before: int) -> Execution:
        """Return the execution of a step of a workflow that was begun in here and is not seen.

        Args:
            worker: the framework's object of it.
            before: how many calls the saga knows now.
        """
        run = seams.run_id()
        with self._lock:
            around = self._unseen.get(run)
            if around is None:
                around = self._unseen[run] = self._next_run()
            found = self._unseen.get(id(worker))
            if found is None:
                place = (*around.place, seams.step_name(worker), seams.work_of(worker))
                found = Execution(place, around, before=before, worker=worker)
                self._unseen[id(worker)] = found
            return found

    def run_inside(self) -> Execution:
        """Return a run of a workflow that begins inside this execution."""
        with self._lock:
            return self._next_run()

    def _next_run(self) -> Execution:
        self._runs += 1
        return Execution((*self.place, f"run {self._runs}"), self, before=self.before)

    def number(self, tool: str, mac: bytes) -> int:
        """Return how many equal calls it has made before."""
        with self._lock:
            self._numbers[tool, mac] += 1
            return self._numbers[tool, mac] - 1

    def lines(self) -> list[tuple[int, str]]:
        """Return the lines that lead here, each with the length of its place."""
        return [(len(each.place), each.line) for each in self.chain() if each.line]

    def chain(self) -> Iterator[Execution]:
        """Give it and the executions that it is inside of, the innermost first."""
        found: Execution | None = self
        while found is not None:
            yield found
            found = found.outer


class Run:
    """One run that is a boundary, as its tools see it.

    Args:
        on_tool_failure: "continue", "rollback" or "ask".
        root: the place of what it runs.
        outer: the run that it is inside of, or None.

    Attributes:
        counts: what it shares with the runs round it.
        stop: why nothing of the run may begin any more; None while nothing stops it.
        before_turn: what is awaited before a model is asked; None for nothing.
        handlers: the framework's, of the run and of the runs inside it that are no boundaries.
        answers: what humans said; None where the run cannot wait for anybody.
        failures: the questions whether it goes on after a tool failed, by request id.
        keep: what is told of each turn's context; None for nothing.
        lineage: where its events come from.
    """

    __slots__ = (
        *("answers", "before_turn", "counts", "failures", "handlers", "keep"),
        *("lineage", "on_tool_failure", "root", "stop"),
    )

    def __init__(
        self,
        on_tool_failure: str = "continue",
        root: Execution | None = None,
        outer: Run | None = None,
    ) -> None:
        self.on_tool_failure = on_tool_failure
        self.root = root or Execution()
        self.counts: Counts = Counts() if outer is None else outer.counts
        self.stop: Exception | None = None
        self.before_turn: Callable[[], Awaitable[None]] | None = None
        self.handlers: list[Any] = []
        self.answers: RunAnswers | None = None
        self.failures: dict[str, Mapping[str, Any]] = {}
        self.keep: Callable[[Any], Awaitable[None]] | None = None
        self.lineage = Lineage()


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


def execution_here(run: Run, before: int) -> Execution:
    """Return the execution that a call is made in.

    Args:
        run: the run that goes on here.
        before: how many calls the saga knows now.
    """
    found, worker = executing.get() or run.root, seams.worker()
    if worker is None or any(each.worker is worker for each in found.chain()):
        return found
    return found.in_unseen(worker, before) if seams.run_id() else found


@contextlib.contextmanager
def entered(run: Run) -> Iterator[None]:
    """Let the code inside be a run; its model's calls are not those of the one round it."""
    call = calling.get()
    path = call.inside if call is not None else ()
    tokens = (
        running.set(run),
        calling.set(Call("", (*path, *run.root.place[-1:]))),
        executing.set(run.root),
    )
    try:
        yield
    finally:
        executing.reset(tokens[2])
        calling.reset(tokens[1])
        running.reset(tokens[0])


def name_of(call: Call | None, run: Run) -> tuple[str, ...]:
    """Return what a model's call is known by in its run; empty for another call."""
    if call is None or not call.id:
        return ()
    return (*call.path, call.id, str(run.counts.number(call.path, call.id)))

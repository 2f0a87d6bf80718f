"""One run of a crew, a flow or an agent, inside its boundary.

Rules of this part:

- What ends a run (a tool failure where that undoes it, a halt, a question to a human) is noted
  here, by whoever meets it first, and leaves CrewAI as an error that it neither hides nor repeats;
  where an older version does, the run is stopped before its model is asked again.
- Once it is noted, or the run was left, nothing of the run begins any more.
- A run is found through the context, and a tool whose thread lost it finds its run by itself:
  through the only run that has the tool. If there are several, it is refused.
- The tasks of asynchronous tools are known, each with its event loop, so that a run that is
  cancelled cancels them: CrewAI runs them on loops of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from crewai.hooks.dispatch import HookAborted
from crewai.tools.tool_failure import ToolExecutionFailedError, ToolFailure, ToolFailureRecord

from agent_saga.engine.boundary import current_scope
from agent_saga.errors import NoBoundary, one_line
from agent_saga.kit.frameworks.declarations import checked
from agent_saga_crewai.attempts import attempts_of
from agent_saga_crewai.delegated import Delegated
from agent_saga_crewai.place import Place, place_of

if TYPE_CHECKING:
    from agent_saga.engine.scope import Scope
    from agent_saga.kit.agent_kit import AgentKit
    from agent_saga.kit.frameworks.declarations import Declarations

_SOURCE: Final = "agent-saga"


class RunEnded(ToolExecutionFailedError, HookAborted):
    """The run ends here; what ended it is noted in the run.

    It is both of what CrewAI passes on as it is: the one in all versions, the other in later ones.

    Args:
        reason: why, in words.
    """

    def __init__(self, reason: str) -> None:
        failure = ToolFailure(message=reason)
        Exception.__init__(self, reason)
        self.record = ToolFailureRecord(tool_name=_SOURCE, failure=failure)
        self.reason = reason
        self.source = _SOURCE


class Execution:
    """One execution of a crew, of an agent without a crew, of a flow's method, or of a tool's body.

    Args:
        method: the flow's method that it is, or that it is inside of.
        outer: the execution that it is inside of, or None.
        caller: where the call was made whose body it is; None where it is no tool's.
    """

    __slots__ = ("caller", "method", "outer")

    def __init__(
        self, method: str = "", outer: Execution | None = None, caller: Place | None = None
    ) -> None:
        self.method = method
        self.outer = outer
        self.caller = caller

    def is_inside(self, execution: Execution, caller: Place) -> bool:
        """Say whether it is the body, or in the body, of a call made in an execution at a place."""
        found: Execution | None = self
        while found is not None:
            if found.outer is execution and found.caller == caller:
                return True
            found = found.outer
        return False


class Run:
    """One run.

    Args:
        scope: the boundary.
        kit: whose boundary it is.
        on_tool_failure: "continue", "rollback" or "ask".
        declared: declarations of tools that are met only while the run goes on.
        records: the model's answers are recorded, so that the run can be gone on with.

    Attributes:
        error: what ended it, or None.
        question: what it waits for, or None.
        asked: the error by which the question was put.
        failure: how the last tool that failed did, or None.
        pace: called before each tool call, or None.
        guard: puts the gate in force where it is not; returns its hook for a point that was hidden.
    """

    def __init__(
        self,
        scope: Scope,
        *,
        kit: AgentKit | None,
        on_tool_failure: str,
        declared: Declarations,
        records: bool,
    ) -> None:
        self.scope = scope
        self.kit = kit
        self.on_tool_failure = on_tool_failure
        self.declared = checked(declared).for_a_run()
        self.records = records
        self.error: BaseException | None = None
        self.question: Mapping[str, Any] | None = None
        self.asked: Exception | None = None
        self.failure: Exception | None = None
        self.pace: Callable[[], None] | None = None
        self.guard: Callable[..., Callable[[Any], Any] | None] = lambda _=None: None
        self._closed = ""
        self._lock = threading.Lock()
        self._tasks: set[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = set()
        self._executions: dict[tuple[object, ...], tuple[object, Execution]] = {}
        self._delegated = Delegated()
        self.effects: set[int] = set()

    # --- ending ----------------------------------------------------------------------------------

    def stop(self, error: BaseException) -> RunEnded:
        """Note what ends the run; return what leaves CrewAI."""
        with self._lock:
            if self.error is None:
                self.error = error
        return self.leaving()

    def wait(self, question: Mapping[str, Any], asked: Exception) -> RunEnded:
        """Note that the run waits for a human; return what leaves CrewAI."""
        with self._lock:
            if self.question is None:
                self.question, self.asked = question, asked
        return self.leaving()

    def close(self, reason: str) -> None:
        """Let nothing more begin, and cancel the asynchronous tools that still run."""
        with self._lock:
            self._closed = self._closed or reason
            tasks = tuple(self._tasks)
        for loop, task in tasks:
            with contextlib.suppress(RuntimeError):  # its loop was closed meanwhile
                loop.call_soon_threadsafe(task.cancel)

    @property
    def over(self) -> bool:
        """Whether nothing of the run may begin any more."""
        return self.error is not None or self.question is not None or bool(self._closed)

    def leaving(self) -> RunEnded:
        """Return what leaves CrewAI when the run is over."""
        if self.error is not None:
            return RunEnded(one_line(self.error))
        return RunEnded("the run waits for a human" if self.question is not None else self._closed)

    def check(self) -> None:
        """Stop here if the run is over.

        Raises:
            RunEnded: so it is.
        """
        if self.over:
            raise self.leaving()

    @contextlib.contextmanager
    def task_running(self) -> Iterator[None]:
        """Let the current task be cancelled when the run is."""
        task = asyncio.current_task()
        if task is None:
            yield
            return
        mine = (asyncio.get_running_loop(), task)
        with self._lock:
            self._tasks.add(mine)
            closed = self._closed
        if closed:
            task.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._tasks.discard(mine)

    # --- places ----------------------------------------------------------------------------------

    def place(self, agent: Any, task: Any, crew: Any) -> Place:
        """Return where an agent's call is made."""
        return place_of(_here().method, agent, task, crew)

    def begin(self, agent: Any, task: Any, crew: Any, executor: object = None) -> None:
        """Note that an attempt of an agent begins: its equal calls may be those of earlier ones."""
        execution = self.execution(agent, task, executor)
        saga = self.scope.saga
        attempts_of(saga).begin(saga, self.place(agent, task, crew), execution)

    def execution(self, agent: Any, task: Any, executor: object = None) -> Execution:
        """Return what execution a call belongs to.

        Args:
            agent: who makes it.
            task: what for; an agent without a task is executed anew by each executor.
            executor: the framework's, where it is known.
        """
        around = _here()
        if task is not None or agent is None:
            return self._delegated.of(task) or around
        with self._lock:
            found = self._executions.get((around, id(agent)))
            if found is None or (executor is not None and found[0] is not executor):
                found = (executor, Execution(around.method, around))
                self._executions[around, id(agent)] = found
            return found[1]

    @contextlib.contextmanager
    def delegated(self, agent: Any, task: Any, call: Any) -> Iterator[None]:
        """Let the code inside execute a task in the body of another agent's call.

        Args:
            agent: who executes it.
            task: what it executes.
            call: the framework's context of the call.
        """
        place = self.place(agent, task, call.crew)
        caller = self.place(call.agent, call.task, call.crew)
        outer = self.execution(call.agent, call.task)
        self._delegated.begin(task, place, Execution(outer.method, outer, caller))
        try:
            yield
        except Exception:
            self._delegated.failed(task, place)
            raise


_NOWHERE: Final = Execution()
_run: contextvars.ContextVar[Run | None] = contextvars.ContextVar(
    "agent_saga_crewai_run", default=None
)
_execution: contextvars.ContextVar[Execution] = contextvars.ContextVar(
    "agent_saga_crewai_execution"
)
_going: set[Run] = set()
_lock = threading.Lock()


def _here() -> Execution:
    return _execution.get(_NOWHERE)


def executing(method: str | None = None) -> None:
    """Note that an execution begins in this context; of this method, or inside the present one."""
    around = _here()
    _execution.set(Execution(around.method if method is None else method, around))


@contextlib.contextmanager
def in_body_of(execution: Execution, caller: Place) -> Iterator[None]:
    """Let the code inside be the body of a call.

    Args:
        execution: what the call belongs to.
        caller: where it is made.
    """
    token = _execution.set(Execution(_here().method, execution, caller))
    try:
        yield
    finally:
        _execution.reset(token)


def in_a_body() -> bool:
    """Say whether the code is inside the body of an agent's call."""
    return _here().caller is not None


def current_run() -> Run | None:
    """Return the run that the code is inside of, or None."""
    return _run.get()


@contextlib.contextmanager
def entered(run: Run) -> Iterator[None]:
    """Let the code inside be a run."""
    token = _run.set(run)
    around = _here()
    began = _execution.set(Execution(around.method, around))
    with _lock:
        _going.add(run)
    try:
        yield
    finally:
        with _lock:
            _going.discard(run)
        _execution.reset(began)
        _run.reset(token)


def located(effect: int, name: str) -> tuple[Scope | None, Run | None]:
    """Return the boundary that a tool is called in, and the run; None outside.

    Args:
        effect: which tool it is.
        name: what it is called.

    Raises:
        NoBoundary: the thread lost its context, and several runs have the tool.
    """
    scope, run = current_scope.get(), _run.get()
    if scope is not None:
        return scope, run
    with _lock:
        found = [one for one in _going if effect in one.effects]
    if len(found) > 1:
        raise NoBoundary(
            f"{name} was called in a thread that does not know its run; it did not run.",
            rule="outside",
            reason="several runs have this tool, and nothing tells which one called it",
            fix="Hand the run over with `contextvars.copy_context().run(function)`.",
        )
    return (found[0].scope, found[0]) if found else (None, None)

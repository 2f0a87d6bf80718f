"""One call of a tool's function as a step of the saga round it.

Rules of this part:

- Below every place where a framework turns an exception into text: so a step ends as its function
  did, and not as the model is told.
- What the model chose is recorded; what the framework injects (state, store, configuration) is
  passed on and stands in no record.
- An interrupt is no failure. Whatever came before it in the function runs again on resume, so
  unless the tool says that this is nothing (`asks_first`), the call's outcome is unknown.
- Where a tool failure is to undo the run (`on_tool_failure="rollback"`, or "ask" and a human's no),
  the failure leaves the graph at once, past every handler that would make it text.
- So does a halt: the run ends, whatever would hide it from the run.
- A graph with a checkpointer whose run is no boundary does nothing inside a boundary of the
  program: that one would not wait with it. Nor does one that a run's boundary was not shown, since
  something (a function, a sequence, `with_retry`) is round it.
- Outside every boundary a call runs as the bare function, but not on a thread whose saga has not
  ended; see `outside`.
- A question of the gate that waits for its answer interrupts the graph, before the effect.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langgraph.errors import GraphBubbleUp, GraphInterrupt

from agent_saga.controls.waiting import answers_here
from agent_saga.engine.boundary import current_scope
from agent_saga.engine.drive_async import AsyncDriver
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.quitting import LEAVES_A_TOOL, held
from agent_saga.engine.requests import Protocol
from agent_saga.engine.scope import Scope
from agent_saga.engine.wrap import Invocation, SagaTool
from agent_saga.errors import ApprovalPending, NoBoundary, RefusedError
from agent_saga.kit.frameworks import failures
from agent_saga.kit.frameworks.boundaries import check_kit
from agent_saga.kit.frameworks.functions import unkeyed
from agent_saga.wal.encoding import mac
from agent_saga_langgraph import outside
from agent_saga_langgraph import place as places
from agent_saga_langgraph.asking import interrupting
from agent_saga_langgraph.attempts import attempts_of
from agent_saga_langgraph.caches import check_not_cached
from agent_saga_langgraph.telling import step_ended
from agent_saga_langgraph.tries import Try, trying

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga

log = logging.getLogger("agent_saga.langgraph")

calling: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "agent_saga_langgraph_call", default=None
)
"""The model's id of the call that is about to reach its function."""

announced: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "agent_saga_langgraph_announced", default=False
)
"""The tool call that the framework is about to announce is one of a wrapped tool."""

_policy: contextvars.ContextVar[str] = contextvars.ContextVar(
    "agent_saga_langgraph_on_tool_failure", default=""
)


_blind: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "agent_saga_langgraph_blind", default=False
)


@contextlib.contextmanager
def blind(is_blind: bool) -> Iterator[None]:
    """Say whether the boundary of a run knows of no thread that it is on."""
    token = _blind.set(is_blind)
    try:
        yield
    finally:
        _blind.reset(token)


@contextlib.contextmanager
def failing(policy: str) -> Iterator[None]:
    """Say what a tool failure means to the run: "continue", "rollback" or "ask"."""
    token = _policy.set(policy)
    try:
        yield
    finally:
        _policy.reset(token)


def in_a_run() -> bool:
    """Say whether the boundary here is that of a run, which knows when its graph stops."""
    return bool(_policy.get())


class ToolFailed(GraphBubbleUp):
    """A tool failed where that undoes the run; leaves the graph past every error handler.

    Args:
        cause: what the tool raised.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Effect:
    """A function behind a tool.

    Args:
        tool: the function, declared and wrapped.
        chosen: says of an argument's name whether the model chooses it.
    """

    __slots__ = ("_chooses", "tool")

    def __init__(self, tool: SagaTool[..., Any], chosen: Callable[[str], bool]) -> None:
        self.tool = tool
        self._chooses = chosen

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make the call on this thread."""
        scope = current_scope.get()
        kwargs = unkeyed(self.tool, kwargs)
        if scope is None:
            outside.check(self.tool)
            return self.tool.invoke(None, args, kwargs, form="sync")
        call, asked = self._invocation(scope, args, kwargs)
        token, heard = calling.set(None), announced.set(False)
        try:
            attempts_of(scope.saga).save()
            self._check_answer(call)
            with trying(asked):
                value = call.run()
        except LEAVES_A_TOOL as error:
            left: BaseException = self._leaving(held(error))
            question = failure_question(left)
            if question is not None:
                left = answered(left, SyncDriver(scope.saga.engine).drive(question))
            step_ended(call, left)
            raise left from error
        finally:
            calling.reset(token)
            announced.reset(heard)
        step_ended(call, None)
        return value

    async def arun(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make the call on the event loop."""
        scope = current_scope.get()
        kwargs = unkeyed(self.tool, kwargs)
        if scope is None:
            await outside.check_async(self.tool)
            return await self.tool.invoke(None, args, kwargs, form="async")
        call, asked = self._invocation(scope, args, kwargs)
        token, heard = calling.set(None), announced.set(False)
        try:
            await attempts_of(scope.saga).save_async()
            self._check_answer(call)
            with trying(asked):
                value = await call.start()
        except LEAVES_A_TOOL as error:
            left: BaseException = self._leaving(held(error))
            question = failure_question(left)
            if question is not None:
                left = answered(left, await AsyncDriver(scope.saga.engine).drive(question))
            step_ended(call, left)
            raise left from error
        finally:
            calling.reset(token)
            announced.reset(heard)
        step_ended(call, None)
        return value

    def _invocation(
        self, scope: Scope, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Invocation, Try | None]:
        saga, tool = scope.saga, self.tool.tool
        check_kit(self.tool, saga)
        if not tool.reversible:
            _check_known(tool.name)
            check_not_cached(tool.name, known=in_a_run())
        named = tool.form.named(args, kwargs)
        arguments = self._chosen(named)
        fingerprint = mac(saga.salt, arguments)
        apart = self._apart(saga, named)
        key, asked = attempts_of(saga).asked(saga, tool, calling.get(), fingerprint, apart)
        return Invocation(scope, tool, arguments, args, kwargs, key), asked

    def _apart(self, saga: Saga, arguments: Mapping[str, Any]) -> str:
        """Return what tells a call from others beside what is recorded of its arguments."""
        return ""

    def _chosen(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in arguments.items() if self._chooses(name)}

    def _check_answer(self, call: Invocation) -> None:
        """Stop a call again about whose failure a human said no; the answer came with a resume.

        Raises:
            ToolFailed: so it is.
        """
        answers = answers_here()
        if _policy.get() != "ask" or answers is None or call.key is None:
            return
        said = answers.find(failures.failure_request(call))
        if said is not None and not said.approved:
            raise ToolFailed(failures.denied_failure(call.tool.name, said))

    def _leaving(self, error: Exception) -> Exception:
        """Return what a failed call raises to the framework, before anybody was asked."""
        if isinstance(error, ApprovalPending):
            return interrupting(error)
        if isinstance(error, GraphInterrupt):
            self._say_interrupted()
        if isinstance(error, failures.FAULTS) and _policy.get():
            return ToolFailed(error)
        if isinstance(error, (GraphBubbleUp, RefusedError)) or _policy.get() != "rollback":
            return error
        return ToolFailed(error)

    def _say_interrupted(self) -> None:
        tool = self.tool.tool
        if not tool.reversible and GraphInterrupt not in tool.not_applied_on:
            log.warning(
                "%s interrupted its graph, and may have changed something before; it will not "
                "be run again. Declare asks_first=True if all its interrupts come before its "
                "effect.",
                tool.name,
            )


def _check_known(tool: str) -> None:
    """Refuse an effect of a graph with a checkpointer that the boundary round it does not know.

    Raises:
        NoBoundary: so it is.
    """
    if in_a_run():
        place = places.here() if _blind.get() else None
        is_unknown = place is not None and place.is_kept
        fix = "Give saga_run the compiled graph itself, or make that a saga_agent, which whatever "
        fix += "is round it may call."
    else:
        is_unknown = places.is_on_thread()
        fix = "Run the graph with saga_run(graph, …), or make it a saga_agent."
    if is_unknown:
        raise NoBoundary(
            f"{tool} was called by a graph with a checkpointer, inside a boundary that knows "
            "nothing of the graph's run; it did not run.",
            rule="thread",
            reason="the boundary would be committed while the graph waits, and the graph would "
            "repeat the effect",
            fix=fix,
        )


def failure_question(error: BaseException) -> Protocol[BaseException | None] | None:
    """Return the question whether a run goes on after a tool's failure; None if none is asked."""
    return failures.failure_question(error, _policy.get(), (GraphBubbleUp,))


def answered(error: BaseException, answer: BaseException | None) -> BaseException:
    """Return what a failed call raises to the framework, now that a human was asked."""
    if answer is None:
        return error
    if isinstance(answer, ApprovalPending):
        return interrupting(answer)
    if isinstance(answer, Exception) and isinstance(error, Exception):
        return ToolFailed(error)
    return answer

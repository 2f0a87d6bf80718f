"""One call of a tool's function as a step of the saga round it.

Rules of this part:

- Below every place where CrewAI turns an exception into text, or repeats a call: so a step ends as
  its function did, and CrewAI is told once. An agent is given a `ToolFailure`, which CrewAI does
  not try again; code that calls a tool itself gets the exception.
- A call that the gate refused had no effect and is no failure: the agent is told rule and reason as
  text. What says that the program or the saga is at fault ends the run.
- A tool that returns a `ToolFailure` of its own says that it failed, not what it did: the outcome
  is unknown, unless it is declared with `not_applied_on=(ToolReported,)`.
- Where a tool failure is to undo the run (`on_tool_failure="rollback"`, or "ask" and a human's no),
  it ends the run.
- A question that waits for its answer ends the run, too, and its saga is suspended.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from crewai.tools.tool_failure import ToolFailure, ToolFailureReason

from agent_saga.controls.waiting import answers_here
from agent_saga.engine.boundary import current_scope
from agent_saga.engine.drive_async import AsyncDriver
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.quitting import LEAVES_A_TOOL, held
from agent_saga.engine.requests import Protocol
from agent_saga.engine.scope import Scope
from agent_saga.engine.wrap import Invocation, SagaTool
from agent_saga.errors import ApprovalPending, RefusedError
from agent_saga.kit.frameworks import failures, functions
from agent_saga.kit.frameworks.boundaries import check_kit
from agent_saga.wal.encoding import mac
from agent_saga_crewai import bare
from agent_saga_crewai.asking import HumanAsked, question_of
from agent_saga_crewai.attempts import attempts_of
from agent_saga_crewai.runs import Run, RunEnded, in_body_of, located
from agent_saga_crewai.telling import step_ended

calling: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "agent_saga_crewai_call", default=None
)
"""The framework's context of the tool call that an agent is about to make, or None."""


class ToolReported(Exception):
    """A tool returned a `ToolFailure`: it says that it failed.

    Args:
        failure: what it returned.
    """

    def __init__(self, failure: ToolFailure) -> None:
        super().__init__(failure.as_agent_message())
        self.failure = failure


def reporting(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises what it would return as a `ToolFailure`."""
    return functions.fitting(fn, _no_failure)


def _no_failure(value: Any) -> Any:
    if isinstance(value, ToolFailure):
        raise ToolReported(value)
    return value


class Effect:
    """A function behind a tool.

    Args:
        tool: the function, declared and wrapped.
        answers: a refusal must not become the agent's last word: the tool's result would be it.
    """

    def __init__(self, tool: SagaTool[..., Any], *, answers: bool) -> None:
        self.tool = tool
        self._answers = answers
        bare.watch()

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make the call on this thread."""
        kwargs = functions.unkeyed(self.tool, kwargs)
        scope, run, context = self._located()
        if scope is None:
            return _unwrapped(lambda: self.tool.invoke(None, args, kwargs, form="sync"))
        call: Invocation | None = None
        with _inside(scope):
            try:
                call = self._invocation(scope, run, context, args, kwargs)
                self._check_answer(run, call)
                with _body(run, context):
                    value = call.run()
            except LEAVES_A_TOOL as raised:
                error = held(raised)
                question = self._question(run, error)
                if question is not None:
                    error = _answered(error, SyncDriver(scope.saga.engine).drive(question))
                return self._failed(run, context, call, error)
        step_ended(call, None)
        return value

    async def arun(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make the call on the event loop."""
        kwargs = functions.unkeyed(self.tool, kwargs)
        scope, run, context = self._located()
        if scope is None:
            try:
                return await self.tool.invoke(None, args, kwargs, form="async")
            except ToolReported as reported:
                return reported.failure
        call: Invocation | None = None
        with _inside(scope), run.task_running() if run is not None else contextlib.nullcontext():
            try:
                call = self._invocation(scope, run, context, args, kwargs)
                self._check_answer(run, call)
                with _body(run, context):
                    value = await call.start()
            except (*LEAVES_A_TOOL, asyncio.CancelledError) as error:
                cut = isinstance(error, asyncio.CancelledError)
                if cut and failures.is_cancelled():
                    raise
                failure = _Cancelled("it was cancelled") if cut else held(error)
                question = self._question(run, failure)
                if question is not None:
                    answer = await AsyncDriver(scope.saga.engine).drive(question)
                    failure = _answered(failure, answer)
                return self._failed(run, context, call, failure)
        step_ended(call, None)
        return value

    # --- before the call -------------------------------------------------------------------------

    def _located(self) -> tuple[Scope | None, Run | None, Any]:
        scope, run = located(id(self), self.tool.tool.name)
        context = calling.get()
        mine = context is not None and self in effects_of(tool_of(context))
        return scope, run, context if mine else None

    def _invocation(
        self,
        scope: Scope,
        run: Run | None,
        context: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Invocation:
        saga, tool = scope.saga, self.tool.tool
        check_kit(self.tool, saga)
        arguments = tool.form.named(args, kwargs)
        if run is None:
            key = bare.key_of(saga, tool, mac(saga.salt, arguments))
        else:
            agent, task = (context.agent, context.task) if context is not None else (None, None)
            key = attempts_of(saga).key(
                saga,
                tool,
                run.place(agent, task, context.crew if context is not None else None),
                run.execution(agent, task),
                mac(saga.salt, arguments),
            )
        return Invocation(scope, tool, arguments, args, kwargs, key)

    def _check_answer(self, run: Run | None, call: Invocation) -> None:
        """Stop a call again about whose failure a human said no; the answer came with a resume.

        Raises:
            _GoesNoFurther: so it is.
        """
        answers = answers_here()
        if run is None or run.on_tool_failure != "ask" or answers is None or call.key is None:
            return
        said = answers.find(failures.failure_request(call))
        if said is not None and not said.approved:
            raise _GoesNoFurther(failures.denied_failure(call.tool.name, said))

    # --- after it --------------------------------------------------------------------------------

    def _question(self, run: Run | None, error: Exception) -> Protocol[BaseException | None] | None:
        """Return the question whether the run goes on after a failure; None if none is asked."""
        if run is None:
            return None
        return failures.failure_question(error, run.on_tool_failure, (RunEnded, HumanAsked))

    def _failed(
        self, run: Run | None, context: Any, call: Invocation | None, error: Exception
    ) -> Any:
        """Return what an agent is told of a call that did not end well, or raise it."""
        if call is not None:
            step_ended(call, error)
        left = self._noted(run, error)
        if context is None:
            raise left from (error if left is not error else error.__cause__)
        if isinstance(left, RunEnded):
            return _failure(f"The run ends: {left.reason}", left)
        if isinstance(left, ToolReported):
            return left.failure
        if isinstance(left, RefusedError):
            text = failures.told(self.tool.tool.name, left)
            return _failure(text, left) if self._answers else text
        return _failure(str(left) or type(left).__name__, left)

    def _noted(self, run: Run | None, error: Exception) -> Exception:
        """Note in the run what ends it; return what a failed call raises."""
        if run is None:
            return error
        waits = question_of(error)
        if waits is not None:
            return run.wait(waits, error)
        if isinstance(error, (_GoesNoFurther, *failures.FAULTS)):
            return run.stop(error.cause if isinstance(error, _GoesNoFurther) else error)
        if isinstance(error, (RefusedError, RunEnded)):
            return error
        run.failure = error
        if run.on_tool_failure != "rollback":
            return error
        return run.stop(error)


class _Cancelled(Exception):
    """Something in a tool was cancelled, and not the run."""


class _GoesNoFurther(Exception):
    """A human said no to going on after a failure.

    Args:
        cause: the failure.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _answered(error: Exception, answer: BaseException | None) -> Exception:
    """Return what a failed call ended with, now that a human was asked."""
    if answer is None:
        return error
    if isinstance(answer, ApprovalPending):
        return answer
    if isinstance(answer, Exception):
        return _GoesNoFurther(error)
    raise answer


def _failure(text: str, error: Exception) -> ToolFailure:
    return ToolFailure(message=text, reason=ToolFailureReason.EXCEPTION, code=type(error).__name__)


def _unwrapped(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ToolReported as reported:
        return reported.failure


@contextlib.contextmanager
def _inside(scope: Scope) -> Iterator[None]:
    """Make a call in a boundary, also where the thread lost it; no other call is an agent's."""
    call = calling.set(None)
    token = current_scope.set(scope)
    try:
        yield
    finally:
        current_scope.reset(token)
        calling.reset(call)


def _body(run: Run | None, context: Any) -> contextlib.AbstractContextManager[None]:
    """Let the code inside be the body of an agent's call."""
    if run is None or context is None:
        return contextlib.nullcontext()
    agent, task = context.agent, context.task
    return in_body_of(run.execution(agent, task), run.place(agent, task, context.crew))


def tool_of(context: Any) -> Any:
    """Return the tool that a call of the framework is about, as its author gave it.

    CrewAI keeps it under a name of its own, which is not promised. Without that name it is the
    object whose method the framework's copy calls.
    """
    tool = context.tool
    owner = getattr(getattr(tool, "func", None), "__self__", None)
    return getattr(tool, "_original_tool", None) or owner or tool


def effects_of(tool: Any) -> list[Effect]:
    """Return the wrapped functions of a tool; none if it is not wrapped."""
    return functions.effects_of(tool, ("func", "_run", "_arun"))

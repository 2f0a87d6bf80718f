"""One call of a tool's function as a step of the saga round it.

Rules of this part:

- Below the place where AutoGen turns an exception into text: so a step ends as its function did,
  and not as the model is told.
- What the model chose is recorded and judged, as the tool's schema reads it, with its defaults.
- A call that the gate refuses had no effect and is no failure: the model is told rule and reason.
- Where a tool failure is to undo the run (`on_tool_failure="rollback"`, or "ask" and a human's no),
  nothing of the run begins any more, and the run ends with the failure, whoever caught it. So does
  a run that was halted, or whose program or saga is at fault.
- A cancellation never leaves a call as one: AutoGen would wait for its result for ever. It leaves
  as an error, unless the task of the call is cancelled from outside.
"""

from __future__ import annotations

import asyncio
import functools
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

from agent_saga.engine.asking import asked_about_failure
from agent_saga.engine.boundary import current_scope
from agent_saga.engine.drive_async import AsyncDriver
from agent_saga.engine.requests import Protocol
from agent_saga.engine.scope import Scope
from agent_saga.engine.wrap import Invocation, SagaTool
from agent_saga.errors import (
    ApprovalPending,
    ConfigurationError,
    Halted,
    NoBoundary,
    Quarantined,
    RefusedError,
    SagaAborted,
    SagaClosed,
    SagaFenced,
    SagaForked,
    SagaUnwinding,
    UndeclaredTool,
    one_line,
)
from agent_saga.wal.encoding import mac
from agent_saga_autogen.attempts import attempts_of
from agent_saga_autogen.calls import Call, Run, called, calling, inside, running

KEY: Final = "idempotency_key"
TOKEN: Final = "cancellation_token"  # noqa: S105 - a parameter's name
_FAULTS: Final = (
    *(ConfigurationError, Halted, NoBoundary, Quarantined, SagaClosed, SagaFenced, SagaForked),
    *(SagaUnwinding, UndeclaredTool),
)


class CallCancelled(Exception):
    """A call was cancelled before it had ended; what it did by then is not known."""


class RefusedCall(Exception):
    """What the model is told of a call that the gate refused.

    Args:
        tool: the tool's name; refusal: why it did not run.
    """

    def __init__(self, tool: str, refusal: RefusedError) -> None:
        super().__init__(
            f"{tool} was refused and had no effect (rule {refusal.rule}): {refusal.reason}"
        )


class Effect:
    """A function behind a tool, as a step.

    Args:
        tool: the function, declared and wrapped.
    """

    __slots__ = ("tool",)

    def __init__(self, tool: SagaTool[..., Any]) -> None:
        self.tool = tool

    def function(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a coroutine function in the original's place, with its resolved signature."""

        async def run(*args: Any, **kwargs: Any) -> Any:
            return await self.call(args, kwargs)

        replaced = functools.update_wrapper(run, original)
        target = original.func if isinstance(original, functools.partial) else original
        replaced.__annotations__ = typing.get_type_hints(target, include_extras=True)
        return replaced

    async def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make the call.

        Raises:
            CallCancelled: something in it was cancelled.
            Exception: it failed, or did not run.
        """
        scope, run = current_scope.get(), running.get()
        if scope is None:
            return await self._outside(args, kwargs)
        try:
            call = self.invocation(scope, run, args, kwargs)
            with called(Call("", inside())):
                return await call.start()
        except asyncio.CancelledError as cut:
            if task_is_cancelled():
                raise
            raise self._told(run, CallCancelled(f"{self.tool.tool.name} was cancelled")) from cut
        except Exception as error:
            question = _failure_question(run, error)
            answer = None
            if question is not None:
                answer = await AsyncDriver(scope.saga.engine).drive(question)
            told = self._told(run, error, answer)
            if told is error:
                raise
            raise told from error

    async def _outside(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.tool.tool.form.is_async:
            return await self.tool.invoke(None, args, kwargs)
        return await asyncio.to_thread(self.tool.invoke, None, args, kwargs)

    def invocation(
        self, scope: Scope, run: Run | None, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Invocation:
        """Return the call for the engine.

        Raises:
            ConfigurationError: the tool is bound to another kit than the boundary.
            Exception: what stopped the run.
        """
        if run is not None and run.stop is not None:
            raise run.stop
        saga, tool, call = scope.saga, self.tool.tool, calling.get()
        if None not in (self.tool.kit, saga.kit) and saga.kit is not self.tool.kit:
            raise ConfigurationError(
                f"{tool.name} is bound to another kit than the boundary that it is called in.",
                fix="Wrap the tool with the boundary's kit.",
            )
        given = {name: value for name, value in kwargs.items() if name != KEY}
        if call is not None and call.arguments is not None:
            arguments = dict(call.arguments)
        else:
            named = tool.form.named(args, given)
            arguments = {k: v for k, v in named.items() if k not in (KEY, TOKEN)}
        key = None
        if run is not None:
            key = attempts_of(saga).key(saga, tool, run, mac(saga.salt, arguments))
        return Invocation(scope, tool, arguments, args, given, key)

    def _told(
        self, run: Run | None, error: Exception, answer: BaseException | None = None
    ) -> Exception:
        """Note in the run what ends it; return what a failed call raises.

        Args:
            run: the run; None where a boundary of another kind is round the call.
            error: how it failed.
            answer: what keeps the run from going on after a failure, if a human was asked.
        """
        inner = error.cause if isinstance(error, SagaAborted) else error
        if run is not None and run.stop is error:
            return error
        if isinstance(error, ApprovalPending):
            stop(run, _nobody_waits(error))
        elif isinstance(inner, _FAULTS):
            stop(run, inner)
        elif isinstance(error, RefusedError):
            return RefusedCall(self.tool.tool.name, error)
        elif isinstance(answer, ApprovalPending):
            stop(run, _nobody_waits(answer))
        elif answer is not None or (run is not None and run.on_tool_failure == "rollback"):
            stop(run, error)
        return error


def stop(run: Run | None, why: Exception) -> None:
    """Let nothing of a run begin any more; the first reason counts."""
    if run is not None:
        run.stop = run.stop or why


def _nobody_waits(pending: ApprovalPending) -> ConfigurationError:
    error = ConfigurationError(
        f"The gate asks a human by letting the run wait, and this run cannot: {pending}",
        fix="Give the gate an approval provider that returns its answer.",
    )
    error.__cause__ = pending
    return error


def task_is_cancelled() -> bool:
    """Say whether somebody cancels the running task, as opposed to something inside it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failure_question(run: Run | None, error: Exception) -> Protocol[BaseException | None] | None:
    """Return the question whether a run goes on after a tool's failure; None if none is asked."""
    step = getattr(error, "agent_saga_step", None)
    if run is None or run.on_tool_failure != "ask" or step is None:
        return None
    if isinstance(error, (ApprovalPending, ConfigurationError, RefusedError)):
        return None
    return asked_about_failure(step, f"{step.tool.name} failed: {one_line(error)}")

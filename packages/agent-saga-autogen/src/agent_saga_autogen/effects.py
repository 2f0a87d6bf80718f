"""One call of a tool's function as a step of the saga round it.

Rules of this part:

- Below the place where AutoGen turns an exception into text: so a step ends as its function did,
  and not as the model is told.
- What the model chose is recorded and judged, as the tool's schema reads it, with its defaults.
- A call that the gate refuses had no effect and is no failure: the model is told rule and reason.
- Where a tool failure is to undo the run (`on_tool_failure="rollback"`, or "ask" and a human's no),
  nothing of the run begins any more, and the run ends with the failure, whoever caught it. So does
  a run that was halted, or whose program or saga is at fault.
- A call that waits for a human is noted in the run, which waits when its agent's turn has ended.
- Only an `Exception` leaves a call, unless the call is cancelled or closed from outside: AutoGen
  would wait for its result for ever. One that raises what is none ends the run, but a cancellation.
"""

from __future__ import annotations

import asyncio
import functools
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_saga.engine.boundary import current_scope
from agent_saga.engine.drive_async import AsyncDriver
from agent_saga.engine.scope import Scope
from agent_saga.engine.wrap import Invocation, SagaTool
from agent_saga.errors import (
    ApprovalPending,
    ConfigurationError,
    OutcomeUnknown,
    RefusedError,
    SagaAborted,
    UndeclaredTool,
)
from agent_saga.kit.frameworks.boundaries import check_kit
from agent_saga.kit.frameworks.failures import FAULTS, failure_question, told
from agent_saga.kit.frameworks.functions import KEY, unkeyed
from agent_saga.wal.encoding import mac
from agent_saga_autogen.asking import HumanAsked
from agent_saga_autogen.attempts import attempts_of
from agent_saga_autogen.calls import Call, Run, called, calling, inside, running
from agent_saga_autogen.leaving import CallLeft, Inside, as_exception

if TYPE_CHECKING:
    from agent_saga.engine.step import Step

_TOKEN: Final = "cancellation_token"  # noqa: S105 - a parameter's name


class CallRefused(Exception):
    """What the model is told of a call that the gate refused; it had no effect."""


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
            CallLeft: it raised what is no `Exception`.
            Exception: it failed, or did not run.
        """
        scope, run = current_scope.get(), running.get()
        if scope is None:
            return await self._outside(args, kwargs)
        within = Inside()
        try:
            call = self.invocation(scope, run, args, kwargs)
            with called(inside()):
                return await call.start()
        except BaseException as raised:
            if not within.raised(raised):
                raise
            error = as_exception(raised, self.tool.tool.name)
            if isinstance(error, CallLeft):
                stop(run, error)
            answer = await self._answer(scope, run, error)
            left = self._left(run, error, answer)
            if left is raised:
                raise
            raise left from raised

    @staticmethod
    async def _answer(scope: Scope, run: Run | None, error: Exception) -> BaseException | None:
        """Return what keeps a run from going on after a failure, if a human is asked."""
        policy = "continue" if run is None else run.on_tool_failure
        question = failure_question(error, policy, (HumanAsked, UndeclaredTool))
        return None if question is None else await AsyncDriver(scope.saga.engine).drive(question)

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
        check_kit(self.tool, saga)
        given = unkeyed(self.tool, kwargs)
        if call is not None and call.arguments is not None:
            arguments = unkeyed(self.tool, dict(call.arguments))
        else:
            named = tool.form.named(args, given)
            arguments = {k: v for k, v in named.items() if k not in (KEY, _TOKEN)}
        key = None
        if run is not None:
            key = attempts_of(saga).key(saga, tool, run, mac(saga.salt, arguments))
        return Invocation(scope, tool, arguments, args, given, key)

    def _left(
        self, run: Run | None, error: Exception, answer: BaseException | None = None
    ) -> Exception:
        """Note in the run what a failed call means to it; return what the call raises.

        Args:
            run: the run; None where a boundary of another kind is round the call.
            error: how it failed.
            answer: what keeps the run from going on after a failure, if a human was asked.
        """
        inner = error.cause if isinstance(error, SagaAborted) else error
        name, call = self.tool.tool.name, calling.get()
        if run is not None and run.stop is error:
            return error
        pending = answer if isinstance(answer, ApprovalPending) else error
        if isinstance(pending, (ApprovalPending, HumanAsked)):
            return self._waits(run, call, pending, error)
        if isinstance(inner, (*FAULTS, UndeclaredTool)):
            stop(run, inner)
        elif isinstance(error, RefusedError):
            return CallRefused(told(name, error))
        elif answer is not None or (run is not None and run.on_tool_failure == "rollback"):
            stop(run, _cause(error))
        return error

    def _waits(
        self, run: Run | None, call: Call | None, pending: Any, error: Exception
    ) -> Exception:
        if run is None:
            return error
        if call is not None and call.can_wait and not run.shared(call):
            run.waiting.setdefault(call.path[0], {})[call.id] = dict(pending.question)
        elif pending is error:
            return CallRefused(
                f"{self.tool.tool.name} was refused and had no effect: it needs a human's answer, "
                "and neither a call inside another one nor one that shares its id can wait for it."
            )
        else:
            stop(run, _nobody_waits(pending))
        return error


def stop(run: Run | None, why: Exception) -> None:
    """Let nothing of a run begin any more; the first reason counts."""
    if run is not None:
        run.stop = run.stop or why


def _cause(error: Exception) -> Exception:
    """Return why a run ends: of a call that may not be repeated, how it had ended before."""
    step: Step | None = getattr(error, "agent_saga_step", None)
    before = step.error if isinstance(error, OutcomeUnknown) and step is not None else None
    return before if isinstance(before, Exception) else error


def _nobody_waits(pending: BaseException) -> ConfigurationError:
    error = ConfigurationError(
        f"The gate asks a human by letting the run wait, and this call cannot: {pending}",
        fix="Give the gate an approval provider that returns its answer.",
    )
    error.__cause__ = pending
    return error

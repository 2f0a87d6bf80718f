"""One call of a tool's function as a step of the saga round it.

Rules of this part:

- Below the place where LlamaIndex turns an exception into text: so a step ends as its function did,
  and not as the model is told.
- What the model chose is recorded and judged, with the tool's own defaults; the workflow's context
  is passed on and stands in no record.
- A call that the gate refuses had no effect and is no failure: the model is told rule and reason.
- Where a tool failure is to undo the run (`on_tool_failure="rollback"`, or "ask" and a human's no),
  nothing of the run begins any more, and the run ends with the failure, whoever caught it. So does
  a run that was halted, or whose program or saga is at fault.
- Arguments that do not fit were no call: the function did not run.
- A tool that waits for an event has not failed; it runs again from its first line. What it did
  before has an unknown outcome, and it is not run again, unless it is declared to ask first.
- A call that the gate asks a human about did not begin: its step of the workflow waits for the
  answer. Where the run cannot wait, the call is refused.
- A tool that is cancelled from inside itself has failed. Without that LlamaIndex would wait for its
  result for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from agent_saga.engine.boundary import current_scope
from agent_saga.engine.drive_async import AsyncDriver
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.quitting import LEAVES_A_TOOL, held
from agent_saga.engine.requests import Protocol
from agent_saga.engine.scope import Scope
from agent_saga.engine.wrap import Invocation, SagaTool
from agent_saga.errors import ApprovalPending, ConfigurationError, RefusedError
from agent_saga.kit.frameworks import failures, functions
from agent_saga.kit.frameworks.boundaries import check_kit
from agent_saga.kit.frameworks.functions import KEY
from agent_saga.wal.encoding import mac
from agent_saga_llamaindex import bare, seams
from agent_saga_llamaindex.attempts import attempts_of
from agent_saga_llamaindex.calls import Call, Run, calling, executing, running

_FUNCTIONS: Final = ("fn", "async_fn")


class ToolCancelled(Exception):
    """Something in a tool was cancelled, and not the run."""


class Paused(seams.WaitingForEvent[Any]):
    """A human was asked: the step of the workflow that the call is made in waits for the answer.

    Args:
        pending: what was asked.
    """

    def __init__(self, pending: ApprovalPending) -> None:
        Exception.__init__(self, str(pending))


class RefusedCall(Exception):
    """What the model is told of a call that the gate refused.

    Args:
        tool: the tool's name; refusal: why it did not run.
    """

    def __init__(self, tool: str, refusal: RefusedError) -> None:
        super().__init__(failures.told(tool, refusal))


class Effect:
    """A function behind a tool, as a step.

    Args:
        tool: the function, declared and wrapped.
        injected: the name of the parameter that the framework fills; empty without one.
    """

    __slots__ = ("_injected", "tool")

    def __init__(self, tool: SagaTool[..., Any], injected: str = "") -> None:
        self.tool = tool
        self._injected = injected

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make the call on this thread."""
        scope, state = current_scope.get(), running.get()
        if scope is None:
            return self.tool.invoke(None, args, kwargs, form="sync")
        key = None
        try:
            call = self.invocation(scope, state, args, kwargs)
            key = call.key
            with _inside():
                return call.run()
        except LEAVES_A_TOOL as error:
            failure = held(error)
            question = _question(state, failure)
            answer = None
            if question is not None:
                answer = SyncDriver(scope.saga.engine).drive(question)
            told = self._told(state, failure, answer, key)
            if told is error:
                raise
            raise told from error

    async def arun(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make the call on the event loop."""
        scope, state = current_scope.get(), running.get()
        if scope is None:
            return await self.tool.invoke(None, args, kwargs, form="async")
        key = None
        try:
            call = self.invocation(scope, state, args, kwargs)
            key = call.key
            with _inside():
                return await call.start()
        except (*LEAVES_A_TOOL, asyncio.CancelledError) as error:
            cut = isinstance(error, asyncio.CancelledError)
            if cut and failures.is_cancelled():
                raise
            failure = ToolCancelled("it was cancelled") if cut else held(error)
            question = _question(state, failure)
            answer = None
            if question is not None:
                answer = await AsyncDriver(scope.saga.engine).drive(question)
            told = self._told(state, failure, answer, key)
            if told is error:
                raise
            raise told from error

    def invocation(
        self, scope: Scope, state: Run | None, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Invocation:
        """Return the call for the engine.

        Raises:
            ConfigurationError: the tool is bound to another kit than the boundary.
            Exception: what stopped the run.
        """
        if state is not None and state.stop is not None:
            raise state.stop
        saga, tool = scope.saga, self.tool.tool
        check_kit(self.tool, saga)
        given = {name: value for name, value in kwargs.items() if name != KEY}
        named = tool.form.named(args, given)
        arguments = {k: v for k, v in named.items() if k not in (self._injected, KEY)}
        fingerprint = mac(saga.salt, arguments)
        if state is None:
            key = bare.key_of(saga, tool, fingerprint)
        else:
            key = attempts_of(saga).key(saga, tool, state, fingerprint)
        return Invocation(scope, tool, arguments, args, given, key)

    def _told(
        self, state: Run | None, error: Exception, answer: BaseException | None, key: str | None
    ) -> Exception:
        """Note in the run what ends it; return what a failed call raises.

        Args:
            state: the run; None where a boundary of another kind is round the call.
            error: how it failed.
            answer: what keeps the run from going on after a failure, if a human was asked.
            key: the step's.
        """
        if state is None or state.stop is error or isinstance(error, seams.WaitingForEvent):
            return error
        if isinstance(error, failures.FAULTS):
            state.stop = state.stop or error
        elif isinstance(error, ApprovalPending):
            return _paused(state, error, self.tool.tool.name, key)
        elif isinstance(error, RefusedError):
            call = calling.get()
            return RefusedCall(self.tool.tool.name, error) if call and call.id else error
        elif isinstance(answer, ApprovalPending):
            return self._asked_whether(state, error, answer, key)
        elif answer is not None or state.on_tool_failure == "rollback":
            state.stop = state.stop or error
        return error

    def _asked_whether(
        self, state: Run, error: Exception, pending: ApprovalPending, key: str | None
    ) -> Exception:
        """Note a question about a failure: a model's call is answered first, another one waits."""
        call = calling.get()
        if state.answers is not None and call is not None and call.id:
            state.failures[str(pending.question["id"])] = pending.question
            return error
        return _paused(state, pending, self.tool.tool.name, key)


def _paused(state: Run, pending: ApprovalPending, tool: str, key: str | None) -> Exception:
    """Let the steps that a call is made in wait for an answer; return what the call raises.

    The question is bound to the call's step, so its key is kept with it.
    """
    here = executing.get()
    if state.answers is None or here is None or here is state.root:
        state.stop = state.stop or _nobody_waits(pending)
        return pending
    question = {**pending.question, "step": [tool, key]}
    for each in here.chain():
        each.pending.setdefault(str(question["id"]), question)
    paused = Paused(pending)
    paused.__cause__ = pending
    return paused


def _nobody_waits(pending: ApprovalPending) -> ConfigurationError:
    error = ConfigurationError(
        f"The gate asks a human by letting the run wait, and this run cannot: {pending}",
        fix="Give the gate an approval provider that returns its answer.",
    )
    error.__cause__ = pending
    return error


@contextlib.contextmanager
def _inside() -> Iterator[None]:
    """Let calls in a function's body be inside its call; they have no id of their own."""
    call = calling.get()
    token = calling.set(None if call is None else Call("", call.inside))
    try:
        yield
    finally:
        calling.reset(token)


def _question(state: Run | None, error: Exception) -> Protocol[BaseException | None] | None:
    """Return the question whether a run goes on after a tool's failure; None if none is asked."""
    if state is None:
        return None
    return failures.failure_question(error, state.on_tool_failure, (seams.WaitingForEvent,))


def effects_of(tool: Any) -> list[Effect]:
    """Return the wrapped functions of a tool; none if it is not wrapped."""
    return functions.effects_of(tool, _FUNCTIONS)

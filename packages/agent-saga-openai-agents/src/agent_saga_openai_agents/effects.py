"""One call of a tool's function as a step of the saga round it.

Rules of this part:

- Below every place where the framework turns an exception into text: so a step ends as its
  function did, and not as the model is told.
- What the model chose is recorded and judged, as it wrote it; what the framework injects is passed
  on and stands in no record.
- A call that the gate refuses had no effect and is no failure: the model is told rule and reason.
- Where a tool failure is to undo the run (`on_tool_failure="rollback"`, or "ask" and a human's no),
  the failure leaves the run at once, past every handler that would make it text. So does a halt,
  and whatever says that the program or the saga is at fault.
- What ends the program does not leave a call: it would end the event loop, and nothing would be
  undone. The run ends with it, and then it is raised (see `agent_saga.engine.quitting`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents.exceptions import AgentsException

from agent_saga.engine.boundary import current_scope
from agent_saga.engine.drive_async import AsyncDriver
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.foreseen import question_before
from agent_saga.engine.quitting import LEAVES_A_TOOL, ProgramEnds, held
from agent_saga.engine.requests import Protocol
from agent_saga.engine.scope import Scope
from agent_saga.engine.wrap import Invocation, SagaTool
from agent_saga.errors import ApprovalPending, RefusedError, SagaAborted
from agent_saga.kit.frameworks import failures
from agent_saga.kit.frameworks.boundaries import check_kit
from agent_saga.kit.frameworks.functions import KEY
from agent_saga.wal.encoding import mac
from agent_saga_openai_agents.attempts import attempts_of
from agent_saga_openai_agents.calls import Call, calling, running


class RunLeft(AgentsException):
    """What leaves a run at once; the framework passes it on unchanged.

    Args:
        cause: why.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = self.__cause__ = cause


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
        scope, call = current_scope.get(), calling.get()
        if scope is None:
            return self._noted(call, lambda: self.tool.invoke(None, args, kwargs, form="sync"))
        token = calling.set(_inner(call))
        try:
            return self.invocation(scope, call, args, kwargs).run()
        except LEAVES_A_TOOL as raised:
            error = held(raised)
            question = failure_question(error)
            answer = None
            if question is not None:
                answer = SyncDriver(scope.saga.engine).drive(question)
            _leave(call, error, answer)
            if error is raised:
                raise
            raise error from raised
        finally:
            calling.reset(token)

    async def arun(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make the call on the event loop."""
        scope, call = current_scope.get(), calling.get()
        if scope is None:
            return await self._noted(
                call, lambda: self.tool.invoke(None, args, kwargs, form="async")
            )
        token = calling.set(_inner(call))
        try:
            return await self.invocation(scope, call, args, kwargs).start()
        except LEAVES_A_TOOL as raised:
            error = held(raised)
            question = failure_question(error)
            answer = None
            if question is not None:
                answer = await AsyncDriver(scope.saga.engine).drive(question)
            _leave(call, error, answer)
            if error is raised:
                raise
            raise error from raised
        finally:
            calling.reset(token)

    async def asks(self, call: Call) -> bool:
        """Say whether the gate has a question about a call that a run can wait for; note it."""
        scope, run = current_scope.get(), running.get()
        if scope is None or run is None or not run.waits or call.arguments is None:
            return False
        made = self.invocation(scope, call, (), {})
        pending = await AsyncDriver(scope.saga.engine).drive(question_before(made))
        if pending is not None:
            run.questions[str(pending.question["id"])] = {**pending.question, "call": call.id}
        return pending is not None

    @staticmethod
    def _noted(call: Call | None, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except RefusedError as refusal:
            _leave(call, refusal, None)
            raise

    def invocation(
        self, scope: Scope, call: Call | None, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Invocation:
        """Return the call for the engine.

        Raises:
            ConfigurationError: the tool is bound to another kit than the boundary.
        """
        saga, tool, run = scope.saga, self.tool.tool, running.get()
        check_kit(self.tool, saga)
        if call is None or run is None or not call.id or call.arguments is None:
            return Invocation(scope, tool, self._named(args, kwargs), args, kwargs, None)
        fingerprint = mac(saga.salt, call.arguments)
        key = attempts_of(saga).key(saga, tool, call, run, fingerprint)
        return Invocation(scope, tool, dict(call.arguments), args, kwargs, key)

    def _named(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        given = self.tool.tool.form.named(args, kwargs)
        return {name: value for name, value in given.items() if name not in (self._injected, KEY)}


def _inner(call: Call | None) -> Call | None:
    """Return what calls in the function's body are inside of; they have no id of their own."""
    if call is None:
        return None
    inner = Call("", call.inside, None)
    inner.released = call.released
    return inner


def failure_question(error: Exception) -> Protocol[BaseException | None] | None:
    """Return the question whether a run goes on after a tool's failure; None if none is asked."""
    run = running.get()
    return None if run is None else failures.failure_question(error, run.on_tool_failure)


def _leave(call: Call | None, error: Exception, answer: BaseException | None) -> None:
    """Note on a call what ends it, where that is not for the framework to decide.

    Args:
        call: the call; None where no model made it.
        error: how it failed.
        answer: what keeps the run from going on after a failure, if a human was asked.
    """
    run = running.get()
    if isinstance(error, ProgramEnds) and run is not None:
        run.stop = RunLeft(error)
    if call is None:
        return
    inner = error.cause if isinstance(error, (SagaAborted, RunLeft)) else error
    if isinstance(inner, failures.FAULTS):
        call.left = RunLeft(inner)
    elif isinstance(error, (RefusedError, ApprovalPending)):
        call.left = error
    elif isinstance(answer, ApprovalPending) and run is not None:
        run.stop = answer
    elif answer is not None or (run is not None and run.on_tool_failure == "rollback"):
        call.left = RunLeft(error)

"""A run of an agent as a boundary: `saga_run` and `saga_run_sync`.

Rules of this part:

- A run that raises is undone, and its caller gets `SagaAborted` from what was raised: a tool, a
  guardrail, the limit of turns, the model. A run that ends well is committed.
- What ends the program, raised by a tool, is raised here when everything was undone.
- A run that stops for an approval is suspended: neither committed nor undone. The caller gets what
  the framework returns; going on with its state goes on with the saga.
- Inside another boundary a run is a savepoint of it.
- Where a run can wait, a step whose inverse has no name is refused before its effect.
- An outcome that remains unknown does not replace the framework's result: it is logged, and stands
  in `last_report()`.
- An agent that is not a `saga_agent` is made one for the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import inspect
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from agents import RunConfig, Runner, RunState

from agent_saga.engine.boundary import last_reports
from agent_saga.engine.handle import SagaHandle
from agent_saga.engine.quitting import ProgramEnds
from agent_saga.errors import (
    ApprovalDenied,
    ApprovalPending,
    ConfigurationError,
    SagaSuspended,
)
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.failures import check_policy
from agent_saga_openai_agents import seams
from agent_saga_openai_agents.agent import is_bounded, saga_agent
from agent_saga_openai_agents.calls import answered, calling, running
from agent_saga_openai_agents.effects import RunLeft
from agent_saga_openai_agents.memory import told_if_undone
from agent_saga_openai_agents.plans import Asked, Plan, planned

T = TypeVar("T")


async def saga_run(
    agent: Any,
    input: Any,  # noqa: A002 - the framework's own name
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    **options: Any,
) -> Any:
    """Run an agent as one transaction and return the framework's own result.

    Args:
        agent: a `saga_agent`, or an agent all of whose tools are wrapped or in the gate's policy.
        input: what `Runner.run` takes: text, items, or a `RunState` that waits; or the answer about
            a tool's failure, `approve(by="…")` or `deny(by="…")`.
        kit: whose boundary it is; the agent's when not given, else the process's defaults.
        key: an id of your own for the saga: running again under it repeats no effect, and with a
            `session` a run whose process died is gone on with.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate; the agent's when not given.
        options: further options of `Runner.run`: `context`, `max_turns`, `hooks`, `run_config`,
            `session`, …

    Raises:
        SagaAborted: the run failed and was undone; see its report.
        SagaSuspended: a tool failed and a human is asked whether the run goes on.
        SagaClosed: the saga was undone, has ended, or has gone further than the state.
        ClaimRefused: another run goes on in the same saga.

    A crash leaves a durable record of every effect; recovery undoes the saga, or the run is gone on
    with under its key.
    """
    started = await start(agent, input, kit, key, on_tool_failure, options)
    result: Any = None
    try:
        async with started.boundary() as saga:
            with started.entered(saga), started.failing():
                result = await Runner.run(started.agent, started.plan.given, **started.options)
            await started.end(saga, result)
    except SagaSuspended:
        if result is None or not result.interruptions:
            raise
    return result


def saga_run_sync(
    agent: Any,
    input: Any,  # noqa: A002 - the framework's own name
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    **options: Any,
) -> Any:
    """Run an agent as one transaction where no event loop runs; as `saga_run`.

    Raises:
        ConfigurationError: an event loop is running on this thread.
    """
    return blocking(
        "saga_run",
        saga_run(agent, input, kit=kit, key=key, on_tool_failure=on_tool_failure, **options),
    )


class Started:
    """A run that is about to begin.

    Args:
        agent: the agent, put under care; plan: what the run is; options: the framework's.
    """

    def __init__(self, agent: Any, plan: Plan, options: dict[str, Any]) -> None:
        self.agent = agent
        self.plan = plan
        self.options = options

    @contextlib.asynccontextmanager
    async def boundary(self) -> AsyncIterator[SagaHandle]:
        """Give the run's boundary; the session is told if it is undone."""
        async with told_if_undone(self.options.get("session")), self.plan.scope() as saga:
            yield saga

    @contextlib.contextmanager
    def entered(self, saga: SagaHandle) -> Any:
        """Let the run's tools know what they must; raise a human's no before anything runs."""
        with self.plan.entered(saga):
            denied = self.plan.denied()
            if denied is not None:
                raise ApprovalDenied(
                    f"A tool had failed, and {denied.by} said no to going on.",
                    rule="on_tool_failure",
                    reason=denied.note or "a human decided so",
                )
            yield

    @contextlib.contextmanager
    def failing(self) -> Any:
        """Take what leaves the run out of its wrapping."""
        try:
            yield
        except RunLeft as left:
            if not isinstance(left.cause, ApprovalPending) or self.plan.nested:
                raise self._cause(left) from left.cause.__cause__

    def _cause(self, left: RunLeft) -> BaseException:
        """Return what is raised where a run was left; what ends the program, in no task of it."""
        cause = left.cause
        return cause.ending if isinstance(cause, ProgramEnds) and not self.plan.inside else cause

    async def end(self, saga: SagaHandle, result: Any) -> None:
        """Suspend the saga where the run waits; else see that nothing was passed over.

        Raises:
            SuspendRequested: the run waits.
            Exception: a tool failed where that undoes the run, or a lost attempt did what this one
                did not repeat.
        """
        stop = self.plan.run.stop
        if stop is not None:
            if self.plan.nested or not isinstance(stop, ApprovalPending):
                raise self._cause(stop) if isinstance(stop, RunLeft) else stop
            question = {**stop.question, "call": ""}
            self.plan.run.questions[str(stop.question["id"])] = question
            self.plan.suspend(saga, f"the run waits for an answer: {stop}", [])
        items = list(getattr(result, "interruptions", None) or ())
        if items and self.plan.nested:
            raise ConfigurationError(
                "A run inside another boundary stopped for an approval, and only the outermost run "
                "can wait.",
                fix="Make the inner agent a tool of the outer one with agent.as_tool(…).",
            )
        if items:
            names = ", ".join(sorted({str(item.name) for item in items}))
            self.plan.suspend(saga, f"the run waits for an approval of {names}", items)
        self.plan.check_repeated(saga, await self._history(result))

    async def _history(self, result: Any) -> Counter[str]:
        found = answered(result.to_input_list())
        session = self.options.get("session")
        if session is not None and not self.plan.nested:
            found += answered(await session.get_items())
        return found


async def start(
    agent: Any,
    given: Any,
    kit: AgentKit | None,
    key: str | None,
    on_tool_failure: str | None,
    options: dict[str, Any],
) -> Started:
    """Return a run that is about to begin; nothing has run yet.

    Raises:
        ConfigurationError, UndeclaredTool, SagaClosed: it cannot begin as it was asked for.
    """
    bounded = agent if is_bounded(agent) else saga_agent(agent, kit)
    care = bounded.saga_care
    kit, policy = kit or care.kit, on_tool_failure or care.on_tool_failure
    check_policy(kit, policy)
    if isinstance(given, RunState):
        _check_agent_of(given)
    may_wait = isinstance(given, RunState) or care.may_wait
    asked = Asked(kit, key, policy, options.get("session"), may_wait)
    plan = await planned(given, asked)
    config = _configured(options.get("run_config"))
    return Started(bounded, plan, {**options, "run_config": config})


def _check_agent_of(state: Any) -> None:
    current = seams.agent_of(state)
    if current is not None and not is_bounded(current):
        raise ConfigurationError(
            f"The state was read with the agent {current.name} as it was; its tools are no steps.",
            fix="Read it with the agent that saga_agent returned: "
            "await RunState.from_string(agent, text).",
        )


def _configured(config: Any) -> Any:
    """Return a run's configuration that tells of each turn, and stops before one if it must."""
    given = RunConfig() if config is None else config
    own = given.get(_FILTER) if isinstance(given, dict) else getattr(given, _FILTER)
    if isinstance(given, dict):
        return {**given, _FILTER: Turns(own)}
    return dataclasses.replace(given, **{_FILTER: Turns(own)})


_FILTER = "call_model_input_filter"


class Turns:
    """Told before each call of a model; the framework's `call_model_input_filter`.

    Args:
        own: the one that the caller has given, or None.
    """

    def __init__(self, own: Any) -> None:
        self._own = own.own if isinstance(own, Turns) else own

    @property
    def own(self) -> Any:
        """The one that the caller has given."""
        return self._own

    async def __call__(self, data: Any) -> Any:
        """Note the turn.

        Raises:
            RunLeft: the run must not go on.
        """
        run, call = running.get(), calling.get()
        if run is not None:
            if run.stop is not None:
                raise run.stop if isinstance(run.stop, RunLeft) else RunLeft(run.stop)
            if run.before_turn is not None:
                await run.before_turn()
            run.turn(call.inside if call is not None else ())
        if run is not None and not is_bounded(data.agent):
            raise RunLeft(
                ConfigurationError(
                    f"The run came to the agent {data.agent.name}, whose tools are no steps.",
                    fix="Give saga_run an agent that leads only to agents it can see.",
                )
            )
        if self._own is None:
            return data.model_data
        changed = self._own(data)
        return await changed if inspect.isawaitable(changed) else changed


def blocking(name: str, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on this thread's event loop, which the framework uses here, too.

    Raises:
        ConfigurationError: an event loop is running on this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        coroutine.close()
        raise ConfigurationError(
            f"{name}_sync was called where an event loop is running.",
            fix=f"Use {name} and await it.",
        )
    loop, context = _loop(), contextvars.copy_context()
    task = loop.create_task(coroutine, context=context)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        while not task.done():
            task.cancel()
            with contextlib.suppress(BaseException):  # each task that it leaves ends the loop again
                loop.run_until_complete(task)
        if not task.cancelled():
            task.exception()  # it is raised here, and nobody else is to tell of it
        raise
    finally:
        last_reports.set(context.get(last_reports))


def _loop() -> asyncio.AbstractEventLoop:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = asyncio.get_event_loop_policy().get_event_loop()
        except RuntimeError:
            loop = None
    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop

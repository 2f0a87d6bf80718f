"""A run of an agent or a team as a boundary: `saga_run` and `saga_run_sync`.

Rules of this part:

- A run that raises is undone, and its caller gets `SagaAborted` from what was raised, also where a
  team tells of it in words alone. A run that ends well is committed.
- A run that waits for a human is suspended, and returns a `Waiting`; it is gone on with by its
  state, in any process.
- A run that is cancelled, by its task or by its cancellation token, is cancelled in the framework,
  too, and undone when that has ended. It never hangs: what does not end is left alone after a
  while, and nothing of it may begin any more.
- Inside another boundary a run is a savepoint of it.
- An outcome that remains unknown does not replace the framework's result: it is logged, and stands
  in `last_report()`.
- An agent that is not a `saga_agent` is made one for the run, a team for all its runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from autogen_agentchat.base import Team
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent
from autogen_core import CancellationToken
from pydantic_core import to_jsonable_python

from agent_saga.engine.handle import SagaHandle
from agent_saga.errors import ConfigurationError, SagaSuspended
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.loops import blocking
from agent_saga_autogen import states
from agent_saga_autogen.agent import care_of, is_bounded, saga_agent, waiters_of
from agent_saga_autogen.asking import Waiting
from agent_saga_autogen.effects import stop
from agent_saga_autogen.leaving import CallCancelled
from agent_saga_autogen.plans import Asked, Plan, planned
from agent_saga_autogen.teams import GIVES_UP
from agent_saga_autogen.turns import original
from agent_saga_autogen.waiting import answered


async def saga_run(
    agent: Any,
    task: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    state: Mapping[str, Any] | None = None,
    resume: object = None,
    cancellation_token: CancellationToken | None = None,
    **options: Any,
) -> Any:
    """Run an agent or a team as one transaction and return the framework's own result.

    Args:
        agent: a `saga_agent`, or an agent or team all of whose tools are wrapped or in the gate's
            policy.
        task: what its `run` takes: text, a message, several, or None to go on.
        kit: whose boundary it is; the agent's when not given, else the process's defaults.
        key: an id of your own for the saga: running again under it repeats no effect.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate. When not given, the agent's; of a run that is gone on with, what
            it was.
        state: the state of a `Waiting`, which is gone on with, as it was.
        resume: the answer to what it waits for: `approve(by="…")`, `deny(by="…")`, the text that
            `ask_human` asked for, or several of these by the questions' ids.
        cancellation_token: cancels the run.
        options: further options of its `run`.

    Returns:
        The framework's `TaskResult`; or a `Waiting` if the run waits for a human.

    Raises:
        SagaAborted: the run failed and was undone; see its report.
        CancelledError: the run was cancelled, and was undone.
        SagaClosed: the saga was undone, or has gone further than the state.
        ClaimRefused: another run goes on in the same saga.
        UndeclaredTool: nothing says what some of its tools do to the world.
        ConfigurationError: it cannot begin as it was asked for. A state that is none, or is of
            another agent or team, is refused so, and what it waits for can still be answered.

    A crash leaves a durable record of every effect; recovery undoes the saga, or the run is begun
    again under its key.
    """
    how = (kit, key, on_tool_failure, state, resume)
    started = Started(agent, task, how, options)
    return await started.carry_out(cancellation_token, started.result)


def saga_run_sync(
    agent: Any,
    task: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    state: Mapping[str, Any] | None = None,
    resume: object = None,
    cancellation_token: CancellationToken | None = None,
    **options: Any,
) -> Any:
    """Run an agent or a team as one transaction where no event loop runs; as `saga_run`.

    Raises:
        ConfigurationError: an event loop is running on this thread.
    """
    given: dict[str, Any] = {"kit": kit, "key": key, "on_tool_failure": on_tool_failure}
    given.update(state=state, resume=resume, cancellation_token=cancellation_token, **options)
    return blocking("saga_run", saga_run(agent, task, **given))


_teams: WeakKeyDictionary[Any, tuple[AgentKit | None, Any]] = WeakKeyDictionary()


def _under_care(agent: Any, kit: AgentKit | None) -> Any:
    """Return the clone of an agent; of a team the same one each time, since it keeps its talk."""
    if not isinstance(agent, Team):
        return saga_agent(agent, kit)
    found = _teams.get(agent)
    if found is None or found[0] is not kit:
        found = _teams[agent] = (kit, saga_agent(agent, kit))
    return found[1]


class RunEnded(Exception):
    """A run has ended; nothing of it may begin any more."""


class Started:
    """A run that is about to begin; nothing has run yet.

    Args:
        agent, task, options: as for `saga_run`.
        how: the rest of what it takes: `kit`, `key`, `on_tool_failure`, `state` and `resume`.

    Attributes:
        token: cancels what the framework does.
        before_turn: what is awaited before a model is asked again; None for nothing.
        release: what lets a run go on that waits for its caller; None for nothing.

    Raises:
        ConfigurationError, UndeclaredTool: it cannot begin as it was asked for.
    """

    def __init__(
        self, agent: Any, task: Any, how: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        kit, key, policy, state, resume = how
        if state is not None and task is not None:
            raise ConfigurationError(
                "A run that waited is gone on with by its state, without a task."
            )
        self.agent = agent if is_bounded(agent) else _under_care(agent, kit)
        self._care = care_of(self.agent)
        kit, default = kit or self._care.kit, self._care.on_tool_failure
        self._asked = Asked(kit, key, policy, state, resume, default)
        self._plan: Plan | None = None
        self.token = CancellationToken()
        self.before_turn: Callable[[], Awaitable[None]] | None = None
        self.release: Callable[[], None] | None = None
        self._task = task
        self._options = options
        self._cancelled = asyncio.Event()

    async def result(self) -> Any:
        """Let the framework run; return its result, or None if the run still waits."""
        result: Any = None
        async for event in self.events():
            result = event
        return None if isinstance(result, ToolCallExecutionEvent) else result

    async def events(self) -> AsyncGenerator[Any, None]:
        """Let the framework run; give what it tells, and before that what waiting calls told."""
        plan = self.plan
        told = await answered(waiters_of(self.agent), plan.turns, plan.run, self.token)
        for event in told:
            yield event
        if plan.run.waiting or plan.run.stop is not None:
            return
        task = self._task
        if told and isinstance(self.agent, Team):
            task = [_said(event) for event in told]
        run = self.agent.run_stream(task=task, cancellation_token=self.token, **self._options)
        async with contextlib.aclosing(run) as events:
            async for event in events:
                yield event

    @property
    def plan(self) -> Plan:
        """What the run is, once that is known."""
        if self._plan is None:
            raise RuntimeError("The run has not begun.")
        return self._plan

    async def carry_out(
        self, token: CancellationToken | None, follow: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Carry the run out inside its boundary.

        Args:
            token: the caller's, or None.
            follow: what lets the framework run.
        """
        await self._care.check_served()
        plan = self._plan = await asyncio.to_thread(planned, self._asked)
        plan.run.waiters = waiters_of(self.agent) if plan.waits else ()
        plan.run.before_turn = self.before_turn
        plan.run.behind = self._care.behind
        if plan.state is not None:
            await states.load(self.agent, plan.run.waiters, plan.state)
        if token is not None:
            loop = asyncio.get_running_loop()
            token.add_callback(lambda: _soon(loop, self.cancel))
        waiting: list[Waiting] = []
        try:
            async with plan.scope() as saga:
                with plan.entered(saga), self._care.held():
                    result = await self._ending(self._followed(follow))
                await self._suspended(saga, waiting)
                plan.check_repeated(saga)
        except SagaSuspended:
            if not waiting:
                raise
            return waiting[0]
        return result

    async def _suspended(self, saga: SagaHandle, waiting: list[Waiting]) -> None:
        """Leave the saga suspended if the run waits; note what it then returns."""
        if self.plan.run.waiting:
            state = to_jsonable_python(await self.agent.save_state())
            waiting.append(self.plan.waiting(state))
            self.plan.suspend(saga, waiting[0])

    async def _ending(self, run: Awaitable[Any]) -> Any:
        """Return a run's result; what stopped the run is raised, whoever caught it on the way."""
        state, result = self.plan.run, None
        try:
            result = await run
        except Exception:
            if state.stop is None:
                raise
        finally:
            stopped = state.stop
            stop(state, RunEnded("The run has ended."))
        if stopped is not None:
            raise stopped
        return result

    async def _followed(self, follow: Callable[[], Awaitable[Any]]) -> Any:
        task = asyncio.ensure_future(follow())
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait({task, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancel()
            await _ended(task)
            raise
        finally:
            cancelled.cancel()
        if self._cancelled.is_set():
            await _ended(task)
            raise asyncio.CancelledError("The run's cancellation token was cancelled.")
        try:
            return task.result()
        except RuntimeError as error:
            raise original(self.plan.run, error) from error.__cause__

    def cancel(self) -> None:
        """Cancel the run: nothing of it begins any more, and what goes on is cancelled."""
        if self._plan is not None:
            stop(self._plan.run, CallCancelled("The run was cancelled."))
        if self.release is not None:
            self.release()
        self.token.cancel()
        self._cancelled.set()


def _said(event: ToolCallExecutionEvent) -> TextMessage:
    """Return what a team is told of calls of a member that had waited."""
    text = "\n".join(str(result.content) for result in event.content)
    return TextMessage(content=text, source=event.source)


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, and the run has ended
        loop.call_soon_threadsafe(function)


async def _ended(task: asyncio.Future[Any]) -> None:
    """Wait until a cancelled run has ended; cancel its task if its token does not end it."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    for _ in range(2):
        waiting = asyncio.ensure_future(asyncio.wait({task}, timeout=GIVES_UP))
        while not waiting.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(waiting)
        if task.done():
            return
        task.cancel()

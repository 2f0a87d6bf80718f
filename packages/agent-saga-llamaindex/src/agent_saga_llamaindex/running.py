"""A run of an agent or a workflow as a boundary: `saga_run` and `saga_run_sync`.

Rules of this part:

- A run that raises is undone, and its caller gets `SagaAborted` from what was raised: a tool, the
  model, a step, the limit of iterations, the workflow's timeout. A run that ends well is committed.
- A run that is cancelled is cancelled in the framework, too, and undone when that has ended:
  LlamaIndex by itself would go on behind its caller.
- So are the runs of agents inside it: LlamaIndex ends none of them with the run that began them.
- Inside another boundary a run is a savepoint of it.
- An outcome that remains unknown does not replace the framework's result: it is logged, and stands
  in `last_report()`.
- An agent that is not a `saga_agent` is made one for the run.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent
from workflows import Context, Workflow
from workflows.events import StartEvent
from workflows.handler import WorkflowHandler

from agent_saga.engine.boundary import last_reports
from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga_llamaindex.agent import care_of, is_bounded, saga_agent
from agent_saga_llamaindex.plans import Plan
from agent_saga_llamaindex.steps import check_goes_on, seen

T = TypeVar("T")
_GIVES_UP = 30.0
"""Seconds after which a cancelled run is left alone; nothing of it may begin any more."""


async def saga_run(
    agent: Any,
    user_msg: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    **options: Any,
) -> Any:
    """Run an agent or a workflow as one transaction and return the framework's own result.

    Args:
        agent: a `saga_agent`; an agent all of whose tools are wrapped or in the gate's policy; or a
            `Workflow` of your own.
        user_msg: what the agent is told; for a workflow, its start event, if it has one.
        kit: whose boundary it is; the agent's when not given, else the process's defaults.
        key: an id of your own for the saga: running again under it repeats no effect, and a run
            whose process died is gone on with.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate; the agent's when not given.
        options: further options of its `run`: `chat_history`, `memory`, `ctx`, `max_iterations`,
            `start_event`, …

    Raises:
        SagaAborted: the run failed and was undone; see its report.
        SagaClosed: the key's saga was undone.
        ClaimRefused: another run goes on in the same saga.
        UndeclaredTool: nothing says what some of its tools do to the world.

    A crash leaves a durable record of every effect; recovery undoes the saga, or the run is gone on
    with under its key.
    """
    started = Started(agent, user_msg, kit, key, on_tool_failure, options)
    return await started.carry_out(awaited)


def saga_run_sync(
    agent: Any,
    user_msg: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    **options: Any,
) -> Any:
    """Run an agent or a workflow as one transaction where no event loop runs; as `saga_run`.

    Raises:
        ConfigurationError: an event loop is running on this thread.
    """
    return blocking(
        "saga_run",
        saga_run(agent, user_msg, kit=kit, key=key, on_tool_failure=on_tool_failure, **options),
    )


class Started:
    """A run that is about to begin; nothing has run yet.

    Args:
        agent, user_msg, kit, key, on_tool_failure, options: as for `saga_run`.

    Raises:
        ConfigurationError, UndeclaredTool: it cannot begin as it was asked for.
    """

    def __init__(
        self,
        agent: Any,
        user_msg: Any,
        kit: AgentKit | None,
        key: str | None,
        on_tool_failure: str | None,
        options: dict[str, Any],
    ) -> None:
        _check_context(options.get("ctx"))
        if isinstance(agent, (BaseWorkflowAgent, AgentWorkflow)):
            self.workflow = agent if is_bounded(agent) else saga_agent(agent, kit)
            care = care_of(self.workflow)
            kit, on_tool_failure = kit or care.kit, on_tool_failure or care.on_tool_failure
        elif isinstance(agent, Workflow):
            self.workflow = seen(agent)
        else:
            raise ConfigurationError(
                f"saga_run takes an agent or a workflow of LlamaIndex, not {type(agent).__name__}."
            )
        self.plan = Plan(kit, key, on_tool_failure or "continue")
        self._options = {**options, **_given(user_msg)}

    def begin(self) -> WorkflowHandler:
        """Let the framework begin; inside the boundary."""
        handler: WorkflowHandler = self.workflow.run(**self._options)
        return handler

    async def carry_out(self, follow: Callable[[WorkflowHandler], Any]) -> Any:
        """Carry the run out inside its boundary.

        Args:
            follow: what awaits the framework's result.
        """
        async with self.plan.scope() as saga:
            with self.plan.entered(saga):
                try:
                    result = await follow(self.begin())
                except BaseException:
                    for handler in tuple(self.plan.run.handlers):
                        await ended(handler)
                    check_goes_on()
                    raise
            self.plan.end(saga)
        return result


def _given(user_msg: Any) -> dict[str, Any]:
    if user_msg is None:
        return {}
    return {"start_event" if isinstance(user_msg, StartEvent) else "user_msg": user_msg}


def _check_context(context: Any) -> None:
    if isinstance(context, Context) and context.is_running:
        raise ConfigurationError(
            "The context was taken while a run was going on: its unfinished steps would run again, "
            "outside the saga that they belong to.",
            fix="Begin anew, with the memory of the conversation if need be.",
        )


async def awaited(handler: WorkflowHandler) -> Any:
    """Return a run's result; a cancellation of the caller does not hide how the run ends."""
    return await asyncio.shield(_result(handler))


def _result(handler: WorkflowHandler) -> asyncio.Task[Any]:
    async def wait() -> Any:
        return await handler

    task = asyncio.ensure_future(wait())
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def ended(handler: WorkflowHandler) -> None:
    """Cancel a run that goes on, and wait until the framework has ended it."""
    ending = asyncio.ensure_future(handler.cancel_run(timeout=_GIVES_UP))
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError:
            continue


def blocking(name: str, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own.

    Raises:
        ConfigurationError: an event loop is running on this thread.
    """
    try:
        no_loop(name)
    except ConfigurationError:
        coroutine.close()
        raise
    context = contextvars.copy_context()
    try:
        with asyncio.Runner() as runner:
            return runner.run(coroutine, context=context)
    finally:
        last_reports.set(context.get(last_reports))


def no_loop(name: str) -> None:
    """See that no event loop is running on this thread.

    Raises:
        ConfigurationError: one is.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        f"{name}_sync was called where an event loop is running.",
        fix=f"Use {name} and await it.",
    )

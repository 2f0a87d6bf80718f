"""A run of a graph as a boundary: `saga_run` and `saga_run_sync`.

Rules of this part:

- A run that raises is undone, and its caller gets `SagaAborted` from what was raised. A run that
  ends well is committed.
- A run that stops before its end (an interrupt, a breakpoint, a drain) is suspended: neither
  committed nor undone. The caller gets what the framework returns; going on with the thread goes
  on with the saga.
- A run that stops there and has no checkpointer is undone: nothing can go on with it.
- Inside another run a run is a savepoint of it; an interrupt passes through to the outer run.
  Inside any other boundary it is a savepoint, too, and an interrupt fails it: nobody would wait.
- Where a run can be interrupted, a step whose inverse has no name is refused before its effect.
- An outcome that remains unknown does not replace the framework's result: it is logged, and stands
  in `last_report()`.
"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp, GraphDrained

from agent_saga.engine.handle import SagaHandle
from agent_saga.errors import SagaSuspended
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.scopes import last_report
from agent_saga_langgraph.caches import caching, with_known_caches
from agent_saga_langgraph.effects import ToolFailed
from agent_saga_langgraph.planning import planned, planned_async
from agent_saga_langgraph.plans import Asked, Plan, durability_of
from agent_saga_langgraph.telling import run_ended

__all__ = ["last_report", "saga_run", "saga_run_sync"]


async def saga_run(
    graph: Any,
    input: Any,  # noqa: A002 - the framework's own name
    config: RunnableConfig | None = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str = "continue",
    on_branch: str = "refuse",
    **options: Any,
) -> Any:
    """Run a graph or agent as one transaction and return the framework's own result.

    Args:
        graph: a compiled graph, or anything with `ainvoke`.
        input: its input; `Command(resume=…)` or None goes on with a thread that waits.
        config: the framework's configuration.
        kit: whose boundary it is; the process's defaults when not given.
        key: an id of your own for the saga: running again under it repeats no effect.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate.
        on_branch: what happens when effects stand that came after the checkpoint that the run
            begins at: "refuse", or "keep" them; see `rollback_to`.
        options: further options of `ainvoke`.

    Raises:
        SagaAborted: the run failed and was undone; see its report.
        SagaClosed: the thread's saga was undone, or has ended.
        BranchRefused: effects stand that came after the checkpoint that the run begins at.
        ClaimRefused: another run goes on in the same saga, or another boundary has the thread.

    A crash leaves a durable record of every effect; the thread can be gone on with, or recovery
    undoes the saga.
    """
    asked = Asked(kit, key, on_tool_failure, on_branch, durability_of(options))
    plan = await planned_async(graph, input, config, asked)
    run, result, before = Run(plan), None, last_report()
    try:
        async with plan.scope() as saga:
            with plan.entered(saga), caching(graph):
                given = plan.given, with_known_caches(graph, plan.configured(config))
                try:
                    result = await graph.ainvoke(*given, **options)
                except GraphBubbleUp as stopped:
                    run.stopped(stopped)
            run.end(saga, waits=await plan.waits_async(graph, config))
    except SagaSuspended:
        pass
    finally:
        run_ended(config, before, last_report())
    return run.given(result)


def saga_run_sync(
    graph: Any,
    input: Any,  # noqa: A002 - the framework's own name
    config: RunnableConfig | None = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str = "continue",
    on_branch: str = "refuse",
    **options: Any,
) -> Any:
    """Run a graph or agent as one transaction; arguments and errors as for `saga_run`.

    Raises:
        ConfigurationError: an event loop is running on this thread.
    """
    asked = Asked(kit, key, on_tool_failure, on_branch, durability_of(options))
    plan = planned(graph, input, config, asked)
    run, result, before = Run(plan), None, last_report()
    try:
        with plan.scope() as saga:
            with plan.entered(saga), caching(graph):
                given = plan.given, with_known_caches(graph, plan.configured(config))
                try:
                    result = graph.invoke(*given, **options)
                except GraphBubbleUp as stopped:
                    run.stopped(stopped)
            run.end(saga, waits=plan.waits(graph, config))
    except SagaSuspended:
        pass
    finally:
        run_ended(config, before, last_report())
    return run.given(result)


class Run:
    """One run inside its boundary.

    Args:
        plan: what it is.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stopped: GraphBubbleUp | None = None

    def stopped(self, signal: GraphBubbleUp) -> None:
        """Take in how the graph stopped; raise what makes the run fail.

        Raises:
            Exception: a tool failed where that undoes the run, or the signal means nothing here.
        """
        if isinstance(signal, ToolFailed):
            raise signal.cause
        if not self._plan.nested and not isinstance(signal, GraphDrained):
            raise signal
        self._stopped = signal

    def paused(self, saga: SagaHandle, signal: GraphBubbleUp) -> None:
        """Suspend the saga of a node whose graph paused; inside another boundary pass it on.

        Raises:
            SuspendRequested: the saga waits.
            GraphBubbleUp: the boundary round it decides.
        """
        if self._plan.nested or not self._plan.can_wait:
            raise signal
        self._stopped = signal
        self._plan.suspend(saga)

    def end(self, saga: SagaHandle, *, waits: bool) -> None:
        """Suspend the saga where the graph waits; else see that nothing was passed over.

        Raises:
            SuspendRequested: the graph waits.
            NotSuspendable: it does, inside a boundary that cannot wait with it; or it stopped, and
                nothing can go on with it.
            ReplayConflict: a lost attempt did what this one did not repeat.
        """
        self._plan.look_back(saga)
        if waits:
            self._plan.suspend(saga)
        self._plan.check_stopped(saga)
        self._plan.check_repeated(saga)

    def given(self, result: Any) -> Any:
        """Return the framework's result, or raise its signal on."""
        self._plan.note()
        if self._stopped is not None:
            raise self._stopped
        return result

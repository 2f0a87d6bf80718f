"""A boundary inside a graph: a node that opens one, and commits or undoes it when it is left.

    builder.add_node("booking", saga_boundary(booking_graph, kit))

Rules of this part:

- What the node runs is inside the boundary: entering the node opens it, leaving commits it, an
  exception undoes it. So it ends on every way out; marks in nodes of their own could not promise
  that.
- Inside another boundary (a run by `saga_run`, a `saga_agent`, another such node) it is a
  savepoint: its failure undoes what it did and is raised; a later failure outside undoes it too.
- By itself, on a thread, it is found again when the graph runs its node again: after an interrupt
  or a crash it goes on with the same saga, and repeats no effect. After it was undone, a retry of
  the node begins a new one; after it was committed, it gives the recorded results. A run that goes
  back to before it is refused while its effects stand; see `node_sagas`.
- Questions of the gate need a run that can be resumed as a boundary; in such a node by itself they
  are refused.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import GraphInterrupt

from agent_saga.engine.boundary import current_scope, last_reports
from agent_saga.errors import ConfigurationError, SagaSuspended
from agent_saga.kit.frameworks.recorded import Recorded
from agent_saga_langgraph import node_sagas
from agent_saga_langgraph import place as places
from agent_saga_langgraph.caches import caching, with_known_caches
from agent_saga_langgraph.met import Notes
from agent_saga_langgraph.plans import Asked, Plan
from agent_saga_langgraph.running import Run
from agent_saga_langgraph.telling import run_ended

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit
    from agent_saga_langgraph.node_sagas import Node


def saga_boundary(
    inner: Any,
    kit: AgentKit | None = None,
    *,
    on_tool_failure: str = "continue",
) -> Runnable[Any, Any]:
    """Return a node that runs something inside a boundary of its own.

    Args:
        inner: a compiled graph without a checkpointer of its own, any other runnable, or a function
            of the state.
        kit: whose boundary it is; the process's defaults when not given.
        on_tool_failure: "continue" or "rollback".

    Raises:
        ConfigurationError: there is nothing to run, or the policy needs somebody to ask.

    Its run raises `SagaAborted` when it failed and was undone.
    """
    if on_tool_failure == "ask":
        raise ConfigurationError(
            "A boundary inside a graph cannot ask about tool failures.",
            fix="Run the whole graph with saga_run(…, on_tool_failure='ask').",
        )
    asked = Asked(kit, on_tool_failure=on_tool_failure)
    asked.check()
    node = Boundary(_runnable(inner), asked)
    return RunnableLambda(node.run, node.arun, name=getattr(inner, "name", None) or "boundary")


def _runnable(inner: Any) -> Runnable[Any, Any]:
    if isinstance(inner, Runnable):
        return inner
    if callable(inner):
        return RunnableLambda(inner)
    raise ConfigurationError(f"A boundary runs a graph or a function, not {inner!r}.")


class Boundary:
    """What a node of `saga_boundary` does.

    Args:
        inner: what it runs.
        asked: how its boundary was asked for.
    """

    def __init__(self, inner: Runnable[Any, Any], asked: Asked) -> None:
        self._inner = inner
        self._asked = asked

    def run(self, given: Any, config: RunnableConfig) -> Any:
        """Run it, blocking."""
        plan, result = self._plan(given, config), None
        run, before = Run(plan), last_reports.get()
        try:
            with plan.scope() as saga:
                try:
                    with plan.entered(saga), caching(self._inner):
                        result = self._inner.invoke(given, self._configured(config))
                except GraphInterrupt as stopped:
                    run.paused(saga, stopped)
                run.end(saga, waits=False)
        except SagaSuspended:
            pass
        finally:
            run_ended(config, before, last_reports.get())
        return run.given(result)

    async def arun(self, given: Any, config: RunnableConfig) -> Any:
        """Run it on the event loop."""
        plan, result = await self._plan_async(given, config), None
        run, before = Run(plan), last_reports.get()
        try:
            async with plan.scope() as saga:
                try:
                    with plan.entered(saga), caching(self._inner):
                        result = await self._inner.ainvoke(given, self._configured(config))
                except GraphInterrupt as stopped:
                    run.paused(saga, stopped)
                run.end(saga, waits=False)
        except SagaSuspended:
            pass
        finally:
            run_ended(config, before, last_reports.get())
        return run.given(result)

    def _configured(self, config: RunnableConfig) -> RunnableConfig | None:
        return with_known_caches(self._inner, config)

    def _plan(self, given: Any, config: RunnableConfig) -> Plan:
        node = self._node(config)
        if node is None:
            return self._without_thread(given)
        recorded = Recorded(self._asked.runtime)
        saga, begun = node_sagas.own_saga(node, recorded)
        before = [] if begun else node_sagas.earlier(node, recorded)
        if before:
            stored = node_sagas.stored(config, node)
            saga = node_sagas.taken_over(node, before, stored, recorded) or saga
        return self._on_thread(node, saga, given, recorded)

    async def _plan_async(self, given: Any, config: RunnableConfig) -> Plan:
        node = self._node(config)
        if node is None:
            return self._without_thread(given)
        recorded = Recorded(self._asked.runtime)
        saga, begun = await asyncio.to_thread(node_sagas.own_saga, node, recorded)
        before = [] if begun else await asyncio.to_thread(node_sagas.earlier, node, recorded)
        if before:
            stored = await node_sagas.stored_async(config, node)
            saga = node_sagas.taken_over(node, before, stored, recorded) or saga
        return await asyncio.to_thread(self._on_thread, node, saga, given, recorded)

    def _without_thread(self, given: Any) -> Plan:
        return Plan(self._asked, given, nested=current_scope.get() is not None)

    def _node(self, config: RunnableConfig) -> Node | None:
        """Return where the node stands on its thread; None where it is alone with this run."""
        thread = (config.get("configurable") or {}).get("thread_id")
        place = None if current_scope.get() is not None else places.here()
        if place is None or thread is None or not places.has_checkpointer(config):
            return None
        return node_sagas.node_at(str(thread), place.spot.checkpoint, config.get("metadata") or {})

    def _on_thread(self, node: Node, saga: str, given: Any, recorded: Recorded) -> Plan:
        node_sagas.note(recorded.store, node, saga)
        notes = Notes(recorded, saga)
        history = node_sagas.history_of(node, notes.kept())
        thread = node.thread
        return Plan(self._asked, given, saga_id=saga, history=history, thread=thread, notes=notes)

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
  the node begins a new one; after it was committed, it gives the recorded results, also on a branch
  that goes back to before it.
- Questions of the gate need a run that can be resumed as a boundary; in such a node by itself they
  are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import GraphInterrupt

from agent_saga.domain.lifecycle import SagaState
from agent_saga.engine.boundary import current_scope, last_reports
from agent_saga.errors import ConfigurationError, SagaSuspended
from agent_saga.kit.frameworks.recorded import Recorded
from agent_saga_langgraph import place as places
from agent_saga_langgraph.attempts import History
from agent_saga_langgraph.plans import Asked, Plan
from agent_saga_langgraph.running import Run
from agent_saga_langgraph.telling import run_ended

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit

_WAITS = (SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED)
_FITS = frozenset({None, SagaState.COMMITTED, *_WAITS})


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
                    with plan.entered(saga):
                        result = self._inner.invoke(given, config)
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
        plan, result = self._plan(given, config), None
        run, before = Run(plan), last_reports.get()
        try:
            async with plan.scope() as saga:
                try:
                    with plan.entered(saga):
                        result = await self._inner.ainvoke(given, config)
                except GraphInterrupt as stopped:
                    run.paused(saga, stopped)
                run.end(saga, waits=False)
        except SagaSuspended:
            pass
        finally:
            run_ended(config, before, last_reports.get())
        return run.given(result)

    def _plan(self, given: Any, config: RunnableConfig) -> Plan:
        if current_scope.get() is not None:
            return Plan(self._asked, given, nested=True)
        place = places.here()
        thread = (config.get("configurable") or {}).get("thread_id")
        if place is None or thread is None or not places.has_checkpointer(config):
            return Plan(self._asked, given)
        log = Recorded(self._asked.runtime)
        name = f"langgraph:{thread}:node:{places.path(place.namespace)}:{place.step}"
        number = 1
        while log.state(_numbered(name, number)) not in _FITS:
            number += 1
        return Plan(
            self._asked,
            given,
            saga_id=_numbered(name, number),
            history=History(known=(place.checkpoint,)),
            thread=str(thread),
        )


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}:{number}"

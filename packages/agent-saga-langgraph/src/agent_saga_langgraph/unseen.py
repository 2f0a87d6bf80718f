"""Tool calls that no wrapper announced: inside a boundary they are refused before they run.

Rules of this part:

- Nobody can find every tool of a graph: a function may call one itself, a middleware may bring one
  at run time. Such a call would be no step: nothing would undo it, and the run would end clean.
- So inside every boundary the framework's own announcements of tool calls are listened to: in a run
  wherever its callbacks reach, elsewhere wherever the boundary is known. A call that is neither a
  step's nor made inside a step leaves the graph as an error, past every handler that would make it
  text for the model.
- What a step calls is the step's, whose inverse takes it back. A read has none: a tool that one
  calls, as an agent inside a tool does, must be a step of its own.
- What the policy of the boundary's gate calls REVERSIBLE may run: it leaves nothing behind.
- A graph whose run is no boundary, and that stops there, is seen here, too; see `stops`.
- An effect that is no tool of LangChain is not announced by anybody, and is not seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from agent_saga.engine.boundary import current_scope
from agent_saga.errors import UndeclaredTool
from agent_saga.kit.frameworks.unseen import is_covered, may_run, refusal
from agent_saga_langgraph.caches import note_kept
from agent_saga_langgraph.effects import ToolFailed, announced, in_a_run
from agent_saga_langgraph.stops import Stops
from agent_saga_langgraph.tries import Runs, leave_ended

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.kit.agent_kit import AgentKit


class Listener(BaseCallbackHandler):
    """Hears of every tool call before it is made.

    Args:
        kit: whose boundary the run is, or None.
        everywhere: listen where no boundary is known, too: it is a run's own, and went where the
            run's callbacks did.
    """

    raise_error = run_inline = True
    ignore_llm = ignore_chat_model = ignore_retriever = True
    ignore_retry = ignore_custom_event = True

    def __init__(self, kit: AgentKit | None = None, *, everywhere: bool = False) -> None:
        self._kit = kit
        self._everywhere = everywhere
        self._runs = Runs()
        self._stops = Stops()

    @property
    def ignore_chain(self) -> bool:
        """Whether nothing need be known of runs: where a witness sees them."""
        return self._everywhere

    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **about: Any,
    ) -> None:
        """Note in which try it is, and whether it is called in a task whose result is kept.

        Outside boundaries nothing need be known. How a run ends is heard there, too: it may have
        begun in a boundary, and is forgotten then.
        """
        scope = current_scope.get()
        if scope is None:
            return
        self._runs.begun(run_id, parent_run_id, tags or ())
        if not in_a_run():
            self._stops.begun(parent_run_id, tags or (), metadata or {}, scope.saga)
        note_kept()

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **about: Any) -> None:
        """Note that a run ended well.

        Raises:
            NotSuspendable: it is a graph that stopped, and nothing waits with what it did.
        """
        self._runs.ended(run_id)
        self._runs.last.pop(run_id, None)
        refusal = self._stops.ended(run_id, _saga())
        if refusal is not None:
            raise refusal

    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **about: Any,
    ) -> None:
        """Note that a run failed, or that a node stopped.

        Raises:
            ToolFailed: nothing would wait with what the node's graph did.
        """
        self._runs.ended(run_id, error)
        self._runs.last.pop(run_id, None)
        self._stops.forget(run_id)
        refusal = self._stops.node_ended(parent_run_id, tags or (), error, _saga())
        if refusal is not None:
            raise ToolFailed(refusal)

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **about: Any) -> None:
        """Refuse a call that no wrapper announced.

        Raises:
            ToolFailed: so it is.
        """
        leave_ended()
        scope = current_scope.get()
        if announced.get() or (scope is None and not self._everywhere) or is_covered(scope):
            return
        name = str((serialized or {}).get("name") or about.get("name") or "a tool")
        kit: Any = self._kit if scope is None else scope.saga.kit
        if not may_run(kit, name):
            raise ToolFailed(_undeclared(name))


def _saga() -> Saga | None:
    scope = current_scope.get()
    return None if scope is None else scope.saga


def _undeclared(name: str) -> UndeclaredTool:
    return refusal(
        name,
        f"Call wrap_tool({name}, …) instead of it; or, if a middleware brings it or a "
        "node of tools runs it, declare it: "
        f"SagaMiddleware(kit, tools={{{name!r}: compensable(…)}}) as the last middleware, "
        "ToolNode(tools, **tool_node_kwargs(kit, tools={…})), or "
        "saga_agent(agent, kit, tools={…}) for an agent that a tool calls.",
    )


_listener: ContextVar[Any] = ContextVar("agent_saga_langgraph_listener", default=Listener())  # noqa: B039 - one for the process: each run has an id of its own, and is forgotten when it ends

register_configure_hook(_listener, inheritable=True)


@contextlib.contextmanager
def listening(kit: AgentKit | None) -> Iterator[None]:
    """Refuse tool calls that are no steps, in what runs inside and in what that starts."""
    token = _listener.set(Listener(kit, everywhere=True))
    try:
        yield
    finally:
        _listener.reset(token)

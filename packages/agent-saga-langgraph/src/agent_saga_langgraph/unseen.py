"""Tool calls that no wrapper announced: inside a boundary they are refused before they run.

Rules of this part:

- Nobody can find every tool of a graph: a function may call one itself, a middleware may bring one
  at run time. Such a call would be no step: nothing would undo it, and the run would end clean.
- So every run that is a boundary listens to the framework's own announcement of tool calls. One
  that is neither a step's nor made inside a step leaves the graph as an error, past every handler
  that would make it text for the model.
- What the policy of the boundary's gate calls REVERSIBLE may run: it leaves nothing behind.
- An effect that is no tool of LangChain is not announced by anybody, and is not seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import UndeclaredTool
from agent_saga.kit.frameworks.declarations import from_policy
from agent_saga.observe.correlation import STEP_ID
from agent_saga_langgraph.effects import ToolFailed

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit


class Listener(BaseCallbackHandler):
    """Hears of every tool call of a run, before it is made.

    Args:
        kit: whose boundary the run is, or None.
    """

    raise_error = run_inline = True
    ignore_llm = ignore_chat_model = ignore_chain = ignore_retriever = True
    ignore_retry = ignore_custom_event = True

    def __init__(self, kit: AgentKit | None) -> None:
        self._kit = kit

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **about: Any) -> None:
        """Refuse a call that no wrapper announced.

        Raises:
            ToolFailed: so it is.
        """
        if announced.get() or STEP_ID.get():
            return
        name = str((serialized or {}).get("name") or about.get("name") or "a tool")
        declared = from_policy(self._kit, name)
        if declared is None or not _is_read(declared.options["semantics"]):
            raise ToolFailed(_undeclared(name))


def _is_read(semantics: Any) -> bool:
    return ActionSemantics.parse(semantics) is ActionSemantics.REVERSIBLE


def _undeclared(name: str) -> UndeclaredTool:
    return UndeclaredTool(
        f"The tool {name} was called inside a boundary without being a step; it did not run. "
        "Nothing would undo it, and the run would be called clean.",
        fix=f"Call wrap_tool({name}, …) instead of it; or, if a middleware brings it or a "
        "node of tools runs it, declare it: "
        f"SagaMiddleware(kit, tools={{{name!r}: compensable(…)}}) as the last middleware, "
        f"ToolNode(tools, **tool_node_kwargs(kit, tools={{…}})).",
    )


announced: ContextVar[bool] = ContextVar("agent_saga_langgraph_announced", default=False)
"""The tool call that is being announced is one of a wrapped tool."""

_listener: ContextVar[Listener | None] = ContextVar("agent_saga_langgraph_listener", default=None)

register_configure_hook(_listener, inheritable=True)


@contextlib.contextmanager
def listening(kit: AgentKit | None) -> Iterator[None]:
    """Refuse tool calls that are no steps, in what runs inside and in what that starts."""
    token = _listener.set(Listener(kit))
    try:
        yield
    finally:
        _listener.reset(token)

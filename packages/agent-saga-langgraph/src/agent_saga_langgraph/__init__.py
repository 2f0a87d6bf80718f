"""agent-saga for LangGraph and LangChain: every run a boundary, every tool call a step.

This is the whole public door of the package. Names are loaded when they are first used, and the
framework with them; a version of it that is not supported is refused then, naming the range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.kit.frameworks.door import found
from agent_saga_langgraph.versions import RANGES

if TYPE_CHECKING:  # what is loaded late, for type checkers
    from agent_saga.kit.frameworks.declarations import compensable as compensable
    from agent_saga.kit.frameworks.declarations import irreversible as irreversible
    from agent_saga.kit.frameworks.declarations import read_only as read_only
    from agent_saga.kit.scopes import last_report as last_report
    from agent_saga_langgraph.agent import SagaAgent as SagaAgent
    from agent_saga_langgraph.agent import saga_agent as saga_agent
    from agent_saga_langgraph.asking import GraphApprovals as GraphApprovals
    from agent_saga_langgraph.asking import approve as approve
    from agent_saga_langgraph.asking import deny as deny
    from agent_saga_langgraph.boundaries import saga_boundary as saga_boundary
    from agent_saga_langgraph.effect_nodes import saga_node as saga_node
    from agent_saga_langgraph.middleware import SagaMiddleware as SagaMiddleware
    from agent_saga_langgraph.nodes import SagaToolNode as SagaToolNode
    from agent_saga_langgraph.nodes import tool_node_kwargs as tool_node_kwargs
    from agent_saga_langgraph.running import saga_run as saga_run
    from agent_saga_langgraph.running import saga_run_sync as saga_run_sync
    from agent_saga_langgraph.streams import saga_stream as saga_stream
    from agent_saga_langgraph.streams import saga_stream_sync as saga_stream_sync
    from agent_saga_langgraph.telling import SagaCallbackHandler as SagaCallbackHandler
    from agent_saga_langgraph.tools import safe_tool as safe_tool
    from agent_saga_langgraph.tools import wrap_tool as wrap_tool
    from agent_saga_langgraph.tools import wrap_tools as wrap_tools
    from agent_saga_langgraph.travel import rollback_to as rollback_to
    from agent_saga_langgraph.travel import rollback_to_sync as rollback_to_sync

_HOME = {
    "GraphApprovals": ".asking",
    "SagaAgent": ".agent",
    "SagaCallbackHandler": ".telling",
    "SagaMiddleware": ".middleware",
    "SagaToolNode": ".nodes",
    "approve": ".asking",
    "compensable": "agent_saga.kit.frameworks.declarations",
    "deny": ".asking",
    "irreversible": "agent_saga.kit.frameworks.declarations",
    "last_report": "agent_saga.kit.scopes",
    "read_only": "agent_saga.kit.frameworks.declarations",
    "rollback_to": ".travel",
    "rollback_to_sync": ".travel",
    "safe_tool": ".tools",
    "saga_agent": ".agent",
    "saga_boundary": ".boundaries",
    "saga_node": ".effect_nodes",
    "saga_run": ".running",
    "saga_run_sync": ".running",
    "saga_stream": ".streams",
    "saga_stream_sync": ".streams",
    "tool_node_kwargs": ".nodes",
    "wrap_tool": ".tools",
    "wrap_tools": ".tools",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - a list; the linter wants it spelt out a third time


def __getattr__(name: str) -> Any:
    return found(__name__, _HOME, RANGES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

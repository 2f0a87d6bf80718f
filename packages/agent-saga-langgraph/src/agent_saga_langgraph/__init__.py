"""agent-saga for LangGraph and LangChain: every run a boundary, every tool call a step.

This is the whole public door of the package. Names are loaded when they are first used, and the
framework with them; a version of it that is not supported is refused then, naming the range.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "GraphApprovals": "asking",
    "SagaAgent": "agent",
    "SagaCallbackHandler": "telling",
    "SagaMiddleware": "middleware",
    "SagaToolNode": "nodes",
    "approve": "asking",
    "compensable": "declarations",
    "deny": "asking",
    "irreversible": "declarations",
    "last_report": "running",
    "read_only": "declarations",
    "rollback_to": "travel",
    "rollback_to_sync": "travel",
    "safe_tool": "tools",
    "saga_agent": "agent",
    "saga_boundary": "boundaries",
    "saga_node": "effect_nodes",
    "saga_run": "running",
    "saga_run_sync": "running",
    "saga_stream": "streams",
    "saga_stream_sync": "streams",
    "tool_node_kwargs": "nodes",
    "wrap_tool": "tools",
    "wrap_tools": "tools",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - a list; the linter wants it spelt out a third time


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'agent_saga_langgraph' has no attribute {name!r}")
    importlib.import_module("agent_saga_langgraph.versions").check()
    value = getattr(importlib.import_module(f"agent_saga_langgraph.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})

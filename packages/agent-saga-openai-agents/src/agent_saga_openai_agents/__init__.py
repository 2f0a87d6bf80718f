"""agent-saga for the OpenAI Agents SDK: every run a boundary, every tool call a step.

This is the whole public door of the package. Names are loaded when they are first used, and the
framework with them; a version of it that is not supported is refused then, naming the range.
"""

from __future__ import annotations

from typing import Any

from agent_saga.kit.frameworks.door import found
from agent_saga_openai_agents.versions import RANGES

_HOME = {
    "RunStateApprovals": ".asking",
    "ServerToolFailed": ".servers",
    "SagaStream": ".streams",
    "approve": ".asking",
    "compensable": "agent_saga.kit.frameworks.declarations",
    "deny": ".asking",
    "irreversible": "agent_saga.kit.frameworks.declarations",
    "last_report": "agent_saga.kit.scopes",
    "read_only": "agent_saga.kit.frameworks.declarations",
    "safe_tool": ".tools",
    "saga_agent": ".agent",
    "saga_run": ".running",
    "saga_run_sync": ".running",
    "saga_stream": ".streams",
    "saga_stream_sync": ".streams",
    "saga_tool": ".tools",
    "wrap_tool": ".tools",
    "wrap_tools": ".tools",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - a list; the linter wants it spelt out a third time


def __getattr__(name: str) -> Any:
    return found(__name__, _HOME, RANGES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})

"""agent-saga for AutoGen: every run of an agent or a team a boundary, every tool call a step.

This is the whole public door of the package. Names are loaded when they are first used, and the
framework with them; a version of it that is not supported is refused then, naming the range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.kit.frameworks.door import found
from agent_saga_autogen.versions import RANGES

if TYPE_CHECKING:  # what is loaded late, for type checkers
    from agent_saga.kit.frameworks.declarations import compensable as compensable
    from agent_saga.kit.frameworks.declarations import irreversible as irreversible
    from agent_saga.kit.frameworks.declarations import read_only as read_only
    from agent_saga.kit.frameworks.streams import SagaStream as SagaStream
    from agent_saga.kit.scopes import last_report as last_report
    from agent_saga_autogen.agent import saga_agent as saga_agent
    from agent_saga_autogen.asking import AutoGenApprovals as AutoGenApprovals
    from agent_saga_autogen.asking import HumanAsked as HumanAsked
    from agent_saga_autogen.asking import Waiting as Waiting
    from agent_saga_autogen.asking import approve as approve
    from agent_saga_autogen.asking import ask_human as ask_human
    from agent_saga_autogen.asking import deny as deny
    from agent_saga_autogen.binding import bind as bind
    from agent_saga_autogen.running import saga_run as saga_run
    from agent_saga_autogen.running import saga_run_sync as saga_run_sync
    from agent_saga_autogen.streams import saga_stream as saga_stream
    from agent_saga_autogen.streams import saga_stream_sync as saga_stream_sync
    from agent_saga_autogen.tools import safe_tool as safe_tool
    from agent_saga_autogen.tools import saga_tool as saga_tool
    from agent_saga_autogen.tools import wrap_tool as wrap_tool
    from agent_saga_autogen.tools import wrap_tools as wrap_tools
    from agent_saga_autogen.workbench import SagaWorkbench as SagaWorkbench
    from agent_saga_autogen.workbench import WorkbenchToolFailed as WorkbenchToolFailed

_HOME = {
    "AutoGenApprovals": ".asking",
    "HumanAsked": ".asking",
    "SagaStream": "agent_saga.kit.frameworks.streams",
    "SagaWorkbench": ".workbench",
    "Waiting": ".asking",
    "WorkbenchToolFailed": ".workbench",
    "approve": ".asking",
    "ask_human": ".asking",
    "bind": ".binding",
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
    return sorted({*globals(), *__all__})

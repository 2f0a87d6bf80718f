"""Every name of the framework that it does not promise, in one place, each with what else to do.

Rules of this part:

- Where a version lacks such a name, what cannot be done without it is refused by name: no tool runs
  past its step.
- What was made by the framework is never changed: a copy is.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

from autogen_core import SingleThreadedAgentRuntime
from autogen_core.tools import BaseTool, FunctionTool, StaticWorkbench, Workbench

from agent_saga.errors import ConfigurationError

_WORKBENCHES = "_workbench"
_HANDOFFS = "_handoff_tools"
_FUNCTION = "_func"
_IMPORTS = "_global_imports"
_STRICT = "_strict"
_TOOLS = "_tools"
_OVERRIDES = "_tool_overrides"
_PARTICIPANTS = "_participants"
_TERMINATION = "_termination_condition"
_BEGUN = "_initialized"
_OWN_RUNTIME = "_embedded_runtime"
_RUNTIME = "_runtime"
_OUTPUT = "_output_message_queue"
RUNNER = "_task_runner"
"""What a tool that runs an agent or a team keeps it in."""
INNER = ("_team", "_wrapped_agent")
"""What agents that run another agent or a team keep it in."""


def of(owner: Any, name: str) -> Any:
    """Return what an object of the framework keeps under a private name.

    Raises:
        ConfigurationError: it keeps nothing there.
    """
    if not hasattr(owner, name):
        raise ConfigurationError(
            f"This version of AutoGen does not show what its {type(owner).__name__} is made of, so "
            "its calls cannot be seen.",
            fix="Use a version that agent-saga-autogen was tested with.",
        )
    return getattr(owner, name)


def behind(tool: BaseTool[Any, Any]) -> object:
    """Return what tells a tool from others of its name: what it calls."""
    return getattr(tool, _FUNCTION, None) or tool


def config_of(workbench: Workbench) -> object:
    """Return what tells a workbench from others: what it is made from; else the workbench.

    One that holds functions tells of their source, and not of what they hold themselves.
    """
    if isinstance(workbench, StaticWorkbench):
        return workbench
    try:
        return type(workbench), workbench._to_config()  # noqa: SLF001 - see above
    except Exception:
        return workbench


def changed(owner: Any, **values: Any) -> Any:
    """Return a copy of an object that keeps other values under private names it has.

    Raises:
        ConfigurationError: it has no such name.
    """
    made = copy.copy(owner)
    for name, value in values.items():
        of(owner, name)
        setattr(made, name, value)
    return made


def workbenches(agent: Any) -> list[Any]:
    """Return the workbenches of an assistant."""
    return list(of(agent, _WORKBENCHES))


def handoffs(agent: Any) -> list[Any]:
    """Return the tools by which an assistant hands over to other agents."""
    return list(of(agent, _HANDOFFS))


def with_workbenches(agent: Any, workbenches: list[Any], handoffs: list[Any]) -> Any:
    """Return a copy of an assistant with other workbenches and tools that hand over."""
    return changed(agent, **{_WORKBENCHES: workbenches, _HANDOFFS: handoffs})


def static_tools(workbench: Any) -> list[BaseTool[Any, Any]] | None:
    """Return the tools of a workbench that calls them as they are; None of any other workbench."""
    if not isinstance(workbench, StaticWorkbench):
        return None
    cls = type(workbench)
    if not cls.__module__.startswith("autogen_core."):
        return None  # a class of one's own may do more than call its tools
    return list(of(workbench, _TOOLS))


def overrides(workbench: Any) -> dict[str, Any]:
    """Return under what other names a static workbench shows its tools."""
    return dict(getattr(workbench, _OVERRIDES, None) or {})


def function_of(tool: FunctionTool) -> tuple[Callable[..., Any], dict[str, Any]] | None:
    """Return the function of a tool and what else it is made of; None if its class does more."""
    if type(tool).run is not FunctionTool.run or type(tool).run_json is not FunctionTool.run_json:
        return None
    if not all(hasattr(tool, name) for name in (_FUNCTION, _IMPORTS, _STRICT)):
        return None
    made_of = {"global_imports": getattr(tool, _IMPORTS), "strict": getattr(tool, _STRICT)}
    return getattr(tool, _FUNCTION), made_of


def participants(team: Any) -> list[Any]:
    """Return the agents and teams of a team."""
    return list(of(team, _PARTICIPANTS))


def with_participants(team: Any, participants: list[Any], termination: Any) -> Any:
    """Return a copy of a team that has not begun, of other participants.

    Args:
        team: the team; if it made its runtime itself, the copy has one of its own.
        participants: those of the copy, in the same order.
        termination: what ends the copy, besides what ends the team.

    Raises:
        ConfigurationError: it has begun, and its conversation would be lost.
    """
    if of(team, _BEGUN):
        raise ConfigurationError(
            "The team has run already, and its conversation lies in its runtime.",
            fix="Make the team anew, put it into saga_agent before its first run, and give it the "
            "conversation: await team.load_state(await old.save_state()).",
        )
    own = of(team, _TERMINATION)
    ends = termination if own is None else own | termination
    given: dict[str, Any] = {_PARTICIPANTS: participants, _TERMINATION: ends}
    if of(team, _OWN_RUNTIME):
        runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
        given.update({_RUNTIME: runtime, _OUTPUT: asyncio.Queue()})
    return changed(team, **given)

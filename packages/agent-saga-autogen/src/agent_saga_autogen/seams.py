"""Every name of the framework that it does not promise, in one place, each with what else to do.

Rules of this part:

- Where a version lacks such a name, what cannot be done without it is refused by name: no tool runs
  past its step.
- What was made by the framework is never changed: a copy is.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Mapping
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
_STARTED = "_run_context"
_WORK = "_run_task"
_FAILED = "_background_exception"
_MANAGER_CLASS = "_base_group_chat_manager_class"
_SPEAKERS = "_active_speakers"
_TOPICS = "_participant_name_to_topic_type"
_BEGINS = "GroupChatStart"
_FAILS = "GroupChatError"
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
    for name in values:
        of(owner, name)
    return made_as(owner, type(owner), values)


def made_as(owner: Any, cls: type[Any], values: Mapping[str, Any]) -> Any:
    """Return an object of another class that keeps the same, whatever the class keeps it in.

    Args:
        owner: the object; it stays as it is.
        cls: its class, or a subclass of it.
        values: what the other one keeps besides, or instead.
    """
    made = object.__new__(cls)
    for base in cls.__mro__:
        for name in _slots(base):
            if hasattr(owner, name):
                object.__setattr__(made, name, getattr(owner, name))
    made.__dict__.update({**vars(owner), **values})
    return made


_classes: dict[tuple[type[Any], type[Any]], type[Any]] = {}


def class_of(care: type[Any], base: type[Any]) -> type[Any]:
    """Return a class of ours that is like another one, by the same name.

    Args:
        care: what is ours of it.
        base: the other one.
    """
    found = _classes.get((care, base))
    if found is None:
        names = {"__module__": base.__module__, "__qualname__": base.__qualname__}
        found = types.new_class(
            base.__name__, (care, base), exec_body=lambda body: body.update(names)
        )
        found.__doc__ = base.__doc__
        _classes[care, base] = found
    return found


def _slots(cls: type[Any]) -> list[str]:
    given = cls.__dict__.get("__slots__", ())
    names = [given] if isinstance(given, str) else list(given)
    private = f"_{cls.__name__.lstrip('_')}"
    own = [name for name in names if name not in ("__dict__", "__weakref__")]
    hidden = [name for name in own if name.startswith("__") and not name.endswith("__")]
    return [f"{private}{name}" if name in hidden else name for name in own]


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


def termination(team: Any) -> Any:
    """Return what ends a team, or None."""
    return of(team, _TERMINATION)


def with_participants(team: Any, participants: list[Any], termination: Any) -> Any:
    """Return a copy of a team that has not begun, of other participants.

    Args:
        team: the team; if it made its runtime itself, the copy has one of its own.
        participants: those of the copy, in the same order.
        termination: what ends the copy.

    Raises:
        ConfigurationError: it has begun, and its conversation would be lost.
    """
    if of(team, _BEGUN):
        raise ConfigurationError(
            "The team has run already, and its conversation lies in its runtime.",
            fix="Make the team anew, put it into saga_agent before its first run, and give it the "
            "conversation: await team.load_state(await old.save_state()).",
        )
    given: dict[str, Any] = {_PARTICIPANTS: participants, _TERMINATION: termination}
    given[_OUTPUT] = asyncio.Queue()
    if of(team, _OWN_RUNTIME):
        given[_RUNTIME] = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
    return changed(team, **given)


def output(team: Any) -> asyncio.Queue[Any]:
    """Return where a team's manager puts what the team tells."""
    found: asyncio.Queue[Any] = of(team, _OUTPUT)
    return found


def is_started(team: Any) -> bool:
    """Say whether the runtime of a team works, as far as that can be seen."""
    runtime = of(team, _RUNTIME)
    if of(team, _OWN_RUNTIME) or not isinstance(runtime, SingleThreadedAgentRuntime):
        return True
    return getattr(runtime, _STARTED, True) is not None


def work(team: Any) -> asyncio.Future[Any] | None:
    """Return what ends when somebody stops the runtime of a team; None if that cannot be seen."""
    found = None if of(team, _OWN_RUNTIME) else getattr(of(team, _RUNTIME), _STARTED, None)
    task = getattr(found, _WORK, None)
    return task if isinstance(task, asyncio.Future) else None


def delivers(team: Any) -> bool:
    """Say whether what an agent of a team tells can still come to its manager."""
    runtime = of(team, _RUNTIME)
    if not isinstance(runtime, SingleThreadedAgentRuntime):
        return True
    return getattr(runtime, _STARTED, True) is not None


def forget_failures(team: Any) -> None:
    """Let the runtime that a team made itself forget what failed in a run that has ended."""
    if of(team, _OWN_RUNTIME):
        setattr(of(team, _RUNTIME), _FAILED, None)


def manager_class(team: Any) -> type[Any]:
    """Return the class of what chooses a team's speakers."""
    found: type[Any] = of(team, _MANAGER_CLASS)
    return found


def managed_by(team: Any, cls: type[Any]) -> None:
    """Let what chooses a team's speakers be of another class; the team is a copy of ours."""
    setattr(team, _MANAGER_CLASS, cls)


def speakers(manager: Any) -> list[str]:
    """Return the agents that a manager waits for; the list is its own."""
    found: list[str] = of(manager, _SPEAKERS)
    return found


def speaker_of(manager: Any, topic: str) -> str | None:
    """Return which agent of a team publishes with a type of the core's."""
    names: dict[str, str] = of(manager, _TOPICS)
    return next((name for name, own in names.items() if own == topic), None)


def begins(message: object) -> bool:
    """Say whether a message to a manager begins a run."""
    return type(message).__name__ == _BEGINS


def is_failure(message: object) -> bool:
    """Say whether a message to a manager tells that an agent failed."""
    return type(message).__name__ == _FAILS

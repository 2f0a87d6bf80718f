"""Every name of the framework that it does not promise, in one place, each with what else to do.

Rules of this part:

- Nothing here is imported from the framework. An attribute that a version lacks changes nothing for
  tools that were made for agent-saga; what cannot be done without it is refused by name.
"""

from __future__ import annotations

import copy
import functools
import importlib
import types
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from agents import (
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    ImageGenerationTool,
    WebSearchTool,
)

from agent_saga.engine.quitting import kept

Implementation = Callable[[Any, str], Awaitable[Any]]

_IMPLEMENTATION = "_invoke_tool_impl"
_SYNCHRONOUS = "__agents_sync_function_tool__"
_AGENT = "_agent_instance"
_CANCELLED = "_cancel_mode"
_WAITS_UNDER = "_agent_tool_state_scope_id"
_HANDED_TO = "_agent_ref"
_GET_RUNNER, _SET_RUNNER = "get_default_agent_runner", "set_default_agent_runner"
_THEIR_FUNCTION = "the_func"
_PROVIDED = (CodeInterpreterTool, FileSearchTool, ImageGenerationTool, WebSearchTool)


def swallows(invoker: object) -> bool:
    """Say whether the framework itself turns errors of what it invokes into text."""
    return type(invoker).__module__.partition(".")[0] == "agents"


def implementation(invoker: object) -> Implementation | None:
    """Return what an invoker of the framework calls below its error handling; None if unknown."""
    found = getattr(invoker, _IMPLEMENTATION, None)
    return found if callable(found) else None


def with_implementation(invoker: Any, replaced: Implementation) -> Any:
    """Return a copy of an invoker that calls something else below its error handling."""
    copied = copy.copy(invoker)
    replaced.__dict__.update(vars(getattr(invoker, _IMPLEMENTATION)))
    setattr(copied, _IMPLEMENTATION, replaced)
    return copied


def copied(tool: FunctionTool, **values: Any) -> FunctionTool:
    """Return a copy of a tool that keeps other values; classes may be made in ways of their own."""
    made: FunctionTool = object.__new__(type(tool))
    made.__dict__.update({**vars(tool), **values})
    FunctionTool.__post_init__(made)  # type: ignore[no-untyped-call]
    return made


def behind(tool: object) -> object:
    """Return what tells a tool from others of its name: copies of a tool call the same function.

    Tools that the provider carries out, and that have no settings of an effect, are one by class.
    """
    if isinstance(tool, _PROVIDED):
        return type(tool)
    found = implementation(getattr(tool, "on_invoke_tool", None))
    if found is None:
        return tool
    if not isinstance(found, types.FunctionType):
        return found
    held = dict(zip(found.__code__.co_freevars, found.__closure__ or (), strict=True))
    return held[_THEIR_FUNCTION].cell_contents if _THEIR_FUNCTION in held else found


def server_behind(tool: FunctionTool) -> object:
    """Return what tells an MCP server from others: what it is reached by; else the server."""
    found = implementation(tool.on_invoke_tool)
    server = found.args[0] if isinstance(found, functools.partial) and found.args else None
    reached = getattr(server, "params", None)
    if server is None:
        return tool
    return server if reached is None else (_plain_class(type(server)), reached)


def _plain_class(cls: type[Any]) -> type[Any]:
    """Return a server's class as its author wrote it; see `servers`."""
    return next(base for base in cls.__mro__ if base.__module__ != __package__ + ".servers")


def in_a_thread(invoker: object) -> bool:
    """Say whether an invoker runs its function in a thread, which no cancellation reaches."""
    return bool(getattr(invoker, _SYNCHRONOUS, False))


def agent_behind(tool: FunctionTool) -> Any:
    """Return the agent that a tool runs; None where it runs none, or nobody can tell."""
    return getattr(tool, _AGENT, None)


def agent_handed_to(handoff: Handoff[Any, Any]) -> Any:
    """Return the agent that a handoff leads to; None where that shows only when it is made."""
    found = getattr(handoff, _HANDED_TO, None)
    return found() if callable(found) else None


def brings_tools(agent: object) -> bool:
    """Say whether an agent's tools show only while it runs, as those of a sandbox do."""
    return bool(getattr(agent, "capabilities", None))


def agent_of(state: object) -> Any:
    """Return the agent that a run's state goes on with; None if that does not show."""
    return getattr(state, "_current_agent", None)


def keep_apart(context: Any) -> None:
    """Keep runs that wait inside a run's tools apart from those of other runs in the process.

    Older versions know them all by their call's id, name and arguments alone: a run whose model
    used the same ids would be given what another one waits for, and its approval would release it.

    Args:
        context: the framework's `RunContextWrapper` of the run.
    """
    if getattr(context, _WAITS_UNDER, None) is None:
        setattr(context, _WAITS_UNDER, uuid.uuid4().hex)


def was_cut_off(result: Any) -> bool:
    """Say whether a streamed run was cancelled at once; if that does not show: it has no end."""
    ended = result.final_output is not None or bool(result.interruptions)
    return bool(getattr(result, _CANCELLED, "none" if ended else "immediate") == "immediate")


def put_round_the_runner(made: Callable[[Any], Any]) -> None:
    """Put something round what `Runner.run` calls; nothing where a version does not let one.

    Args:
        made: a class, whose objects are made of what is there.
    """
    run = importlib.import_module("agents.run")
    get, put = getattr(run, _GET_RUNNER, None), getattr(run, _SET_RUNNER, None)
    if callable(get) and callable(put) and type(get()) is not made:
        put(made(get()))


def may_ask(server: object) -> bool:
    """Say whether an MCP server's tools may ask for an approval."""
    return getattr(server, "_needs_approval_policy", False) not in (False, None)


def running_instead(function: Implementation, agent: object, other: object) -> Any:
    """Return a copy of an agent tool's function that runs another agent; None if that cannot be.

    Args:
        function: what `Agent.as_tool` made; it holds its agent in its closure.
        agent: that agent.
        other: the one to run instead.
    """
    cells = getattr(function, "__closure__", None) or ()
    held = [cell.cell_contents is agent for cell in cells]
    if not isinstance(function, types.FunctionType) or held.count(True) != 1:
        return None
    closure = tuple(
        types.CellType(other) if found else cell for cell, found in zip(cells, held, strict=True)
    )
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, closure
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(vars(function))
    return made


def is_all_theirs(error: BaseException) -> bool:
    """Say whether nothing but the framework's own code ran below the caller of this one."""
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    names: list[str] = []
    while trace is not None:
        names.append(str(trace.tb_frame.f_globals.get("__name__", "")))
        trace = trace.tb_next
    roots = {name.partition(".")[0] for name in names if name != kept.__module__}
    return bool(roots) and roots <= {"agents", "asyncio", __name__.partition(".")[0]}

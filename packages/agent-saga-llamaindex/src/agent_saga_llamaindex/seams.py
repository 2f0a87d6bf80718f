"""Every name of the framework that it does not promise, in one place, each with what else to do.

Rules of this part:

- Where a version lacks such a name, what cannot be done without it is refused by name: no tool runs
  past its step.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

from llama_index.core.tools import FunctionTool
from workflows.runtime.types.results import WaitingForEvent as Waits

_MAKES_ASYNC = "sync_to_async."
_STEP = "_step_config"
_FREE_STEPS = "_step_functions"
WaitingForEvent: type[Exception] = Waits
"""What leaves a step that waits for an event; the step is run again when the event is there."""

HANDOFF = "handoff"
"""The tool that an `AgentWorkflow` adds itself; no other tool may have this name."""


def own_async(tool: FunctionTool) -> Callable[..., Any] | None:
    """Return the coroutine function that a tool was given beside a function; None without one."""
    function, given = tool.real_fn, tool.async_fn
    made = getattr(given, "__qualname__", "").startswith(_MAKES_ASYNC)
    ours = getattr(given, "__module__", "") == FunctionTool.__module__
    return None if given is function or (made and ours) else given


def with_functions(
    tool: FunctionTool, fn: Callable[..., Any] | None, async_fn: Callable[..., Any] | None
) -> FunctionTool | None:
    """Return a copy of a tool, of its class, that calls other functions; None if that cannot be.

    Args:
        tool: the tool; everything else stays as it is.
        fn: as `FunctionTool` takes it.
        async_fn: as `FunctionTool` takes it.
    """
    cls = type(tool)
    if any(_defined(cls, name) is not _defined(FunctionTool, name) for name in ("call", "acall")):
        return None
    fresh = FunctionTool(fn=fn, async_fn=async_fn, metadata=tool.metadata)
    made = copy.copy(tool)
    for name in ("_fn", "_async_fn", "_real_fn"):
        if name in vars(fresh):
            setattr(made, name, getattr(fresh, name))
    replaced = (made.fn, made.async_fn, made.real_fn) == (fresh.fn, fresh.async_fn, fresh.real_fn)
    same = (made.requires_context, made.ctx_param_name) == (
        fresh.requires_context,
        fresh.ctx_param_name,
    )
    return made if replaced and same else None


def steps_of(cls: type[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the steps of a workflow's class: its methods, and functions that were added to it."""
    methods = {
        name: method
        for name, method in inspect.getmembers(cls, predicate=inspect.isfunction)
        if hasattr(method, _STEP)
    }
    return methods, dict(getattr(cls, _FREE_STEPS, {}))


def add_free_steps(cls: type[Any], steps: dict[str, Any]) -> None:
    """Add functions to a workflow's class that are steps of it."""
    getattr(cls, _FREE_STEPS, {}).update(steps)


def _defined(cls: type[Any], name: str) -> Any:
    """Return a method as its class defines it, below what the framework puts round it."""
    return inspect.unwrap(inspect.getattr_static(cls, name))

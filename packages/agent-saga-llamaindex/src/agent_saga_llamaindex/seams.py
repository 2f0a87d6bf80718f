"""Every name of the framework that it does not promise, in one place, each with what else to do.

Rules of this part:

- Where a version lacks such a name, what cannot be done without it is refused by name: no tool runs
  past its step.
- `WaitingForEvent` leaves a step that waits for an event; the step is run again when the event is
  there.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from llama_index.core.tools import FunctionTool
from workflows import Context
from workflows.errors import ContextStateError
from workflows.plugins import basic
from workflows.runtime.types.results import (
    DeleteWaiter,
    StepWorkerStateContextVar,
    WaitingForEvent,
)

__all__ = ["WaitingForEvent"]

_MAKES_ASYNC = "sync_to_async."
_STEP = "_step_config"
_FREE_STEPS = "_step_functions"
_RUN = "_current_run_id"
_NOTES = ("scratchpad_key", "reasoning_key")
WORK = "work_item_"
"""How the framework begins the name of a piece of work; a number follows."""

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


# --- the step that is running --------------------------------------------------------------------


def worker() -> Any:
    """Return the framework's object of the running step's execution; None outside of any."""
    return StepWorkerStateContextVar.get(None)


def work_of(worker: Any) -> str:
    """Return the name of a step's piece of work: it keeps it when it is run again."""
    return str(worker.state.work_item_id or worker.state.invocation_id or "")


def step_name(worker: Any) -> str:
    """Return the name of the step that is run."""
    return str(getattr(worker.state, "step_name", ""))


def run_id() -> str:
    """Return what tells the run of a workflow from others; empty where that is not known."""
    current: Any = getattr(basic, _RUN, None)
    return "" if current is None else str(current.get() or "")


def sent_by(worker: Any) -> list[Any]:
    """Return the events that a step has sent so far, in order."""
    return [entry.event for entry in tuple(worker.sends.entries)]


def drop_waiters(prefix: str) -> None:
    """Let the running step, when it ends well, no longer wait for what it asked by such names.

    A step that is left waiting is run again whenever such an event comes, even after it has ended.
    """
    here = worker()
    for waiter in here.state.collected_waiters if here is not None else ():
        own = waiter.work_item_id == here.state.work_item_id
        if own and waiter.waiter_id.startswith(prefix):
            here.returns.return_values.append(DeleteWaiter(waiter_id=waiter.waiter_id))


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine gives that has nothing to wait for; in a thread without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    finally:
        coroutine.close()
    raise RuntimeError("This version of llama-index-workflows waits where it did not.")


def notes_of(workflow: Any) -> set[str]:
    """Return under what names its agents keep what they noted in the run that goes on."""
    agents = [workflow, *getattr(workflow, "agents", {}).values()]
    return {getattr(agent, key) for agent in agents for key in _NOTES if hasattr(agent, key)}


# --- contexts ------------------------------------------------------------------------------------


def is_begun(context: Context[Any]) -> bool:
    """Say whether a context is that of a run which began in this process."""
    try:
        context.stream_events()
    except ContextStateError:
        return False
    return True


def taken(context: Context[Any]) -> dict[str, Any]:
    """Return a context as plain data; that its memory cannot be is known."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Skipping serialization of known unserial")
        return context.to_dict()


def is_at_rest(snapshot: Mapping[str, Any]) -> bool:
    """Say whether nothing in a run goes on by itself."""
    workers = snapshot["workers"].values()
    busy = any(worker["queue"] or worker["in_progress"] for worker in workers)
    return bool(snapshot["is_running"]) and not busy and not snapshot.get("deliveries")


def waits(snapshot: Mapping[str, Any]) -> bool:
    """Say whether a step waits for an event."""
    workers = snapshot["workers"].values()
    return any(not w["resolved_event"] for worker in workers for w in worker["collected_waiters"])


def runs_again(snapshot: Mapping[str, Any]) -> bool:
    """Say whether the framework runs a step again to hear what it waits for, or has work to do."""
    workers = snapshot["workers"].values()
    asks = any(w["has_requirements"] for worker in workers for w in worker["collected_waiters"])
    return asks or not is_at_rest(snapshot)


def last_work(snapshot: Mapping[str, Any]) -> int:
    """Return the number of the last piece of work that a context knows of."""
    return int(snapshot["work_item_seq"])


def number_of(work: str) -> int | None:
    """Return the number of a piece of work; None if it has none."""
    with contextlib.suppress(ValueError):
        return int(work.removeprefix(WORK)) if work.startswith(WORK) else None
    return None

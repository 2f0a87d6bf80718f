"""Workflows whose steps are seen: how a step is known when the framework runs it again.

Rules of this part:

- The class of a workflow is extended, never changed. Its steps do what they did; round each of them
  stands what notes its execution.
- A step that raised and is run again, with the same events, is the same execution: by its retry
  policy, or because it waits for an event.
- Of an agent's steps, the one that asks the model is a turn, and the one that calls a tool names
  the call. Neither begins when the run has been stopped.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from workflows import Workflow
from workflows.events import Event

from agent_saga_llamaindex import seams
from agent_saga_llamaindex.calls import Call, calling, executing, running

Step = Callable[..., Any]
_ASKS_MODEL = "run_agent_step"
_CALLS_TOOL = "call_tool"


class SagaWorkflow:
    """A workflow whose steps are seen; made from the class of a workflow."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Begin a run, as the workflow's class does, and let the boundary round it know of it."""
        handler = super().run(*args, **kwargs)  # type: ignore[misc]
        around = running.get()
        if around is not None:
            around.handlers.append(handler)
        return handler


def seen_class(base: type[Any], mixin: type[Any] | None = None) -> type[Any]:
    """Return a class like a workflow's, the executions of whose steps are noted.

    Args:
        base: the workflow's class.
        mixin: what its objects can do besides; None for a workflow that is no agent.
    """
    methods, free = seams.steps_of(base)
    kept = _classes.get((base, mixin))
    if kept is not None and kept[0] == free:
        return kept[1]
    noted = _of_agent if mixin is not None else _of_workflow
    own = {name: noted(name, step) for name, step in methods.items() if name not in free}
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__}
    bases = (mixin or SagaWorkflow, base)
    made: type[Any] = types.new_class(
        base.__name__, bases, exec_body=lambda body: body.update({**names, **own})
    )
    made.__doc__ = base.__doc__
    seams.add_free_steps(made, {name: noted(name, step) for name, step in free.items()})
    _classes[base, mixin] = (free, made)
    return made


def seen(workflow: Workflow) -> Any:
    """Return a workflow that is no agent with its steps seen; it shares all that it keeps."""
    if isinstance(workflow, SagaWorkflow):
        return workflow
    found = _seen.get(workflow)
    cls = seen_class(type(workflow))
    if found is None or type(found) is not cls:
        found = object.__new__(cls)
        object.__setattr__(found, "__dict__", workflow.__dict__)
        _seen[workflow] = found
    return found


_classes: dict[tuple[type[Any], type[Any] | None], tuple[dict[str, Any], type[Any]]] = {}
_seen: WeakKeyDictionary[Workflow, Any] = WeakKeyDictionary()


def _of_workflow(name: str, step: Step) -> Step:
    if inspect.iscoroutinefunction(step):

        @functools.wraps(step)
        async def arun(*args: Any, **kwargs: Any) -> Any:
            with _executing(name, args, kwargs):
                return await step(*args, **kwargs)

        return arun

    @functools.wraps(step)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _executing(name, args, kwargs):
            return step(*args, **kwargs)

    return run


def _of_agent(name: str, step: Step) -> Step:
    noted = _of_workflow(name, step)
    if name not in (_ASKS_MODEL, _CALLS_TOOL):
        return noted
    around = _turn if name == _ASKS_MODEL else _call

    @functools.wraps(step)
    async def run(*args: Any, **kwargs: Any) -> Any:
        check_goes_on()
        async with around(_events(args, kwargs)):
            result = await noted(*args, **kwargs)
        check_goes_on()
        return result

    return run


@contextlib.asynccontextmanager
async def _turn(_events: tuple[Any, ...]) -> Any:
    run, call = running.get(), calling.get()
    if run is not None:
        if run.before_turn is not None:
            await run.before_turn()
            check_goes_on()
        run.counts.turn(call.inside if call is not None else ())
    yield


@contextlib.asynccontextmanager
async def _call(events: tuple[Any, ...]) -> Any:
    outer = calling.get()
    id_ = str(getattr(events[0], "tool_id", "")) if events else ""
    token = calling.set(Call(id_, outer.inside if outer is not None else ()))
    try:
        yield
    finally:
        calling.reset(token)


def check_goes_on() -> None:
    """Stop here if nothing of the run may begin any more.

    Raises:
        Exception: why not.
    """
    run = running.get()
    if run is not None and run.stop is not None:
        raise run.stop


@contextlib.contextmanager
def _executing(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
    outer = executing.get()
    if outer is None:
        yield
        return
    execution = outer.inside(name, _events(args, kwargs))
    token = executing.set(execution)
    try:
        yield
    except BaseException:
        execution.end(failed=True)
        raise
    else:
        execution.end(failed=False)
    finally:
        executing.reset(token)


def _events(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for value in (*args, *kwargs.values()):
        found += value if isinstance(value, list) else [value]
    return tuple(value for value in found if isinstance(value, Event))

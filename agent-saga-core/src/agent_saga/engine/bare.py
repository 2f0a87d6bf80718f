"""Calling a tool where no boundary is: as the bare function that it wraps.

Rules of this part:

- Nothing is recorded, judged or undone here.
- What the function raises is marked as another call's, as what leaves a step is: a step, an inverse
  or a prober that it passes through later says nothing of itself by it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import CoroutineType, MappingProxyType
from typing import Any, Final

from agent_saga.engine.endings import leaving
from agent_saga.engine.forms import Form
from agent_saga.engine.step import ELSEWHERE

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def bare(form: Form, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a tool's function; of a coroutine function, return the coroutine.

    Args:
        form: the function's.
        name: how a warning names a coroutine that nobody awaited.
        args: positional arguments.
        kwargs: keyword arguments.
    """
    if form.is_async:
        return _named(_run(form.fn, args, kwargs), name)
    try:
        value = form.fn(*args, **kwargs)
    except Exception as error:
        leaving(error, ELSEWHERE)
        raise
    return _named(_run(lambda: value), name) if type(value) is CoroutineType else value


def _named(coroutine: Coroutine[Any, Any, Any], name: str) -> Coroutine[Any, Any, Any]:
    coroutine.__qualname__ = name  # type: ignore[attr-defined]
    return coroutine


async def _run(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] = _NOTHING
) -> Any:
    try:
        return await fn(*args, **kwargs)
    except Exception as error:
        leaving(error, ELSEWHERE)
        raise

"""What can be said about a callable without calling it.

Rules of this part:

- A partial is looked through, and an object with `__call__` is judged by that method. A decorator's
  wrapper is judged as it stands, not by what it wraps: only the wrapper is called.
- Nothing here calls the user's code. A callable that cannot be read has no known parameters.
"""

from __future__ import annotations

import functools
import inspect
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["BY_NAME", "is_async_callable", "parameters_of", "refuse_generators", "required"]

BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
"""The kinds of parameters that can be given by keyword."""


def parameters_of(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters by name; empty when they cannot be read (some built-in functions)."""
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return MappingProxyType({})


def required(parameters: Mapping[str, inspect.Parameter]) -> set[str]:
    """Return the names of those that can be given by keyword and have no default."""
    return {
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and parameter.kind in BY_NAME
    }


def is_async_callable(fn: Callable[..., Any]) -> bool:
    """Say whether calling it is known to return an awaitable."""
    return inspect.iscoroutinefunction(_body(fn))


def refuse_generators(kind: str, name: str, fn: Callable[..., Any]) -> None:
    """Refuse what would run nothing when it is called.

    Raises:
        ConfigurationError: not callable, or a generator function of either sort.
    """
    if not callable(fn):
        raise ConfigurationError(f"The {kind} {name!r} is not callable: {type(fn).__name__}.")
    body = _body(fn)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ConfigurationError(
            f"The {kind} {name!r} is a generator function, and calling one runs nothing.",
            fix="Use a plain function or a coroutine function (no yield).",
        )


def _body(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return fn
    return type(fn).__call__

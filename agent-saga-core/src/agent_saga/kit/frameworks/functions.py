"""The function behind a tool of a framework, and what stands in its place.

Rules of this part:

- What stands in a function's place has its name, signature and annotations.
- An `idempotency_key` that the function takes is given by the engine: the model is not shown it,
  and what a model gives for it counts for nothing.
- Arguments that do not fit were no call: the function did not run.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from agent_saga.engine.wrap import SagaTool
from agent_saga.errors import NotApplied
from agent_saga.plugins.callables import is_async_callable

KEY: Final = "idempotency_key"
_MARK: Final = "agent_saga_effect"


class Effect(Protocol):
    """What a package makes of a function: its calls are steps.

    Attributes:
        tool: the function, declared and wrapped.
    """

    tool: SagaTool[..., Any]

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make a call on this thread."""

    async def arun(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make a call on the event loop."""


def in_place_of(original: Callable[..., Any], effect: Effect) -> Callable[..., Any]:
    """Return what stands in a function's place and makes its calls steps.

    Args:
        original: the function.
        effect: the step; `effects_of` finds it again.
    """
    if effect.tool.tool.form.is_async:

        async def arun(*args: Any, **kwargs: Any) -> Any:
            return await effect.arun(args, kwargs)

        replaced = functools.wraps(original)(arun)
    else:

        def run(*args: Any, **kwargs: Any) -> Any:
            return effect.run(args, kwargs)

        replaced = functools.wraps(original)(run)
    replaced.__dict__[_MARK] = effect
    if not inspect.isroutine(original):
        replaced.__dict__["__signature__"] = inspect.signature(original)
        replaced.__annotations__ = _annotations(original)
    return replaced


def _annotations(original: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of what is called and is no function: a partial, an object."""
    while isinstance(original, functools.partial):
        original = original.func
    called = original if inspect.isroutine(original) else type(original).__call__
    try:
        return typing.get_type_hints(called, include_extras=True)
    except (NameError, TypeError):  # a name that only type checkers know
        return dict(getattr(called, "__annotations__", {}))


def effects_of(tool: object, names: Iterable[str]) -> list[Any]:
    """Return the steps behind a tool; none if it is not wrapped.

    Args:
        tool: a tool of a framework.
        names: the attributes that hold its functions.
    """
    found = [getattr(getattr(tool, name, None), _MARK, None) for name in names]
    return [effect for effect in found if effect is not None]


def without_key(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as a model may see it: the idempotency key is the engine's to give."""
    signature = inspect.signature(fn)
    if KEY not in signature.parameters:
        return fn

    @functools.wraps(fn)
    def shown(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    left = [one for name, one in signature.parameters.items() if name != KEY]
    shown.__dict__["__signature__"] = signature.replace(parameters=left)
    shown.__annotations__ = {name: a for name, a in fn.__annotations__.items() if name != KEY}
    return shown


def unkeyed(tool: SagaTool[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Leave out an idempotency key that a model gave, or a schema's default.

    Args:
        tool: what is called.
        kwargs: the call's arguments by name.
    """
    if tool.tool.form.takes_key and KEY in kwargs:
        return {name: value for name, value in kwargs.items() if name != KEY}
    return kwargs


def fitting(
    fn: Callable[..., Any], result: Callable[[Any], Any] = lambda value: value
) -> Callable[..., Any]:
    """Return a function that says so when its arguments do not fit, before it does anything.

    Args:
        fn: a function or a coroutine function.
        result: what is made of its result.
    """
    signature = inspect.signature(fn)

    def check(args: Any, kwargs: Any) -> None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise NotApplied(f"its arguments do not fit: {error}") from error

    if is_async_callable(fn):

        @functools.wraps(fn)
        async def arun(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            return result(await fn(*args, **kwargs))

        return arun

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return result(fn(*args, **kwargs))

    return run

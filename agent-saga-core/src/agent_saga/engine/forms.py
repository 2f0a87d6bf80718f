"""The forms a tool can have, and how a call of it is read.

Rules of this part:

- Functions, coroutine functions, partials, bound methods, builtins, classes and objects with
  `__call__` run; generator functions of either kind are refused when wrapped, since calling one
  runs nothing. What a call returns is judged again by the driver: an awaitable is awaited, a
  generator drained.
- Arguments are recorded by name, plain defaults included. Positional arguments beyond the named
  ones stand under `*`. What `**kwargs` takes in under a name that means something else already, as
  that of a positional-only parameter, stands under `**`: it hides nothing from rules and limits.
- An argument error is one that Python raised before the function's body ran: it has no frame of the
  function in its traceback, and the arguments really do not bind.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from agent_saga.plugins.callables import is_async_callable, parameters_of, refuse_generators

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_PLAIN = (str, int, float, Decimal)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
KEY: Final = "idempotency_key"


class Form:
    """How one function is called.

    Attributes:
        fn: the function.
        is_async: calling it returns an awaitable.
        names: its positional parameters, in order.
        takes_key: it can be given `idempotency_key` by keyword; key_at: where it stands among the
            positional ones.
        by_name: a call by keywords alone is recorded as it stands.
        hidden: names that do not mean a parameter of their own when they come by keyword.
        defaults: the plain default values by name; a call that leaves them out means them.
        accepts: the names that it can be given by keyword; None when that cannot be known.
        declares: the names of all its parameters; None when they cannot be known.
    """

    __slots__ = (
        "accepts",
        "by_name",
        "declares",
        "defaults",
        "fn",
        "hidden",
        "is_async",
        "key_at",
        "names",
        "takes_key",
    )

    def __init__(self, fn: Callable[..., Any], kind: str = "tool") -> None:
        refuse_generators(kind, name_of(fn), fn)
        self.fn = fn
        self.is_async = is_async_callable(fn)
        parameters = parameters_of(fn)
        self.names = tuple([n for n, p in parameters.items() if p.kind in _POSITIONAL])
        self.accepts = _accepted(parameters)
        self.declares = _declared(parameters)
        self.defaults = {
            name: parameter.default
            for name, parameter in parameters.items()
            if isinstance(parameter.default, _PLAIN) and name != KEY
        }
        self.hidden = _hidden(parameters)
        self.by_name = not (self.defaults or self.hidden)
        self.takes_key = KEY in parameters and parameters[KEY].kind in _NAMED
        self.key_at = self.names.index(KEY) if KEY in self.names else sys.maxsize

    def named(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, skip: int = 0
    ) -> dict[str, Any]:
        """Return the arguments by name, as they are recorded, judged and bound to approvals.

        Args:
            args: the positional arguments.
            kwargs: the keyword arguments.
            skip: so many leading parameters (`self`) are not among them.
        """
        if self.hidden and not self.hidden.isdisjoint(kwargs):
            kwargs = self._apart(kwargs)
        if not args:
            return {**self.defaults, **kwargs}
        names = self.names[skip:] if skip else self.names
        by_name = {**self.defaults, **dict(zip(names, args, strict=False))}
        if len(args) > len(names):
            by_name["*"] = list(args[len(names) :])
        by_name.update(kwargs)
        return by_name

    def _apart(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        hidden = {name: value for name, value in kwargs.items() if name in self.hidden}
        return {**{n: v for n, v in kwargs.items() if n not in hidden}, "**": hidden}

    def with_key(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], key: str
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return a call's arguments with an idempotency key, unless the caller gave one."""
        if kwargs.get(KEY) is not None:
            return args, kwargs
        at = self.key_at
        if at >= len(args):
            return args, {**kwargs, KEY: key}
        return (args if args[at] is not None else (*args[:at], key, *args[at + 1 :])), kwargs


def _accepted(parameters: Mapping[str, inspect.Parameter]) -> frozenset[str] | None:
    if not parameters:
        return None
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return None
    return frozenset([n for n, p in parameters.items() if p.kind in _NAMED])


def _hidden(parameters: Mapping[str, inspect.Parameter]) -> frozenset[str]:
    if parameters and not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return frozenset()  # Python refuses such a call
    only = [n for n, p in parameters.items() if p.kind is inspect.Parameter.POSITIONAL_ONLY]
    return frozenset(["*", "**", *only])


def _declared(parameters: Mapping[str, inspect.Parameter]) -> frozenset[str] | None:
    if any(p.kind in _OPEN for p in parameters.values()):
        return None
    return frozenset(parameters)


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name of a function, of what a partial wraps, or of an object's class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__


def never_ran(
    fn: Callable[..., Any],
    error: BaseException,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> bool:
    """Say whether an error is Python's refusal of the arguments, before the body ran.

    Args:
        fn: the function that was called.
        error: what the call raised, with the traceback as it stood where the call was made.
        args: the positional arguments of the call.
        kwargs: its keyword arguments.
    """
    if not isinstance(error, TypeError):
        return False
    trace = error.__traceback__
    if trace is None or trace.tb_next is not None:
        return False
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        return True
    except ValueError:
        return False
    return False


def selected(accepts: Container[str], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the offered arguments that a function asks for by name."""
    return {name: value for name, value in offered.items() if name in accepts}

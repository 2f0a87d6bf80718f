"""What a limit counts apart: one count for each tool, for each value of an argument, or both.

Rules of this part:

- A scope is a function of a `CallView` that answers with a text; calls with the same text share one
  count. A call without the argument, or with a value that is no text and no number, cannot be
  counted, which refuses it.
- `5` and `"5"` are one value: a model must not get a second allowance by quoting.
- Texts of different calls never run together: what is not plain is quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from agent_saga.controls import given
from agent_saga.controls.amounts import number_of, text_of
from agent_saga.controls.control import CallView
from agent_saga.errors import ConfigurationError

__all__ = ["Scope", "by_arg", "by_tool", "combine"]

Scope: TypeAlias = Callable[[CallView], str]
_ABSENT: Final = object()
_PLAIN: Final = re.compile(r"[\w.:@+-]+", re.ASCII)


def arguments_of(scope: Scope | None) -> frozenset[str] | None:
    """Return the arguments by which a scope tells calls of one tool apart; None if unknown."""
    if scope is None or scope is by_tool:
        return frozenset()
    reads: frozenset[str] | None = getattr(scope, "_agent_saga_reads", None)
    return reads


def by_tool(call: CallView) -> str:
    """Count each tool apart."""
    return f"tool={_quoted(call.tool)}"


def by_arg(arg: str) -> Scope:
    """Return a scope that counts each value of an argument apart.

    Args:
        arg: the argument's name, for example "customer_id".
    """
    given.name("The argument of by_arg", arg)
    head = f"{arg}="

    def scope(call: CallView) -> str:
        value = call.arguments.get(arg, _ABSENT)
        if type(value) is str and value.isascii() and value.isidentifier():
            return head + value  # plain, as most are
        if value is _ABSENT:
            raise LookupError(f"the call does not name its argument {arg!r}")
        return head + _quoted(_value(value))

    scope.__name__ = f"by_arg({arg!r})"
    return _reading(scope, frozenset([arg]))


def combine(*scopes: Scope) -> Scope:
    """Return a scope that counts each combination apart, for example of tool and region.

    Raises:
        ConfigurationError: fewer than two scopes, or one that is no function.
    """
    if len(scopes) < 2 or not all(callable(scope) for scope in scopes):
        raise ConfigurationError("combine takes two scopes or more: combine(by_tool, by_arg('x')).")

    def scope(call: CallView) -> str:
        return ", ".join([one(call) for one in scopes])

    reads = [arguments_of(one) for one in scopes]
    known = [one for one in reads if one is not None]
    return _reading(scope, frozenset().union(*known)) if len(known) == len(reads) else scope


def _reading(scope: Scope, arguments: frozenset[str]) -> Scope:
    """Mark a scope with the arguments on which alone it depends, beside the tool."""
    vars(scope)["_agent_saga_reads"] = arguments
    return scope


def _value(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return text_of(number_of(value))
    except (TypeError, ValueError):
        raise TypeError(f"a {type(value).__name__} tells no scope") from None


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)

"""Whether two tools of one name are the same tool: a declaration by name is given for one.

Rules of this part:

- A tool may stand in several places: it is the same object, an equal one, or it calls the same
  function. A function that is made anew is the same where its code and all that it holds are.
- What cannot be compared is another tool.
"""

from __future__ import annotations

import functools
import types
from typing import Any, TypeVar

T = TypeVar("T")


def itself(tool: T) -> T:
    """Return a tool as what tells it from others of its name."""
    return tool


def same(one: object, other: object) -> bool:
    """Say whether two tools, or the functions behind them, are the same."""
    if one is other or _equal(one, other):
        return True
    if isinstance(one, functools.partial) and isinstance(other, functools.partial):
        return same(one.func, other.func) and _all_same(
            [*one.args, sorted(one.keywords), *map(one.keywords.get, sorted(one.keywords))],
            [*other.args, sorted(other.keywords), *map(other.keywords.get, sorted(other.keywords))],
        )
    if isinstance(one, types.FunctionType) and isinstance(other, types.FunctionType):
        return one.__code__ == other.__code__ and _all_same(_held(one), _held(other))
    return False


def _held(fn: types.FunctionType) -> list[Any]:
    """Return what a function that is made anew may hold, beside its code."""
    held = [_contents(cell) for cell in fn.__closure__ or ()]
    return [*held, fn.__defaults__, fn.__kwdefaults__]


def _contents(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet: what it will be is equal to nothing
        return object()


def _all_same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(
        one is other or _equal(one, other) for one, other in zip(some, others, strict=True)
    )


def _equal(one: object, other: object) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:
        return False

"""Finding the tool nodes of a graph, also those that stand inside something else.

Rules of this part:

- A node may be a sequence, a binding (`with_config`, `with_retry`, `with_fallbacks`), a graph, or a
  function that holds the tool node: all of them are looked into, and a tool node that is found is
  the one that runs.
- Functions are looked into as far as what they hold or name from outside themselves; those of the
  frameworks are not. What a function makes when it is called, nobody finds: see `unseen`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

_FRAMEWORKS: Final = (
    "langchain",
    "langchain_core",
    "langgraph",
    "pydantic",
    "agent_saga_langgraph",
)
_HOLDS_NONE: Final = (str, bytes, int, float, bool, type, ModuleType, BaseTool)
_LARGEST: Final = 1000
"""A container of more is data."""


def tool_nodes(graph: Any) -> list[ToolNode]:
    """Return every tool node of a graph that can be found, each once."""
    found: dict[int, ToolNode] = {}
    seen: dict[int, Any] = {}
    left = [graph]
    while left:
        one = left.pop()
        if one is None or isinstance(one, _HOLDS_NONE) or id(one) in seen:
            continue
        seen[id(one)] = one  # kept, so that no other object gets its id meanwhile
        if isinstance(one, ToolNode):
            found[id(one)] = one
        else:
            left += _inside(one)
    return list(found.values())


def _inside(one: Any) -> Iterator[Any]:
    """Yield what may hold a tool node in its turn."""
    if isinstance(one, Pregel):
        yield from (node.bound for node in one.nodes.values())
    elif isinstance(one, Mapping):
        yield from one.values() if len(one) <= _LARGEST else ()
    elif isinstance(one, (list, tuple, set, frozenset)):
        yield from one if len(one) <= _LARGEST else ()
    elif isinstance(one, functools.partial):
        yield from (one.func, *one.args, *one.keywords.values())
    elif isinstance(one, MethodType):
        yield from (one.__func__, one.__self__, *_attributes(one.__self__))
    elif isinstance(one, FunctionType):
        yield from _named(one)
    elif isinstance(one, Runnable) or callable(one):
        yield from _attributes(one)
        yield getattr(type(one), "__call__", None)  # noqa: B004 - to look into it


def _attributes(one: Any) -> Iterator[Any]:
    yield from getattr(one, "__dict__", {}).values()
    for cls in type(one).__mro__:
        for name in cls.__dict__.get("__slots__", ()):
            yield getattr(one, name, None)


def _named(function: FunctionType) -> Iterator[Any]:
    """Yield what a function of the user's takes from outside itself."""
    yield getattr(function, "__wrapped__", None)
    if str(function.__module__).partition(".")[0] in _FRAMEWORKS:
        return
    try:
        names = inspect.getclosurevars(function)
    except (TypeError, ValueError):  # nothing that can be looked into
        return
    yield from names.nonlocals.values()
    yield from names.globals.values()

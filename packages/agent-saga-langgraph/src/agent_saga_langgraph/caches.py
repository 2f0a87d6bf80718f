"""Nodes whose results LangGraph keeps in a cache: no effect may come from one.

Rules of this part:

- A cached result is given again without the node being run: also after its effect was undone, on
  any thread, in any process. The state would tell of what the world does not have. So in a node
  with a cache policy a call that is no read is refused before its effect.
- The same holds for what runs inside such a node.
- A graph does not tell whether a task that it calls (`@task`) is cached: an effect in one is warned
  of where the graph has a cache at all.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

from langgraph.pregel import Pregel

from agent_saga.errors import ConfigurationError
from agent_saga_langgraph.place import here

log = logging.getLogger("agent_saga.langgraph")
_warned: set[str] = set()


class Cached(NamedTuple):
    """What of the graphs that run is cached.

    Attributes:
        nodes: the names of nodes with a cache policy.
        tasks: tasks that are called may be cached.
    """

    nodes: frozenset[str] = frozenset()
    tasks: bool = False


_NOTHING = Cached()
_cached: ContextVar[Cached] = ContextVar("agent_saga_langgraph_cached", default=_NOTHING)


@contextlib.contextmanager
def caching(graph: Any) -> Iterator[None]:
    """Know, in what runs inside, what of a graph is cached."""
    before, own = _cached.get(), _found(graph)
    token = _cached.set(Cached(before.nodes | own.nodes, before.tasks or own.tasks))
    try:
        yield
    finally:
        _cached.reset(token)


def _found(graph: Any) -> Cached:
    if not isinstance(graph, Pregel):
        return Cached()
    nodes, tasks = set(), False
    for one in [graph, *[inner for _, inner in graph.get_subgraphs(recurse=True)]]:
        if getattr(one, "cache", None) is None:
            continue
        every = getattr(one, "cache_policy", None) is not None
        own = dict(getattr(one, "nodes", None) or {})
        nodes |= {name for name, node in own.items() if every or node.cache_policy is not None}
        tasks = True
    return Cached(frozenset(nodes), tasks)


def check_not_cached(tool: str) -> None:
    """Refuse a call whose result, or whose node's, would be given again from a cache.

    Args:
        tool: the tool's name; it is no read.

    Raises:
        ConfigurationError: so it is.
    """
    cached = _cached.get()
    place = here() if cached.nodes or cached.tasks else None
    if place is None:
        return
    kept = [turn.node for turn in place.turns if turn.node in cached.nodes]
    if kept:
        raise ConfigurationError(
            f"{tool} was called in the node {kept[0]!r}, which has a cache policy; it did not run. "
            "Its result would be given again after the effect was undone, and in other runs "
            "without any effect.",
            fix="Take the cache policy off that node, or the call out of it.",
        )
    if cached.tasks and any(turn.index < -1 for turn in place.turns) and tool not in _warned:
        _warned.add(tool)
        log.warning(
            "%s was called in a task of a graph that has a cache. If that task has a cache policy, "
            "its result is given again after the effect was undone. (Said once.)",
            tool,
        )

"""Nodes whose results LangGraph keeps in a cache: no effect may come from one.

Rules of this part:

- A cached result is given again without the node being run: also after its effect was undone, on
  any thread, in any process. The state would tell of what the world does not have. So in a node
  with a cache policy a call that is no read is refused before its effect.
- The same holds for what runs inside such a node, and for tasks that are called (`@task`).
- Nobody sees the caches of graphs that are made while a run goes on, as one that a node compiles.
  So a run is handed a cache in the place of all others: it keeps what the graphs that are known
  keep, and nothing else. LangGraph takes it from a key of its configuration that is not promised;
  tests see to it.
- A graph whose run is no boundary, inside one of the program, has its caches. There the running
  task itself says whether its result is kept, under a key that is not promised either; what tasks
  are round it is noted when something is called in them.
- Where calls of tasks cannot be noted (see `called`), an effect in one is warned of.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.cache.base import BaseCache, FullKey, Namespace
from langgraph.pregel import Pregel
from langgraph.pregel.protocol import PregelProtocol

from agent_saga.errors import ConfigurationError
from agent_saga_langgraph.place import here
from agent_saga_langgraph.witness import Turn

log = logging.getLogger("agent_saga.langgraph")
_warned: set[str] = set()
_KEY: Final = "__pregel_cache"
_CALL: Final = "__pregel_call"
_TASKS: Final = ""


class Cached(NamedTuple):
    """What of the graphs that run is cached.

    Attributes:
        caches: the caches of nodes with a cache policy, by name, and of tasks by an empty name.
        every: every task is cached, whatever its own policy says.
    """

    caches: Mapping[str, Any] = {}
    every: bool = False


_NOTHING = Cached()
_cached: ContextVar[Cached] = ContextVar("agent_saga_langgraph_cached", default=_NOTHING)

_within: ContextVar[tuple[str, ...]] = ContextVar("agent_saga_langgraph_kept", default=())


@contextlib.contextmanager
def caching(graph: Any) -> Iterator[None]:
    """Know, in what runs inside, what of a graph is cached."""
    before, own = _cached.get(), _found(graph)
    token = _cached.set(Cached({**own.caches, **before.caches}, before.every or own.every))
    try:
        yield
    finally:
        _cached.reset(token)


def with_known_caches(graph: Any, config: RunnableConfig | None) -> RunnableConfig | None:
    """Return a run's configuration, in which nothing is cached but what `caching` knows of.

    A graph that runs elsewhere is told nothing: its server has caches of its own.
    """
    if isinstance(graph, PregelProtocol) and not isinstance(graph, Pregel):
        return config
    given, known = config or {}, _cached.get().caches
    cache = KnownCaches(known) if known else None
    return {**given, "configurable": {**(given.get("configurable") or {}), _KEY: cache}}


def _found(graph: Any) -> Cached:
    if not isinstance(graph, Pregel):
        return _NOTHING
    caches, every = dict[str, Any](), False
    for one in [graph, *[inner for _, inner in graph.get_subgraphs(recurse=True)]]:
        cache = getattr(one, "cache", None)
        if cache is None:
            continue
        whole = getattr(one, "cache_policy", None) is not None
        every = every or whole
        nodes = dict(getattr(one, "nodes", None) or {})
        names = [name for name, node in nodes.items() if whole or node.cache_policy is not None]
        for name in [*names, _TASKS]:
            caches.setdefault(name, cache)
    return Cached(caches, every)


class KnownCaches(BaseCache[Any]):
    """The caches of the graphs that are known; nothing of other graphs is kept or given.

    Args:
        caches: by the name of the node; that of tasks by an empty one.
    """

    def __init__(self, caches: Mapping[str, BaseCache[Any]]) -> None:
        super().__init__()
        self._caches = caches

    def _each(self, keys: Iterable[FullKey]) -> Iterator[tuple[BaseCache[Any], list[FullKey]]]:
        """Yield the caches that keys belong to, each with its own."""
        own: dict[int, tuple[BaseCache[Any], list[FullKey]]] = {}
        for key in keys:
            cache = self._caches.get(_name(key[0]))
            if cache is not None:
                own.setdefault(id(cache), (cache, []))[1].append(key)
        yield from own.values()

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """Return what is kept."""
        return {k: v for cache, own in self._each(keys) for k, v in cache.get(own).items()}

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """Return what is kept."""
        found: dict[FullKey, Any] = {}
        for cache, own in self._each(keys):
            found.update(await cache.aget(own))
        return found

    def set(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        """Keep what may be kept."""
        for cache, own in self._each(pairs):
            cache.set({key: pairs[key] for key in own})

    async def aset(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        """Keep what may be kept."""
        for cache, own in self._each(pairs):
            await cache.aset({key: pairs[key] for key in own})

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Forget what is kept."""
        for cache in {id(one): one for one in self._caches.values()}.values():
            cache.clear(namespaces)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Forget what is kept."""
        for cache in {id(one): one for one in self._caches.values()}.values():
            await cache.aclear(namespaces)


def _name(namespace: Namespace) -> str:
    """Return the node's name that stands in a namespace; a task that is called has none there."""
    return namespace[2] if len(namespace) > 2 else _TASKS


def note_kept() -> None:
    """Note, for what is called in the running task, that its result is kept; see above."""
    name = _kept_task()
    if name is not None and name not in _within.get():
        _within.set((*_within.get(), name))


def _kept_task() -> str | None:
    """Return the running task's name, if LangGraph keeps its result."""
    call = (ensure_config().get("configurable") or {}).get(_CALL)
    given = getattr(call, "args", ())
    task = given[0]() if given and isinstance(given[0], weakref.ref) else None
    if getattr(task, "cache_key", None) is None:
        return None
    loop = getattr(getattr(call, "keywords", {}).get("schedule_task"), "__self__", None)
    return str(getattr(task, "name", "")) if getattr(loop, "cache", _CALL) is not None else None


def check_not_cached(tool: str, *, known: bool) -> None:
    """Refuse a call whose result, or whose node's, would be given again from a cache.

    Args:
        tool: the tool's name; it is no read.
        known: the run is a boundary, or part of one, that knows the caches of its graph.

    Raises:
        ConfigurationError: so it is.
    """
    if not known:
        note_kept()
        if _within.get():
            raise _refused(tool, "node", _within.get()[0])
        return
    cached = _cached.get()
    place = here() if cached.caches else None
    if place is None:
        return
    kept = [turn.node for turn in place.turns if turn.node in cached.caches]
    called, unknown = _called(place.turns, every=cached.every)
    if kept or called:
        raise _refused(tool, "node" if kept else "task", [*kept, *called][0])
    if unknown and tool not in _warned:
        _warned.add(tool)
        log.warning(
            "%s was called in a task of a graph that has a cache. If that task has a cache policy, "
            "its result is given again after the effect was undone. (Said once.)",
            tool,
        )


def _refused(tool: str, kind: str, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{tool} was called in the {kind} {name!r}, which has a cache policy; it did not run. Its "
        "result would be given again after the effect was undone, and in other runs without any "
        "effect.",
        fix=f"Take the cache policy off that {kind}, or the call out of it.",
    )


def _called(turns: Sequence[Turn], *, every: bool) -> tuple[list[str], bool]:
    """Return the called tasks of a place whose results are kept, and whether others may be."""
    kept, unknown = [], False
    for outer, turn in itertools.pairwise(turns):
        if turn.index < -1:
            call = outer.calls.get(-2 - turn.index)
            unknown = unknown or call is None
            if every or (call is not None and call.cached):
                kept.append(turn.node)
    return kept, unknown

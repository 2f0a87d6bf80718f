"""A pytest plugin that takes one guarantee's guard out of the code.

Rules of this part:

- The guard is replaced before any test is collected: on its owner, and under every name by which
  a loaded module of agent_saga already holds it.
- What stands in has the guard's kind (plain, coroutine, generator, async generator, property,
  static or class method), so that only the judgement is gone.
- Processes that a test starts lose the guard too: they inherit the id in the environment and
  `guard_site/sitecustomize.py` on their path. One that is started with an environment of its own,
  or isolated, keeps it.

Called by `tools.guards`, as `pytest -p tools.without_guard --guarantee ID --without-guard ID`.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tools import guarantees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

VARIABLE = "AGENT_SAGA_TEST_WITHOUT_GUARD"
SITE = Path(__file__).resolve().parent / "guard_site"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add both options."""
    group = parser.getgroup("guarantees")
    group.addoption("--guarantee", metavar="ID", help="only the tests bound to this guarantee")
    group.addoption("--without-guard", metavar="ID", help="take out the guard of this guarantee")


def pytest_configure(config: pytest.Config) -> None:
    """Take out the guard, here and in processes to come."""
    wanted = config.getoption("--without-guard")
    if wanted:
        os.environ[VARIABLE] = wanted
        inherited = os.environ.get("PYTHONPATH", "")
        paths = [str(SITE), str(guarantees.ROOT), *filter(None, [inherited])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        remove(wanted)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that are bound to the chosen guarantee."""
    wanted = config.getoption("--guarantee")
    if wanted:
        kept = [item for item in items if wanted in _ids(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def remove(wanted: str) -> None:
    """Replace the guard of a guarantee in this process.

    Args:
        wanted: the guarantee's id.

    Raises:
        KeyError: when there is no such guarantee.
    """
    entry = guarantees.load()[wanted]
    owner, name = guarantees.resolve(entry.guard)
    guard = inspect.getattr_static(owner, name)
    stand_in = _like(guard, entry.without)
    for holder, held in [(owner, name), *_holders(guard)]:
        setattr(holder, held, stand_in)


def _ids(item: pytest.Item) -> set[str]:
    return {str(mark.args[0]) for mark in item.iter_markers("guarantee")}


def _holders(guard: Any) -> Iterator[tuple[ModuleType, str]]:
    """Yield every name by which a loaded module of agent_saga holds the guard."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and module.__name__.startswith("agent_saga"):
            for name, value in list(vars(module).items()):
                if value is guard:
                    yield module, name


def _like(guard: Any, without: dict[str, Any]) -> Any:
    """Return what stands in for a guard, of the same kind."""
    if isinstance(guard, property):
        return property(_plain(guard.fget, without))
    if isinstance(guard, staticmethod | classmethod):
        return type(guard)(_like(guard.__func__, without))
    if inspect.iscoroutinefunction(guard):
        return _coroutine(guard, without)
    if inspect.isasyncgenfunction(guard):
        return _async_generator(guard)
    if inspect.isgeneratorfunction(guard):
        return _generator(guard, without)
    return _plain(guard, without)


def _answer(guard: Callable[..., Any], without: dict[str, Any]) -> Callable[..., Any]:
    """Return a function of the guard's call arguments that gives the stand-in's answer."""
    if "argument" in without:
        signature = inspect.signature(guard)
        return lambda *a, **k: signature.bind(*a, **k).arguments[without["argument"]]
    if "calls" in without:
        chosen: Callable[..., Any] = getattr(*guarantees.resolve(without["calls"]))
        return chosen
    if "raises" in without:
        error = getattr(*guarantees.resolve(without["raises"]))
        return lambda *_a, **_k: _raise(error("The guard was taken out."))
    return lambda *_a, **_k: without.get("returns")


def _raise(error: BaseException) -> None:
    raise error


def _plain(guard: Any, without: dict[str, Any]) -> Callable[..., Any]:
    answer = _answer(guard, without)

    @functools.wraps(guard)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return answer(*args, **kwargs)

    return stand_in


def _coroutine(guard: Any, without: dict[str, Any]) -> Callable[..., Any]:
    answer = _answer(guard, without)

    @functools.wraps(guard)
    async def stand_in(*args: Any, **kwargs: Any) -> Any:
        return answer(*args, **kwargs)

    return stand_in


def _generator(guard: Any, without: dict[str, Any]) -> Callable[..., Any]:
    answer = _answer(guard, without)

    @functools.wraps(guard)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        yield from ()
        return answer(*args, **kwargs)

    return stand_in


def _async_generator(guard: Any) -> Callable[..., Any]:
    @functools.wraps(guard)
    async def stand_in(*_args: Any, **_kwargs: Any) -> Any:
        return
        yield

    return stand_in

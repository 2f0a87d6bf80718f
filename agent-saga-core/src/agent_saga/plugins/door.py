"""Thin doors: import paths inside `agent_saga` that lead to separately installed packages.

Rules of this part:

- The door `agent_saga.adapters.langgraph` leads to the package `agent_saga_langgraph` of the
  distribution `agent-saga-langgraph`: both names follow from the door's last part.
- A door holds nothing of its own: every name is the package's own object, asked for when used.
- A package that is not installed is an `ImportError`. Its message names what installs it only if
  this project publishes it: the name of a package that is not released is free, and whoever takes
  it would run in our users' processes. Such a door says so, and what to do instead.
- A package that is installed and broken raises its own error, unchanged.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

__all__ = ["open_door"]


_Door = tuple["Callable[[str], Any]", "Callable[[], list[str]]", list[str]]


def open_door(door: str, *, unreleased: str | None = None) -> _Door:
    """Return the `__getattr__`, `__dir__` and `__all__` of a door module.

    Args:
        door: the door's full name, for example "agent_saga.adapters.langgraph".
        unreleased: the vendor's name, where the package behind the door is not released yet.

    Raises:
        ImportError: the package behind the door is not installed; the message says what to do.
    """
    package = _package_behind(door, unreleased)

    def names() -> list[str]:
        public = getattr(package, "__all__", None)
        return sorted(n for n in dir(package) if n[0] != "_") if public is None else list(public)

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {door!r} has no attribute {name!r}")
        return getattr(package, name)

    return find, names, names()


def _package_behind(door: str, unreleased: str | None) -> ModuleType:
    package = f"agent_saga_{door.rpartition('.')[2]}"
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        told = _to_install(door, package) if unreleased is None else _to_do(door, unreleased)
        raise ImportError(told, name=package) from None


def _to_install(door: str, package: str) -> str:
    distribution = package.replace("_", "-")
    return (
        f"{door} needs the package {distribution}, which is not installed.\n"
        f"  pip install {distribution}"
    )


def _to_do(door: str, vendor: str) -> str:
    return (
        f"{door} is not released yet: this project publishes no connector for {vendor}, and there "
        "is nothing to install.\n"
        f"  Wrap your own function that calls {vendor}: @kit.tool('COMPENSABLE'), with an undo and "
        "a prober."
    )

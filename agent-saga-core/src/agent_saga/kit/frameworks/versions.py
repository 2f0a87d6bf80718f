"""Which versions of a framework a package works with.

Rules of this part:

- It imports no framework: it reads the versions of what is installed.
- A version outside the range is refused by name, with the command that installs another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata
from typing import TypeAlias

from agent_saga.errors import ConfigurationError

Bounds: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The first version that works, and the first that does not."""


def check(package: str, ranges: Mapping[str, Bounds]) -> None:
    """Refuse frameworks that are too old, too new, or not installed.

    Args:
        package: the distribution that needs them.
        ranges: the bounds of each, by distribution.

    Raises:
        ConfigurationError: one of them is not in its range.
    """
    for name, bounds in ranges.items():
        found = _installed(name)
        if found is None or not bounds[0] <= _numbers(found) < bounds[1]:
            raise _unfit(package, name, bounds, found)


def text(bounds: Bounds) -> str:
    """Return a range as requirements write it."""
    low, high = (".".join(map(str, bound)) for bound in bounds)
    return f">={low},<{high}"


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release.group().split("."))) if release else ()


def _unfit(package: str, name: str, bounds: Bounds, found: str | None) -> ConfigurationError:
    what = f"{name} {found} is installed" if found else f"{name} is not installed"
    return ConfigurationError(
        f"{package} needs {name}{text(bounds)}, and {what}.",
        fix=f'pip install "{name}{text(bounds)}"',
    )

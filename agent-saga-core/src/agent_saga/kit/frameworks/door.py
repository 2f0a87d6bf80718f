"""A framework package's public door: its names are loaded when they are first used.

Rules of this part:

- Importing the package loads no framework. The first name that is used does, and before that a
  version that the package does not work with is refused.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from agent_saga.kit.frameworks.versions import Bounds, check


def found(package: str, homes: Mapping[str, str], ranges: Mapping[str, Bounds], name: str) -> Any:
    """Return a name of a package's door, and keep it there; for the door's `__getattr__`.

    Args:
        package: the package's import name.
        homes: the module that each name lives in; relative to the package when it begins with a
            dot.
        ranges: see `versions.check`.
        name: what is looked for.

    Raises:
        AttributeError: the door has no such name.
        ConfigurationError: the framework is not installed in a version that the package works with.
    """
    home = homes.get(name)
    if home is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    check(package.replace("_", "-"), ranges)
    value = getattr(importlib.import_module(home, package), name)
    setattr(sys.modules[package], name, value)
    return value

"""Checks an environment that holds built wheels: run it with that environment's Python.

Rules of this part:

- The code comes from site-packages, not from a source tree.
- With a distribution's name: nothing is installed but it, its declared dependencies, and what an
  environment begins with.

Called by the session `wheels`, as a file, so that the workspace is not on the path.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module, metadata
from pathlib import Path

_BEGINNINGS = {"pip", "setuptools", "wheel", "colorama"}


def main(arguments: list[str]) -> int:
    """Check this project's installed packages and one's dependencies; return the exit code."""
    wrong = [
        f"{name} was loaded from {place}, which is no site-packages"
        for name, place in _places()
        if "site-packages" not in place.parts
    ]
    if arguments:
        wrong += _strangers(arguments[0])
    print("\n".join(wrong) or "Installed as a user would have it.")
    return 1 if wrong else 0


def _places() -> list[tuple[str, Path]]:
    names = ["agent_saga"]
    names += [dist.name.replace("-", "_") for dist in metadata.distributions() if _is_package(dist)]
    return [(name, Path(str(import_module(name).__file__)).resolve()) for name in names]


def _is_package(dist: metadata.Distribution) -> bool:
    return dist.name.startswith("agent-saga-") and dist.name != "agent-saga-core"


def _strangers(distribution: str) -> list[str]:
    requirements = metadata.requires(distribution) or []
    wanted = {_name(line) for line in requirements if "extra ==" not in line}
    present = {dist.name.lower() for dist in metadata.distributions()}
    alien = present - wanted - _BEGINNINGS - {distribution}
    absent = wanted - present
    return [f"{name} is installed and nothing asks for it" for name in sorted(alien)] + [
        f"{name} is required and not installed" for name in sorted(absent)
    ]


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

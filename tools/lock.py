"""Writes the files in `constraints/`: the exact versions that the workspace is tested with.

Rules of this part:

- `latest.txt` pins every tool and dependency, for all supported Pythons at once; every environment
  of `run.py` and the noxfile that holds no agent framework is made with it. `lowest.txt` pins the
  oldest direct dependencies that the packages claim to work with.
- Each framework's package has two such files of its own, named after it: what one framework
  requires may conflict with another.
- No line names a registry, a path or one of our own packages.

Called as `python -m tools.lock [PACKAGE …]` where uv is installed, after a dependency has changed:
for the named packages alone, or for all of the workspace.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tools import places

_TOOLS = ("test", "typing", "build")


def main(arguments: list[str]) -> int:
    """Write the files; return 0, 2 for an unknown package, or raise when uv finds no solution."""
    known = {Path(place).name: place for place in (places.SHARED, *places.frameworks())}
    unknown = set(arguments) - set(known)
    if unknown:
        print(f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}")
        return 2
    for name in arguments or known:
        _write(known[name], "highest", lowest=False)
        _write(known[name], "lowest-direct", lowest=True)
    return 0


def _write(place: str, resolution: str, *, lowest: bool) -> None:
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--no-annotate", "--no-header", "--resolution", resolution]
    for package in packages(place):
        command.append(f"{package}/pyproject.toml")
    for group in groups(place, lowest=lowest):
        command += ["--group", group]
    done = subprocess.run(command, cwd=places.ROOT, check=True, capture_output=True, text=True)
    pins = [line for line in done.stdout.splitlines() if "==" in line]
    path = places.constraints(place, lowest=lowest)
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([f"# {_MADE_BY}", *pins]) + "\n", "utf-8")


def packages(place: str) -> list[str]:
    """Return the packages that are installed in a place."""
    if place == places.SHARED:
        return list(places.shared())
    return [places.CORE, places.TESTING, place]


def groups(place: str, *, lowest: bool) -> list[str]:
    """Return the names of the groups of a place; those of the tools only at their latest."""
    own = {Path(package).name for package in packages(place)}
    if place != places.SHARED:
        own = {Path(place).name}
    named = tomllib.loads((places.ROOT / "pyproject.toml").read_text("utf-8"))
    every = list(named["dependency-groups"])
    if lowest:
        return ["test", *[name for name in every if name in own]]
    tools = every if place == places.SHARED else _TOOLS
    return [n for n in every if n in own or (n in tools and not n.startswith("agent-saga-"))]


_MADE_BY = "Written by python -m tools.lock; do not edit."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

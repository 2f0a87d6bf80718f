"""Which packages this workspace has, and which of them can be installed together.

Rules of this part:

- A package for an agent framework says so in its own pyproject.toml, by `framework = true` under
  `[tool.agent-saga]`. What frameworks require may conflict, so each has places of its own: files in
  `constraints/` named after the package, and environments that hold no other framework.
- All other packages share one place, `workspace`.
- A page or program that uses a framework's package belongs to it, and is run and checked in its
  place; none uses two. Pages and programs without a framework belong to the workspace.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from tools import tree

ROOT = tree.ROOT
CORE = "agent-saga-core"
TESTING = "packages/agent-saga-testing"
SHARED = "workspace"
CONSTRAINTS = ROOT / "constraints"


@cache
def packages() -> tuple[str, ...]:
    """Return the folders of all packages, the core first."""
    others = sorted(f"packages/{p.parent.name}" for p in ROOT.glob("packages/*/pyproject.toml"))
    return (CORE, *others)


@cache
def frameworks() -> tuple[str, ...]:
    """Return the folders of the packages for agent frameworks."""
    return tuple(p for p in packages() if _settings(p).get("framework") is True)


def shared() -> tuple[str, ...]:
    """Return the folders of all packages that can be installed together."""
    return tuple(p for p in packages() if p not in frameworks())


def installed() -> tuple[str, ...]:
    """Return the folders of the framework packages that this environment holds."""
    names = {dist.name for dist in metadata.distributions()}
    return tuple(folder for folder in frameworks() if Path(folder).name in names)


def import_name(package: str) -> str:
    """Return the name by which a package is imported."""
    return "agent_saga" if package == CORE else Path(package).name.replace("-", "_")


def constraints(place: str, *, lowest: bool = False) -> Path:
    """Return the file that pins what is installed in a place.

    Args:
        place: `workspace`, or the folder of a framework's package.
        lowest: the oldest versions that are claimed to work, instead of the latest.
    """
    kind = "lowest" if lowest else "latest"
    name = kind if place == SHARED else f"{Path(place).name}-{kind}"
    return CONSTRAINTS / f"{name}.txt"


def place_of(chosen: Sequence[str], known: Sequence[str] | None = None) -> str:
    """Return the place that packages are installed in.

    Args:
        chosen: the packages' folders.
        known: the folders of those that are for frameworks; those of this workspace when not given.

    Raises:
        ValueError: two of them are for frameworks.
    """
    found = [package for package in chosen if package in (known or frameworks())]
    if len(found) > 1:
        raise ValueError(f"{' and '.join(found)} cannot be installed together")
    return found[0] if found else SHARED


def home_of(path: Path) -> str:
    """Return the place that a page or a program belongs to.

    Raises:
        ValueError: it uses two frameworks' packages.
    """
    inside = "/".join(path.relative_to(ROOT).parts[:2])
    if inside in frameworks():
        return inside
    used = _used(path)
    if len(used) > 1:
        raise ValueError(f"{path} uses {' and '.join(used)}, which are not installed together")
    return used[0] if used else SHARED


def programs(place: str) -> list[Path]:
    """Return the Python files outside all packages and tests that belong to a place."""
    folders = {"bench", "examples", "tools", "noxfile.py", "run.py"}
    found = [p for p in tree.files() if p.relative_to(ROOT).parts[0] in folders]
    return [path for path in found if path.suffix == ".py" and home_of(path) == place]


def typed(place: str) -> list[str]:
    """Return what is checked for types in a place."""
    if place != SHARED:
        return [f"{place}/src", *map(str, programs(place))]
    return [*[f"{package}/src" for package in shared()], *map(str, programs(place)), "tests/typing"]


def _used(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"```(?:python|console)\n.*?```", text, re.DOTALL))
        text = re.sub(r"(?m)^ *\$ pip install .*$", "", text)
    return [p for p in frameworks() if re.search(rf"\b{import_name(p)}\b", text)]


@cache
def _settings(package: str) -> dict[str, object]:
    described = tomllib.loads((ROOT / package / "pyproject.toml").read_text("utf-8"))
    found: dict[str, object] = described["tool"].get("agent-saga", {})
    return found

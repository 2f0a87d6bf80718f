"""Reads each `guarantees.toml` and finds the tests that are bound to it.

Rules of this part:

- A test is bound by the marker `guarantee("ID")`, found by reading the source: a test that is not
  collected somewhere is bound all the same.
- A guard is named `module:qualname`; it exists and can be called.
- The core has such a file, and so may every other package, beside its modules. What a framework's
  package guarantees is proven where that framework is installed.

What an entry says:

    [[guarantee]]
    id = "LIFE-1"                      # letters and a number; never used again for another sentence
    sentence = "…"                     # what a user may rely on
    level = "prevented"                # or "detected": it may happen, and is then reported
    where = "agent_saga.domain"        # the part that keeps it
    guard = "module:qualname"          # the function without which it would not hold
    without = { returns = false }      # what stands in when the guard is taken out; else one of
                                       # { argument = "name" }: that argument is returned,
                                       # { raises = "module:name" }, { calls = "module:qualname" };
                                       # without this line, None is returned

    [[not_claimed]]
    id = "NOT-1"
    sentence = "…"                     # what a user may not rely on

    [[retired]]
    id = "LIFE-2"                      # given once, and never again
    now = "LIFE-1"                     # the guarantee that says the same
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.metadata
import importlib.util
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools import places

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "agent-saga-core" / "src" / "agent_saga" / "guarantees.toml"
LEVELS = ("prevented", "detected")
_DISTRIBUTIONS = {"agent_saga": "agent-saga-core"}
STAND_INS = ("returns", "argument", "raises", "calls")


@dataclass(frozen=True)
class Guarantee:
    """One entry of the file."""

    id: str
    sentence: str
    level: str
    where: str
    guard: str
    without: dict[str, Any] = field(default_factory=dict)
    place: str = places.SHARED
    """Where its package is installed; see `tools.places`."""

    @property
    def is_here(self) -> bool:
        """Whether its package is installed in this environment."""
        module = self.where.partition(".")[0]
        if importlib.util.find_spec(module) is None:
            return False
        try:
            # Its sources alone, on the path of a clone, lack what the package needs.
            importlib.metadata.distribution(_DISTRIBUTIONS.get(module, module))
        except importlib.metadata.PackageNotFoundError:
            return False
        return True


def files() -> list[Path]:
    """Return the files of all packages, the core's first."""
    return [FILE, *sorted(ROOT.glob("packages/*/src/*/guarantees.toml"))]


def load(paths: Sequence[Path] = ()) -> dict[str, Guarantee]:
    """Return the guarantees by id.

    Args:
        paths: the files; those of all packages when not given.

    Raises:
        ValueError: when an id stands twice.
        TypeError: when an entry lacks a field or has an unknown one.
    """
    by_id: dict[str, Guarantee] = {}
    for path in paths or files():
        for entry in _read(path).get("guarantee", []):
            if entry["id"] in by_id:
                raise ValueError(f"{path.name} uses the id {entry['id']} twice")
            by_id[entry["id"]] = Guarantee(**entry, place=_place(path))
    return by_id


def _place(path: Path) -> str:
    package = "/".join(path.relative_to(ROOT).parts[:2]) if ROOT in path.parents else ""
    return package if package in places.frameworks() else places.SHARED


def not_claimed(path: Path = FILE) -> list[dict[str, str]]:
    """Return what the file says is not claimed."""
    return list(_read(path).get("not_claimed", []))


def retired(path: Path = FILE) -> dict[str, str]:
    """Return the ids that are given to no guarantee again, each with the one that says it now."""
    return {entry["id"]: entry["now"] for entry in _read(path).get("retired", [])}


@functools.cache
def bound() -> dict[str, set[Path]]:
    """Return, for every id that a marker in this workspace names, the files that name it."""
    found: dict[str, set[Path]] = {}
    for path in _sources():
        for mark in _marks(ast.parse(path.read_text("utf-8"))):
            found.setdefault(mark, set()).add(path)
    return found


def resolve(name: str) -> tuple[Any, str]:
    """Return the owner of a named object and its attribute: `getattr(*resolve(name))` is it.

    Args:
        name: `module:qualname`.

    Raises:
        ImportError, AttributeError: when there is no such thing.
    """
    module, _, qualname = name.partition(":")
    owner: Any = importlib.import_module(module)
    *path, attribute = qualname.split(".")
    for part in path:
        owner = getattr(owner, part)
    getattr(owner, attribute)
    return owner, attribute


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


def _sources() -> list[Path]:
    folders = [ROOT / "tests", *ROOT.glob("*/tests"), *ROOT.glob("packages/*/tests")]
    folders += ROOT.glob("packages/*/src")
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def _marks(tree: ast.AST) -> list[str]:
    return [
        argument.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "guarantee"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]

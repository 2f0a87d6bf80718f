"""What every framework package is from outside: its names, its versions, its registration.

    class TestShape(PackageShape):
        package = "agent_saga_myframework"
        loads = ("myframework",)
        refused = ("0.9.9", "2.0.0")
        names = frozenset({"MyApprovals"})

Rules of this part:

- All packages have the same names for the same things, with the same parameters; names of its own
  a package lists here.
- Importing a package loads no framework; the first name that is used does, and before that a
  version outside the declared range is refused, naming it.
- No private name of a framework is imported. What a package needs of that kind it asks for, and can
  do without.
"""

# ruff: noqa: D102, S101 - the cases are tests, and their names say what must hold

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from agent_saga import AgentKit, ConfigurationError
from agent_saga.kit.frameworks.versions import Bounds, text
from agent_saga.plugins.integrations import IntegrationRegistry
from agent_saga_testing.kits.conformance import Conformance

__all__ = ["PARAMETERS", "DecoratorShape", "PackageShape"]

_RUN = ("kit", "key", "on_tool_failure", "**options")
_MADE = ("semantics", "compensate", "kit", "**options")
PARAMETERS: dict[str, tuple[str, ...]] = {
    "saga_agent": ("agent", "kit", "tools", "on_tool_failure"),
    "saga_run": _RUN,
    "saga_run_sync": _RUN,
    "saga_stream": _RUN,
    "saga_stream_sync": _RUN,
    "safe_tool": ("fn", *_MADE),
    "wrap_tool": ("tool", *_MADE, "timeout", "name"),
    "wrap_tools": ("tools", "declarations", "kit"),
    "last_report": (),
    "compensable": ("compensate", "**options"),
    "read_only": ("**options",),
    "irreversible": ("**options",),
}
"""The names that every package has, with parameters that each of them takes there."""


class PackageShape(Conformance):
    """What every framework package must be from outside.

    Attributes:
        package: the name by which it is imported.
        loads: the first parts of the names of modules that importing it must not load.
        refused: versions of the framework outside its range.
        names: the names of its door beside those that all packages have.
    """

    capabilities: ClassVar[object] = None
    package: ClassVar[str]
    loads: ClassVar[Sequence[str]]
    refused: ClassVar[Sequence[str]]
    names: ClassVar[frozenset[str]] = frozenset()

    @property
    def _door(self) -> ModuleType:
        return importlib.import_module(self.package)

    @property
    def _folder(self) -> Path:
        return Path(str(self._door.__file__)).parent

    @property
    def _distribution(self) -> str:
        return self.package.replace("_", "-")

    @property
    def _name(self) -> str:
        return self._distribution.removeprefix("agent-saga-")

    @property
    def _ranges(self) -> dict[str, Bounds]:
        found: dict[str, Bounds] = importlib.import_module(f"{self.package}.versions").RANGES
        return found

    def test_the_promised_names_are_there(self) -> None:
        door = self._door
        assert set(door.__all__) == {*PARAMETERS, *self.names}
        assert all(getattr(door, name) is not None for name in door.__all__)
        assert set(dir(door)) >= set(door.__all__)
        with pytest.raises(AttributeError, match="no attribute 'saga_rum'"):
            getattr(door, "saga_rum")  # noqa: B009 - reading it is the test

    def test_its_functions_take_what_those_of_all_packages_take(self) -> None:
        for name, wanted in PARAMETERS.items():
            shown = inspect.signature(getattr(self._door, name)).parameters.values()
            taken = {f"**{p.name}" if p.kind is p.VAR_KEYWORD else p.name for p in shown}
            assert {p for p in wanted if p not in taken} == set(), name

    def test_type_checkers_are_told_of_the_same_names(self) -> None:
        tree = ast.parse(Path(str(self._door.__file__)).read_text("utf-8"))
        late = [line for node in tree.body if isinstance(node, ast.If) for line in node.body]
        told = {alias.asname for line in late for alias in getattr(line, "names", ())}
        assert told == set(self._door.__all__)

    def test_importing_it_loads_no_framework(self) -> None:
        for module in (self.package, f"{self.package}.plugin"):
            program = (
                f"import sys, {module}; print([m for m in sys.modules "
                f"if m.partition('.')[0] in {tuple(self.loads)!r}])"
            )
            assert _printed(program) == "[]"

    def test_a_version_outside_the_range_is_refused_when_a_name_is_used(self) -> None:
        name, bounds = next(iter(self._ranges.items()))
        for installed in self.refused:
            program = (
                f"from importlib import metadata; metadata.version = lambda name: {installed!r}\n"
                f"import {self.package} as door\n"
                "try:\n"
                "    door.saga_run\n"
                "except Exception as error:\n"
                "    print(error)\n"
            )
            said = f"{self._distribution} needs {name}{text(bounds)}, and {name} {installed} is"
            assert said in _printed(program)

    def test_the_ranges_are_those_of_the_package(self) -> None:
        for name, bounds in self._ranges.items():
            found = [one for one in map(_requirement, self._required()) if one[0] == name]
            assert found == [(name, set(text(bounds).split(",")))]

    def _required(self) -> list[str]:
        return metadata.requires(self._distribution) or []

    def test_it_registers_itself(self) -> None:
        plugin = importlib.import_module(f"{self.package}.plugin")
        registry = IntegrationRegistry()
        plugin.saga_register_integrations(registry)
        found = registry.find(self._name)
        framework, bounds = next(iter(self._ranges.items()))
        assert found is not None
        assert (found.package, found.supports) == (self.package, f"{framework}{text(bounds)}")
        entries = metadata.entry_points(group="agent_saga", name=self._name)
        assert [entry.load() for entry in entries] == [plugin]

    def test_the_door_in_the_core_leads_here(self) -> None:
        name = self.package.removeprefix("agent_saga_")
        door = importlib.import_module(f"agent_saga.adapters.{name}")
        assert door.saga_run is self._door.saga_run

    def test_no_private_name_of_the_framework_is_imported(self) -> None:
        assert [
            f"{path.name}: {name}"
            for path in self._folder.glob("*.py")
            for name in _imported(path, self.loads)
            if name.startswith("_")
        ] == []


class DecoratorShape(Conformance):
    """What the decorator of a framework package must be: told what a tool does in every form.

    Attributes:
        package: the name by which the package is imported.
    """

    capabilities: ClassVar[object] = None
    package: ClassVar[str]

    @property
    def _decorator(self) -> Callable[..., Any]:
        decorator: Callable[..., Any] = importlib.import_module(self.package).saga_tool
        return decorator

    def test_every_form_makes_a_step(self) -> None:
        kit, decorator = AgentKit("forms", wal="memory:"), self._decorator
        is_wrapped = importlib.import_module(f"{self.package}.tools").is_wrapped
        for made in (
            decorator("REVERSIBLE", kit=kit)(look),
            decorator(semantics="REVERSIBLE", kit=kit)(look),
            decorator(look, semantics="REVERSIBLE", kit=kit),
        ):
            assert is_wrapped(made)
            assert getattr(made, "metadata", made).name == "look"

    def test_what_a_tool_does_is_said_once(self) -> None:
        kit = AgentKit("forms", wal="memory:")
        with pytest.raises(ConfigurationError, match="said twice"):
            self._decorator("REVERSIBLE", semantics="COMPENSABLE", kit=kit)


def look(item: str) -> str:
    """Look at an item."""
    return item


def _requirement(line: str) -> tuple[str, set[str]]:
    """Return the name of a requirement and its bounds."""
    found = re.match(r"([\w.-]+)([^;]*)", line)
    return (found[1], set(found[2].strip().split(","))) if found else ("", set())


def _printed(program: str) -> str:
    done = subprocess.run(  # noqa: S603 - a program of this module's own
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _imported(path: Path, roots: Sequence[str]) -> Iterator[str]:
    """Give each part of each name that a file imports of some modules."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        module = getattr(node, "module", None) or ""
        if isinstance(node, ast.ImportFrom) and module.partition(".")[0] in roots:
            yield from module.split(".")
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from (part for name in names if name[0] in roots for part in name)

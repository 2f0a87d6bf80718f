"""Describes the public doors of the packages, to compare them with the stored contract.

Rules of this part:

- A door is a module whose `__all__` names what users may use: the core and each framework package
  have one, the testing package one for each of its parts. Each name is described by its kind and by
  what a caller can see: signatures, public methods, members, bases among public classes, an error's
  code.
- A framework package's door can be described only where the framework is installed; its contract
  lies with the package's tests.
- The description is the same on every supported Python; what differs between them is left out.
- The core's door loads its names late, which type checkers cannot follow; a stub beside it says the
  same to them.
- A change of the contract is made on purpose: this program writes it, a person reads what changed.

Called as `python -m tools.public_door` to write `tests/public_door.json`, the stub, and the
contract of each framework package that is installed.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import pkgutil
import re
import sys
from pathlib import Path
from typing import Any

from tools import places

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "public_door.json"
STUB = ROOT / "agent-saga-core" / "src" / "agent_saga" / "__init__.pyi"


def main() -> int:
    """Write the contract of all doors, and the stub."""
    _write(FILE, {name: describe(importlib.import_module(name)) for name in doors()})
    for package in places.installed():
        _write(file_of(package), describe(importlib.import_module(places.import_name(package))))
    STUB.write_text(stub(importlib.import_module("agent_saga")), "utf-8")
    print(f"Wrote {STUB}")
    return 0


def _write(path: Path, contract: dict[str, Any]) -> None:
    path.write_text(json.dumps(contract, indent=2, sort_keys=True) + "\n", "utf-8")
    print(f"Wrote {path}")


def file_of(package: str) -> Path:
    """Return the file that holds the contract of a framework package's door."""
    return ROOT / package / "tests" / "public_door.json"


def doors() -> list[str]:
    """Return the names of all public modules of what knows no framework."""
    testing = importlib.import_module("agent_saga_testing")
    parts = pkgutil.walk_packages(testing.__path__, "agent_saga_testing.")
    public = [part.name for part in parts if not part.name.rpartition(".")[2].startswith("_")]
    shown = [name for name in public if hasattr(importlib.import_module(name), "__all__")]
    return ["agent_saga", *shown]


def stub(door: Any) -> str:
    """Return the core's door as a type checker must see it.

    Args:
        door: a module that keeps the home of each late name in `_HOME`.
    """
    homes = [(vars(door)["_HOME"][name], name) for name in door.__all__]
    lines = [f"from {home} import {name} as {name}" for home, name in sorted(homes)]
    names = "".join(f'    "{name}",\n' for name in door.__all__)
    return f"# {_MADE_BY}\n\n" + "\n".join(lines) + f"\n\n__all__ = [\n{names}]\n"


def describe(door: Any) -> dict[str, Any]:
    """Return what every name of a door looks like to a caller.

    Args:
        door: a module with `__all__`.

    Raises:
        AttributeError: when a promised name does not exist.
    """
    return {name: _thing(getattr(door, name)) for name in sorted(door.__all__)}


def _thing(value: Any) -> Any:
    if isinstance(value, type):
        return _class(value)
    if callable(value):
        return {"kind": "function", "signature": _signature(value)}
    return {"kind": type(value).__name__}


def _class(value: type) -> dict[str, Any]:
    if issubclass(value, enum.Enum):
        return {"kind": "enum", "members": sorted(value.__members__)}
    described: dict[str, Any] = {"kind": "class", "bases": _bases(value)}
    if issubclass(value, BaseException):
        described["code"] = getattr(value, "code", None)
    if "__init__" in _written(value) or "__struct_fields__" in dir(value):
        described["signature"] = _signature(value)
    members = {name: _member(value, name) for name in _public(value)}
    return {**described, "members": members}


def _bases(value: type) -> list[str]:
    return [base.__name__ for base in value.__bases__ if base is not object]


def _written(value: type) -> set[str]:
    """Return the names that our own classes of the line of ancestors define."""
    ours = [base for base in value.__mro__ if base.__module__.startswith("agent_saga")]
    return {name for base in ours for name in vars(base)}


def _public(value: type) -> list[str]:
    return sorted(name for name in _written(value) if not name.startswith("_"))


def _member(owner: type, name: str) -> str:
    member = inspect.getattr_static(owner, name)
    if isinstance(member, staticmethod | classmethod):
        return f"{type(member).__name__} {_signature(member.__func__)}"
    if inspect.isfunction(member):
        return f"method {_signature(member)}"
    return "attribute"


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(…)"
    prefix = "async " if inspect.iscoroutinefunction(value) else ""
    return prefix + re.sub(r" at 0x[0-9a-f]+", "", text)


_MADE_BY = "Written by python -m tools.public_door; do not edit."


if __name__ == "__main__":
    sys.exit(main())

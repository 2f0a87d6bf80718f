"""Describes the public door of a package, to compare it with the stored contract.

Rules of this part:

- The door is what `__all__` names. Each name is described by its kind and by what a caller can see:
  signatures, public methods, members, bases among public classes, an error's code.
- The description is the same on every supported Python; what differs between them is left out.
- A change of the contract is made on purpose: this program writes the file, a person reads the
  difference.

Called as `python -m tools.public_door` to write `tests/public_door.json`.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent.parent / "tests" / "public_door.json"
DOORS = ("agent_saga", "agent_saga_testing")


def main() -> int:
    """Write the contract of all doors."""
    contract = {name: describe(importlib.import_module(name)) for name in DOORS}
    FILE.write_text(json.dumps(contract, indent=2, sort_keys=True) + "\n", "utf-8")
    print(f"Wrote {FILE}")
    return 0


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


if __name__ == "__main__":
    sys.exit(main())

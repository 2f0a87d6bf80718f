"""Reading a policy file: TOML, JSON, or YAML with the extra `yaml`.

Rules of this part:

- The ending of the name says which it is; nothing is guessed from the content.
- A number is taken as it is written, or not at all: one with more digits than a number carries,
  which would be rounded, is written as a text.
- A key that stands twice is an error in every form: the second one would silently win, and a person
  who reads the file sees the first.
- What cannot be read, or is not as `form` says, is an error that names the file, the place in it,
  and what is expected there. Nothing is taken from a file that has an error.
- A file that says nothing is an error: it is what is left of one that is being written. So is a
  file that changes while it is read. Half of a file may still be a policy; so write a new one
  beside the old one, and rename it.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.controls.policy.form import PolicyForm
from agent_saga.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["parsed", "read_policy"]

LARGEST: Final = 4 * 1024 * 1024
_YAML: Final = "tag:yaml.org,2002:"
_YAML_PLAIN: Final = {
    "bool": (re.compile(r"(?:true|false)\Z"), "tf"),
    "int": (re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"), "-+0123456789"),
    "float": (
        re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?\Z"),
        "-+.0123456789",
    ),
}
"""Booleans and numbers in YAML, as in JSON: a region called `no`, 010 and 1:30 are texts."""


def read_policy(path: Path) -> PolicyForm:
    """Return what a policy file says.

    Raises:
        ConfigurationError: it cannot be read, is of no known kind, or has an error.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise ConfigurationError(
            f"The policy {path} is of no known kind.",
            fix=f"Let its name end in one of {', '.join(_READERS)}.",
        )
    data = _bytes_of(path)
    try:
        content = read(data.decode("utf-8-sig"))
    except ConfigurationError:
        raise
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"The policy {path} is not UTF-8: {error}.") from error
    except Exception as error:
        raise ConfigurationError(f"The policy {path} cannot be read: {error}.") from error
    return parsed(content, f"the policy {path}")


def _bytes_of(path: Path) -> bytes:
    """Return what a file holds, if it is one, is not too long, and holds still.

    Raises:
        ConfigurationError: it cannot be read, or is none of this.
    """
    try:
        if not path.is_file():
            raise ConfigurationError(f"The policy {path} cannot be read: there is no such file.")
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            data = file.read(LARGEST + 1)
            after = os.stat(path)  # noqa: PTH116 - beside the one of the open file
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The policy {path} cannot be read: {getattr(error, 'strerror', '') or error}."
        ) from error
    if len(data) > LARGEST:
        raise ConfigurationError(f"The policy {path} is larger than {LARGEST} bytes.")
    if _told(before) != _told(after) or len(data) != after.st_size:
        raise ConfigurationError(
            f"The policy {path} was changed while it was read.",
            fix="Write a new file beside it and rename it, then load it again.",
        )
    if not data.strip():
        raise ConfigurationError(
            f"The policy {path} is empty.",
            fix="A policy that says nothing says version = 1.",
        )
    return data


def _told(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def parsed(content: object, what: str) -> PolicyForm:
    """Return the policy that plain data means.

    Args:
        content: what stood in the file.
        what: how messages name it.

    Raises:
        ConfigurationError: it is not as `form` says; the message names the place.
    """
    try:
        form = msgspec.convert(content, PolicyForm)
    except RecursionError as error:
        raise ConfigurationError(f"{what[0].upper()}{what[1:]} is nested too deeply.") from error
    except UnicodeError as error:
        raise ConfigurationError(
            f"{what[0].upper()}{what[1:]} holds half a character (a lone surrogate).",
            fix="Write the character itself, or both halves of its escape.",
        ) from error
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"{what[0].upper()}{what[1:]} has an error: {error}.",
            fix="See docs/how-to/own-the-policy.md for what may stand in it.",
        ) from error
    if form.version != 1:
        raise ConfigurationError(
            f"{what[0].upper()}{what[1:]} is of version {form.version}; this release reads 1."
        )
    return form


def _toml(text: str) -> object:
    import tomllib  # noqa: PLC0415 - slow to load, seldom needed

    return tomllib.loads(text, parse_float=_number)


def _json(text: str) -> object:
    return json.loads(
        text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_number
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice")
        found[key] = value
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _number(text: str) -> float:
    """Return a number as it is written.

    Raises:
        ValueError: it would be rounded, or is too large.
    """
    number = float(text)
    if text.lstrip("+-") in ("nan", "inf"):
        return number  # of TOML; whether it has a meaning is for its place to say
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large")
    if Decimal(repr(number)) != Decimal(text):
        raise ValueError(
            f"{text[:40]} has more digits than a number carries; write it as a text: '{text[:40]}'"
        )
    return number


def _yaml(text: str) -> object:
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "A policy in YAML needs the extra `yaml`, which is not installed.",
            fix="pip install 'agent-saga-core[yaml]', or write it as TOML or JSON.",
        ) from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Plain data only, every key once, and no aliases, which grow without bound."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases (*name) are not read in a policy")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            pairs = [
                (self.construct_object(key, deep=True), self.construct_object(value, deep=True))
                for key, value in node.value
            ]
            return _unique(pairs)

        def construct_yaml_float(self, node: Any) -> float:
            return _number(str(self.construct_scalar(node)))

    Loader.yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in found if tag.removeprefix(_YAML) not in _YAML_PLAIN]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for kind, (form, first) in _YAML_PLAIN.items():
        Loader.add_implicit_resolver(_YAML + kind, form, list(first))
    Loader.add_constructor(f"{_YAML}float", Loader.construct_yaml_float)
    return yaml.load(text, Loader=Loader)  # noqa: S506 - a SafeLoader


_READERS: Final[dict[str, Callable[[str], object]]] = {
    ".toml": _toml,
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
}

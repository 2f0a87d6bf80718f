"""Things by name, each with an owner; a name belongs to one thing only.

Rules of this part:

- Registering the very same thing again is harmless. Another thing under a taken name is
  `DuplicateName`, naming both owners: which of two inverses would run must never depend on the
  order of imports.
- A name can stand in a log and on a command line: not empty, printable, at most 300 characters, no
  blank at its ends.
"""

from __future__ import annotations

import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from agent_saga.errors import ConfigurationError, DuplicateName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent_saga.plugins.ownership import Owner

__all__ = ["NamedRegistry", "check_name"]

LONGEST_NAME: Final = 300

T = TypeVar("T")


class NamedRegistry(Generic[T]):
    """Names and the things that they stand for.

    Registering is safe from several threads; reading takes no lock.

    Args:
        kind: what is registered, as a noun for messages.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, T] = {}
        self._owners: dict[str, Owner] = {}
        self._lock = threading.Lock()

    def put(self, name: str, thing: T, owner: Owner) -> None:
        """Register a thing under a name.

        Raises:
            ConfigurationError: the name cannot be used as a name.
            DuplicateName: the name belongs to another thing.
        """
        check_name(self.kind, name)
        with self._lock:
            present = self._things.get(name)
            if present is not None and not self.same(present, thing):
                raise _duplicate(self.kind, name, self._owners[name], owner)
            self._things[name] = thing
            self._owners[name] = owner

    def same(self, present: T, thing: T) -> bool:
        """Say whether registering `thing` where `present` stands changes nothing."""
        return present is thing or present == thing

    def find(self, name: str) -> T | None:
        """Return the thing of this name, or None."""
        return self._things.get(name)

    def owner(self, name: str) -> Owner | None:
        """Return who registered this name, or None."""
        return self._owners.get(name)

    def as_mapping(self) -> Mapping[str, T]:
        """Return a read-only view of all names and things, which follows later registrations."""
        return MappingProxyType(self._things)

    def __contains__(self, name: object) -> bool:
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._things))

    def __len__(self) -> int:
        return len(self._things)


def check_name(kind: str, name: str) -> None:
    """Refuse a name that could not stand in a log or on a command line.

    Raises:
        ConfigurationError: the name is not text, empty, too long, or holds characters that do not
            print.
    """
    if not isinstance(name, str):
        raise ConfigurationError(f"The name of a {kind} is text, not {type(name).__name__}.")
    usable = 0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()
    if not usable:
        raise ConfigurationError(
            f"{name[:40]!r} cannot be the name of a {kind}.",
            fix=f"Use 1 to {LONGEST_NAME} printable characters without a blank at either end.",
        )


def _duplicate(kind: str, name: str, first: Owner, second: Owner) -> DuplicateName:
    if str(first) == str(second):
        return DuplicateName(
            f"The {kind} {name!r} is registered twice, both times by {first}.",
            fix="Define it once, at the top of its module: a function in which it is defined makes "
            "a new one each time it runs. Or give each one a name of its own.",
        )
    return DuplicateName(
        f"The {kind} {name!r} is registered twice: by {first} and by {second}.",
        fix="Give one of them another name, or disable one of the plugins with "
        "AGENT_SAGA_DISABLE_PLUGINS.",
    )

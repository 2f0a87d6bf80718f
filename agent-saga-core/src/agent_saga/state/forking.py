"""What a fork does to state stores: nothing of the parent's is used by the child.

Rules of this part:

- Before a fork every store lets go of what must not be inherited (an open SQLite connection whose
  locks belong to the parent); afterwards the parent goes on, and the child starts anew.
- The hooks of the operating system are installed once, when the first store is made; a store that
  nobody uses any more is forgotten by itself.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet

__all__ = ["PATIENCE", "ForkAware", "watch"]

PATIENCE: Final = 1.0
"""Seconds that a fork waits for one store to let go."""


class ForkAware(Protocol):
    """Something that must know when its process forks."""

    def before_fork(self) -> None:
        """Let go of what a child must not inherit; never raises, never waits without a bound."""

    def after_fork_in_parent(self) -> None:
        """Go on in the parent."""

    def after_fork_in_child(self) -> None:
        """Start anew in the child, where no other thread exists."""


_watched: WeakSet[ForkAware] = WeakSet()
_installed: list[bool] = []


def watch(part: ForkAware) -> None:
    """Tell `part` about every fork of this process from now on."""
    if not _installed and hasattr(os, "register_at_fork"):
        _installed.append(True)
        os.register_at_fork(
            before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
        )
    _watched.add(part)


def _before() -> None:
    for part in list(_watched):
        part.before_fork()


def _after_in_parent() -> None:
    for part in list(_watched):
        part.after_fork_in_parent()


def _after_in_child() -> None:
    for part in list(_watched):
        part.after_fork_in_child()

"""What a fork does to state stores: nothing of the parent's is used by the child.

Rules of this part:

- Before a fork every store lets go of what must not be inherited (an open SQLite connection whose
  locks belong to the parent); afterwards the parent goes on, and the child starts anew.
- Two threads that fork at once do so one after the other, and a store that is made by another
  thread meanwhile is made after the fork.
- What was told before a fork is told after it, also when the last of its users dropped it between.
- The hooks of the operating system are installed once, when the first store is made; a store that
  nobody uses any more is forgotten by itself.
"""

from __future__ import annotations

import os
import threading
from typing import Final, Protocol
from weakref import WeakSet

from agent_saga.observe.living import living

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
_turn = [threading.RLock()]
_told: dict[int, list[ForkAware]] = {}


def watch(part: ForkAware) -> None:
    """Tell `part` about every fork of this process from now on."""
    if not _installed and hasattr(os, "register_at_fork"):
        _installed.append(True)
        os.register_at_fork(
            before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
        )
    with _turn[0]:
        _watched.add(part)


def _before() -> None:
    _turn[0].acquire()
    parts = _told[threading.get_ident()] = living(_watched)
    for part in parts:
        part.before_fork()


def _after_in_parent() -> None:
    parts = _told.pop(threading.get_ident(), None)
    if parts is None:  # interrupted before its turn
        return
    try:
        for part in parts:
            part.after_fork_in_parent()
    finally:
        _turn[0].release()


def _after_in_child() -> None:
    _turn[0] = threading.RLock()
    _told.clear()
    for part in living(_watched):
        part.after_fork_in_child()

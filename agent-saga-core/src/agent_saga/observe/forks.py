"""Objects with locks and threads, made usable again in a forked child.

Only the forking thread lives on in a child, so a lock that another thread held is never freed there
and a worker thread is gone. Each registered object gets `after_fork()` called in the child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from agent_saga.observe.living import living

__all__ = ["renew_after_fork"]


class Renewable(Protocol):
    """An object that can make itself usable in a forked child."""

    def after_fork(self) -> None:
        """Replace locks, and forget threads and what was waiting for them."""


_objects: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(thing: Renewable) -> None:
    """Have `thing.after_fork()` called in every forked child for as long as the thing lives."""
    _objects.add(thing)


def _renew_all() -> None:
    for thing in living(_objects):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)

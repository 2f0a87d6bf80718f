"""Looking at a set that keeps nothing alive, beside threads that add to it.

A `WeakSet` is walked through in Python: a thread that adds to it meanwhile ends the walk with
RuntimeError. Where a fork or the end of the process looks, a lock is no way out: another thread may
hold it for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from weakref import WeakSet

__all__ = ["living"]

T = TypeVar("T")


def living(things: WeakSet[T]) -> list[T]:
    """Return what is in a set now, whoever adds to it meanwhile; takes no lock."""
    while True:
        try:
            return list(things)
        except RuntimeError:  # something was added: all of it is looked at again
            continue

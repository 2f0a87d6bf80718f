"""The sagas of this process whose boundary is open or being left.

A shutdown waits for them; nothing else depends on it. A saga that nobody holds any more drops out
by itself. One that ended earlier and is only read has nothing to wait for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga

_lock = threading.Lock()
_sagas: WeakSet[Saga] = WeakSet()


def opened(saga: Saga) -> None:
    """Note that a saga's boundary was entered."""
    with _lock:
        _sagas.add(saga)


def active() -> list[Saga]:
    """Return the sagas whose boundary has neither ended nor been released."""
    with _lock:
        return [saga for saga in _sagas if _is_open(saga)]


def _is_open(saga: Saga) -> bool:
    return saga.report is None and not saga.released and not saga.read_only

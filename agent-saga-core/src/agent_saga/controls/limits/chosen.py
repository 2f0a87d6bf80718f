"""Where limits are counted: what `set_limit_store` set, else what fits the log.

Rules of this part:

- A log in files brings a state store that every process of the host shares; limits are counted
  there. A log that ends with its process, or lies where no store is known, counts in memory.
- All gates of one log share one store, so that sub-agents and kits cannot each have the whole of a
  limit.
"""

from __future__ import annotations

import threading
from typing import Final
from weakref import WeakKeyDictionary

from agent_saga.controls.control import Surroundings
from agent_saga.controls.installed import INSTALLED
from agent_saga.controls.limits.memory import MemoryLimitStore
from agent_saga.controls.limits.shared import LimitStore
from agent_saga.errors import ConfigurationError
from agent_saga.state.base import StateStore
from agent_saga.wal.base import BaseWAL

__all__ = ["limit_store_for", "set_limit_store"]

_Store = MemoryLimitStore | LimitStore
_stores: Final[WeakKeyDictionary[BaseWAL, tuple[LimitStore | None, _Store]]] = WeakKeyDictionary()
"""By log: what was chosen when its limits were counted last, which is kept so, and where."""

_lock = threading.Lock()


class _Chosen:
    """What `set_limit_store` set."""

    store: MemoryLimitStore | LimitStore | None = None


_chosen: Final = _Chosen()


def set_limit_store(store: MemoryLimitStore | LimitStore | StateStore | None) -> None:
    """Set where the limits of every gate of this process are counted.

    Args:
        store: a `FileLimitStore`, a `MemoryLimitStore`, another `LimitStore` or a state store; None
            goes back to what fits the log: its state store, or memory.

    Raises:
        ConfigurationError: it is none of these.

    It reaches the boundaries that open later.
    """
    if isinstance(store, StateStore):
        store = LimitStore(store)
    if store is not None and not isinstance(store, (MemoryLimitStore, LimitStore)):
        raise ConfigurationError(
            f"set_limit_store takes a limit store, not {type(store).__name__}.",
            fix="Use FileLimitStore(), MemoryLimitStore() or LimitStore(state).",
        )
    _chosen.store = store
    INSTALLED.changed()


def limit_store_for(around: Surroundings) -> MemoryLimitStore | LimitStore:
    """Return where the limits of a log's gates are counted, the same for all of them."""
    chosen = _chosen.store
    if isinstance(chosen, MemoryLimitStore):
        return chosen
    with _lock:
        before, store = _stores.get(around.wal, (None, None))
        if store is None or before is not chosen:
            store = _fitting(around) if chosen is None else chosen.bound(around)
            _stores[around.wal] = (chosen, store)
        return store


def _fitting(around: Surroundings) -> MemoryLimitStore | LimitStore:
    if not around.wal.capabilities.survives_kill:
        return MemoryLimitStore()
    return LimitStore().bound(around)

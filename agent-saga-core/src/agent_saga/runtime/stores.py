"""The stores that people name in programs: those of the log in use, or of a path.

Rules of this part:

- A store without a path is the state store of the log in use (what `set_default_wal` set, else
  `AGENT_SAGA_WAL`, else `./agent-saga.wal`), looked up when it is first needed. What is changed
  through it is recorded in that log.
- A path is that of a log, as everywhere else; its state store lies in its folder.
- A process has one state store for each address that is in use. Nothing is created before the first
  write.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from agent_saga.controls.switch.store import SwitchStore
from agent_saga.plugins.process import process_plugins
from agent_saga.runtime import builtin
from agent_saga.runtime.logs import MEMORY, canonical, default_wal, wal_at
from agent_saga.runtime.settings import Settings
from agent_saga.state.address import open_state

if TYPE_CHECKING:
    from agent_saga.state.base import StateStore
    from agent_saga.wal.base import BaseWAL

__all__ = ["FileSwitchStore", "state_at"]

_lock = threading.Lock()
_stores: Final[WeakValueDictionary[str, StateStore]] = WeakValueDictionary()


def state_at(address: str) -> StateStore:
    """Return the state store that belongs to a log's address, the same object for the same one.

    Raises:
        ConfigurationError: no state store is known for its scheme.
    """
    builtin.register()
    schemes = dict(process_plugins().backends.state)
    where = canonical(address)
    if where == MEMORY:
        return open_state(where, schemes)
    with _lock:
        store = _stores.get(where)
        if store is None:
            store = _stores[where] = open_state(where, schemes)
        return store


def _log(path: str | os.PathLike[str] | None) -> BaseWAL:
    settings = Settings.from_environ()
    return default_wal(settings) if path is None else wal_at(path, settings)


class FileSwitchStore(SwitchStore):
    """The kill switch's document in the folder of a log.

    Args:
        path: the log; the one in use when not given.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = path

    @functools.cached_property
    def wal(self) -> BaseWAL:
        """The log in which changes are recorded."""
        return _log(self._path)

    @functools.cached_property
    def state(self) -> StateStore:
        """The log's state store."""
        return state_at(self.wal.address)

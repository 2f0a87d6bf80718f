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

import os
import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from agent_saga.controls.humans.store import ApprovalStore
from agent_saga.controls.switch.store import SwitchStore
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.plugins.process import process_plugins
from agent_saga.recovery.askers import UNTOLD, Asker, askers
from agent_saga.runtime import builtin
from agent_saga.runtime.logs import MEMORY, canonical, default_wal, wal_at
from agent_saga.runtime.settings import Settings
from agent_saga.state.address import open_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_saga.controls.control import Surroundings
    from agent_saga.domain.clock import Clock
    from agent_saga.state.base import StateStore
    from agent_saga.state.document import Doc
    from agent_saga.wal.base import BaseWAL

__all__ = ["FileApprovalStore", "FileSwitchStore", "state_at"]

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


class _OfALog:
    """What belongs to a log: the one of a path, else the one in use.

    Without a path it is the log of the boundary that uses it first, or the default log for whoever
    asks before.
    """

    _path: str | os.PathLike[str] | None
    _bound: tuple[BaseWAL, StateStore] | None = None

    @property
    def wal(self) -> BaseWAL:
        """The log in which changes are recorded."""
        return self._place()[0]

    @property
    def state(self) -> StateStore:
        """The log's state store."""
        return self._place()[1]

    def _place(self) -> tuple[BaseWAL, StateStore]:
        if self._bound is None:
            settings = Settings.from_environ()
            path = self._path
            wal = default_wal(settings) if path is None else wal_at(path, settings)
            self._bound = (wal, state_at(wal.address))
        return self._bound

    def _bind(self, surroundings: Surroundings) -> bool:
        """Take the log of a boundary as one's own, if none was chosen yet; say if it is."""
        if self._bound is None and self._path is None:
            self._bound = (surroundings.wal, surroundings.store())
        return self.wal is surroundings.wal or self._path is not None


class FileSwitchStore(_OfALog, SwitchStore):
    """The kill switch's document in the folder of a log.

    Args:
        path: the log; the one in use when not given.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = path

    def within(self, surroundings: Surroundings) -> SwitchStore:
        """Return the store to use with a log: this one, for whoever sets it sets it here."""
        self._bind(surroundings)
        return self


class FileApprovalStore(_OfALog, ApprovalStore):
    """Requests for approval in the folder of a log.

    Args:
        path: the log; the one in use when not given.
        clock: where time is read; the machine's clocks when not given.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, clock: Clock | None = None
    ) -> None:
        self._path = path
        self.clock = SYSTEM_CLOCK if clock is None else clock

    def within(self, surroundings: Surroundings) -> ApprovalStore:
        """Return the store to use with a log: without a path, that of the log itself."""
        if self._bind(surroundings):
            return self
        return ApprovalStore(surroundings.store(), surroundings.wal, clock=self.clock)

    def asker(self, request: Doc) -> Asker:
        """Return what became of who asked, as the log tells it; reads the log, and blocks.

        Args:
            request: the document of a request.
        """
        return self.askers([request]).get(str(request["saga"]), UNTOLD)

    def askers(self, requests: Iterable[Doc]) -> dict[str, Asker]:
        """Return what became of who asked, by the saga's id; reads the log once, and blocks."""
        address = self.wal.address
        path = address.removeprefix("file:")
        return {} if path == address else askers(path, requests)

    def why_gone(self, request: Doc) -> str:
        """Return why no yes to a request counts any more: its saga has ended, or is being undone.

        A request whose process is gone can be answered, since a resumed saga takes the answer;
        `asker` tells it.
        """
        found = self.asker(request)
        return found.words if found.ended else ""

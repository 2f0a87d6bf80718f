"""How the engine tells the state store of a log that a saga of this process was left.

Rules of this part:

- A suspension is stored as durably as a claim: somebody comes back to it after days. An end is
  stored without a sync of its own; if the power fails, the log tells of the end.
- Nobody waits long for it: the log holds already what is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent_saga.controls.control import Use, transaction
from agent_saga.state.claims import Claim, Last, clear, keys_of, over, suspend, unmarked

if TYPE_CHECKING:
    from agent_saga.state.base import StateStore
    from agent_saga.state.document import Doc
    from agent_saga.wal.file import FileWAL

__all__ = ["StoredClaims"]

_LONGEST: Final = 2.0
"""Seconds that the end of a boundary waits for the store."""


class StoredClaims:
    """The claims of the sagas of one log, in its state store.

    Args:
        store: returns the store.
        wal: the log; its writer owns the sagas of this process.
    """

    def __init__(self, store: Callable[[], StateStore], wal: FileWAL) -> None:
        self._store = store
        self._wal = wal

    def ended(self, saga: str, epoch: int, seq: int, *, settled: bool) -> Use:
        """Store that a saga has ended with a record; see `engine.known`."""
        owner = self._wal.writer

        def rule(doc: Doc | None) -> tuple[Doc | None, Claim]:
            return clear(doc, owner=owner, epoch=epoch, last=Last(owner, seq))

        return self._use(saga, rule, durable=False, settled=settled)

    def empty(self, saga: str, epoch: int) -> Use:
        """Store that a saga has ended of which nothing was recorded; see `engine.known`."""
        rule = unmarked(saga, owner=self._wal.writer, epoch=epoch)
        return transaction(self._store(), keys_of(saga), rule, durable=False, timeout=_LONGEST)

    def suspended(self, saga: str, epoch: int, seq: int, deadline: int) -> Use:
        """Store that a saga is suspended with a record, until a time; see `engine.known`."""
        owner = self._wal.writer

        def rule(doc: Doc | None) -> tuple[Doc | None, Claim]:
            last = Last(owner, seq)
            return suspend(doc, owner=owner, epoch=epoch, deadline=deadline, last=last)

        return self._use(saga, rule, durable=True)

    def _use(
        self,
        saga: str,
        rule: Callable[[Doc | None], tuple[Doc | None, Claim]],
        *,
        durable: bool,
        settled: bool = True,
    ) -> Use:
        whole = over(saga, rule, records=True, settled=settled)
        return transaction(self._store(), keys_of(saga), whole, durable=durable, timeout=_LONGEST)

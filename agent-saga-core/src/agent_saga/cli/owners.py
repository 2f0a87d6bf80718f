"""Who has an open saga: a process that lives, one that died, or one of which nobody can tell.

Looking makes nothing; the locks of the writers are tried once, when they are asked about first.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from agent_saga.domain.lifecycle import SagaState
from agent_saga.wal.takeover import Writers, told_apart

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.domain.views import SagaView

__all__ = ["ALIVE", "DEAD", "UNTOLD", "Owners"]

ALIVE: Final = "alive"
DEAD: Final = "dead"
UNTOLD: Final = "cannot be told"

_OWNED: Final = frozenset({SagaState.RUNNING, SagaState.UNWINDING})


class Owners:
    """Whether the processes live that have the open sagas of a log.

    Args:
        path: the log's directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    @cached_property
    def writers(self) -> Writers:
        """All writers of the log, told apart."""
        return told_apart(self._path)

    def of(self, saga: SagaView) -> str:
        """Return `ALIVE`, `DEAD` or `UNTOLD`; empty for a saga that no process has."""
        if saga.state not in _OWNED:
            return ""
        owner = self._owner(saga)
        if owner in self.writers.alive:
            return ALIVE
        return DEAD if owner in self.writers.dead else UNTOLD

    def _owner(self, saga: SagaView) -> str:
        return saga.owners.get(max(saga.owners, default=0), "")

"""Where recovery works, and a saga that it has taken over."""

from __future__ import annotations

from msgspec import Struct

from agent_saga.engine.ports import Engine
from agent_saga.recovery.proofs import Proofs
from agent_saga.recovery.survey import Found
from agent_saga.state.base import StateStore
from agent_saga.wal.file import FileWAL

__all__ = ["Claimed", "Place"]


class Place(Struct, frozen=True):
    """Where recovery works.

    Attributes:
        engine: runs the inverses; its log is the claimer's own writer in the same directory.
        wal: the same log, as the file log that it is.
        store: holds the epochs.
        proofs: what is known of the writers' chains.
    """

    engine: Engine
    wal: FileWAL
    store: StateStore
    proofs: Proofs

    def proved(self, found: Found) -> Found:
        """Return a saga as the chains of its writers tell it."""
        return self.proofs.proved(self.wal.path, found, self.wal.port)


class Claimed(Struct, frozen=True):
    """A saga that this process owns now.

    Attributes:
        found: what its records said when it was claimed.
        epoch: the epoch that was granted.
    """

    found: Found
    epoch: int

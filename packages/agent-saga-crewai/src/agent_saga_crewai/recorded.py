"""What the log tells of one saga; it is read, and nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.domain import identity
from agent_saga.kit.frameworks.recorded import awaits_of
from agent_saga.recovery.survey import look
from agent_saga.wal.file import FileWAL

if TYPE_CHECKING:
    from agent_saga.domain.lifecycle import SagaState
    from agent_saga.recovery.survey import Found
    from agent_saga.runtime.composition import Runtime


def lasts(runtime: Runtime) -> bool:
    """Say whether another process could go on with a saga: its log is one in files."""
    return isinstance(runtime.wal, FileWAL)


class Recorded:
    """What the log tells of a saga; nothing, where there is no log in files or no record.

    Args:
        runtime: whose log it is.
        saga: its id, of the user's or this package's own.
    """

    def __init__(self, runtime: Runtime, saga: str) -> None:
        wal = runtime.wal
        self._found: Found | None = (
            look(wal.path, identity.saga_id_of(saga)) if isinstance(wal, FileWAL) else None
        )

    @property
    def state(self) -> SagaState | None:
        """Where it stands."""
        return None if self._found is None else self._found.view.state

    @property
    def awaits(self) -> object:
        """What it keeps, if it is suspended, for whoever resumes it."""
        return None if self._found is None else awaits_of(self._found)

"""What the log tells of the saga that a context belongs to; it is read, and nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_saga.domain import identity
from agent_saga.domain.effective import facts_of
from agent_saga.domain.records import Ev
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
        saga: its id in the log.
    """

    def __init__(self, runtime: Runtime, saga: str) -> None:
        wal = runtime.wal
        self._found: Found | None = look(wal.path, saga) if isinstance(wal, FileWAL) else None

    @classmethod
    def of_key(cls, runtime: Runtime, key: str) -> Recorded:
        """Return what the log tells of the saga with an id of the user's own."""
        return cls(runtime, identity.saga_id_of(key))

    @property
    def state(self) -> SagaState | None:
        """Where it stands."""
        return None if self._found is None else self._found.view.state

    @property
    def reason(self) -> str:
        """Why it was suspended for the last time."""
        return str(self._suspended().get("reason") or "")

    @property
    def awaits(self) -> Mapping[str, Any]:
        """What it kept, when it was suspended for the last time, for whoever resumes it."""
        found = self._suspended().get("awaits")
        return found if isinstance(found, Mapping) else {}

    def _suspended(self) -> Mapping[str, Any]:
        records = self._found.effective.records if self._found is not None else ()
        suspended = [record for record in records if record.event == Ev.SAGA_SUSPENDED]
        return facts_of(suspended[-1]) if suspended else {}

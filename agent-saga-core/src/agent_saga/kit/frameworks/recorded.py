"""What the log tells of the sagas of earlier runs; it is read, and nothing is changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from agent_saga.domain import identity
from agent_saga.domain.commands import told_command
from agent_saga.domain.effective import facts_of
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.records import Ev
from agent_saga.engine.saga import Saga
from agent_saga.errors import ConfigurationError
from agent_saga.recovery.claim import Place
from agent_saga.recovery.proofs import Proofs
from agent_saga.recovery.rebuild import rebuilt
from agent_saga.recovery.survey import Found, look, look_at, survey
from agent_saga.recovery.vanished import KnownSagas
from agent_saga.runtime.composition import Runtime
from agent_saga.state.base import StateStore
from agent_saga.wal.departed import has_departed, named_that_left
from agent_saga.wal.file import FileWAL
from agent_saga.wal.format import Record
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import scan_writer


class Recorded:
    """What the log tells of sagas, by the ids of our own; each is read once.

    Args:
        runtime: whose log it is.

    Raises:
        ConfigurationError: on use, if the log is not one in files.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._found: dict[str, Found | None] = {}
        self._proofs = Proofs(KnownSagas(lambda: self._runtime.store))

    @property
    def place(self) -> Place:
        """Where sagas of the log are undone."""
        engine = self._runtime.engine()
        bounded = replace(engine.timing, undo_bounded=True, wait_to_settle=True)
        return Place(engine.with_timing(bounded), self._wal, self._runtime.store, self._proofs)

    @property
    def _wal(self) -> FileWAL:
        wal = self._runtime.wal
        if not isinstance(wal, FileWAL):
            raise ConfigurationError(
                f"The run can be interrupted and gone on with by another process; that needs a log "
                f"in files, not {wal.address}.",
                fix="Give the kit wal='a path'.",
            )
        return wal

    def command(self, words: str) -> str:
        """Return a command for a person to type, about this log.

        Args:
            words: what follows `agent-saga`; everything foreign in it is quoted.
        """
        return told_command(words, self._wal.path)

    def state(self, saga: str) -> SagaState | None:
        """Return where a saga stands; None when it left no record."""
        found = self.found(saga)
        return None if found is None else found.view.state

    @property
    def address(self) -> str:
        """Where the log is."""
        return self._wal.address

    @property
    def path(self) -> str:
        """The log's directory."""
        return self._wal.path

    @property
    def store(self) -> StateStore:
        """The state store that belongs to the log."""
        return self._runtime.store

    def may_have_died(self, found: Found) -> bool:
        """Say whether a process that wrote about a saga may have died, or is another that works.

        No, if all of them closed their logs, or are this one.
        """
        return any(not self._ended_well(writer) for writer in found.writers)

    def _ended_well(self, writer: str) -> bool:
        if writer == self._wal.writer:
            return True
        last = deque(scan_writer(self._wal.path, writer, OsPort()), maxlen=1)
        return bool(last) and isinstance(last[0], Record) and last[0].event == Ev.WRITER_CLOSE

    def was_committed(self, found: Found) -> bool:
        """Say whether a saga was committed, whatever became of it later."""
        return any(record.event == Ev.SAGA_COMMITTED for record in found.effective.records)

    def awaits(self, saga: str) -> object:
        """Return what a suspended saga keeps for whoever resumes it, or None."""
        found = self.found(saga)
        return None if found is None else awaits_of(found)

    def waiting(self) -> list[object]:
        """Return what each saga that is suspended keeps for whoever resumes it."""
        sagas = survey(self._wal.path).sagas.values()
        suspended = [one for one in sagas if one.view.state is SagaState.SUSPENDED]
        return [awaits_of(one) for one in suspended]

    def found(self, saga: str) -> Found | None:
        """Return a saga; None when it left no record."""
        if saga not in self._found:
            self._found[saga] = look(self._wal.path, identity.saga_id_of(saga))
        return self._found[saga]

    def program(self, saga: str | None) -> Found | None:
        """Return a saga by the log's own id; None when it left no record, or none is named."""
        return None if saga is None else look(self._wal.path, saga)

    def has_had(self, sagas: Iterable[str]) -> bool:
        """Say whether the log tells, or told before it was compacted, of one of several sagas.

        Args:
            sagas: the log's own ids.
        """
        ids, path = set(sagas), self._wal.path
        return bool(look_at(path, ids)) or any(has_departed(path, saga) for saga in ids)

    def departed(self, sagas: Iterable[str]) -> list[str]:
        """Return those of several sagas that have left the log.

        Args:
            sagas: by the ids of our own.
        """
        ids = {saga: identity.saga_id_of(saga) for saga in sagas}
        left = named_that_left(self._wal.path) if ids else set()
        return [saga for saga, id_in_log in ids.items() if id_in_log in left]

    def label(self, found: Found, name: str) -> object:
        """Return a label that a saga was begun with, or None."""
        begins = [r for r in found.effective.records if r.event == Ev.SAGA_BEGIN]
        about = facts_of(begins[0]).get("about") if begins else None
        labels = about.get("labels") if isinstance(about, Mapping) else None
        return labels.get(name) if isinstance(labels, Mapping) else None

    def all(self, sagas: Iterable[str], programs: Iterable[str] = ()) -> list[Found]:
        """Return those of several sagas that left records, the earliest first.

        Args:
            sagas: by the ids of our own.
            programs: by the log's own ids.
        """
        ids = {*programs, *(identity.saga_id_of(saga) for saga in sagas)}
        return sorted(look_at(self._wal.path, ids).values(), key=lambda found: found.view.began)

    def rebuilt(self, found: Found) -> Saga:
        """Return a saga with its steps, to be looked at."""
        engine = self._runtime.engine()
        now = engine.clock.monotonic()
        return rebuilt(engine, found, found.effective.epoch, dead_since=now)


class RecordedSaga:
    """What the log tells of one saga; nothing, where there is no log in files or no record.

    Args:
        runtime: whose log it is.
        saga: the log's own id.
    """

    def __init__(self, runtime: Runtime, saga: str) -> None:
        wal = runtime.wal
        self._found: Found | None = look(wal.path, saga) if isinstance(wal, FileWAL) else None

    @classmethod
    def of_key(cls, runtime: Runtime, key: str) -> RecordedSaga:
        """Return what the log tells of a saga with an id of our own."""
        return cls(runtime, identity.saga_id_of(key))

    @property
    def state(self) -> SagaState | None:
        """Where it stands; None when it left no record."""
        return None if self._found is None else self._found.view.state

    @property
    def reason(self) -> str:
        """Why it was suspended for the last time; empty for never."""
        return str(self._suspended().get("reason") or "")

    @property
    def awaits(self) -> Mapping[str, Any]:
        """What it kept, when it was suspended for the last time, for whoever resumes it."""
        kept = self._suspended().get("awaits")
        return kept if isinstance(kept, Mapping) else {}

    def _suspended(self) -> Mapping[str, object]:
        return {} if self._found is None else _last_suspended(self._found)


def lasts(runtime: Runtime) -> bool:
    """Say whether another process could go on with a saga: its log is one in files."""
    return isinstance(runtime.wal, FileWAL)


def awaits_of(found: Found) -> object:
    """Return what a suspended saga keeps for whoever resumes it, or None."""
    return _last_suspended(found).get("awaits")


def _last_suspended(found: Found) -> Mapping[str, object]:
    """Return what was recorded when a saga was suspended for the last time."""
    records = found.effective.records
    suspended = [record for record in records if record.event == Ev.SAGA_SUSPENDED]
    return facts_of(suspended[-1]) if suspended else {}

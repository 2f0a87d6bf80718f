"""The embedded default: one SQLite file inside the log's folder, shared by a host's processes.

Rules of this part:

- Callers never touch the database. A private thread serves them in batches: what waits together is
  decided one after another inside one transaction and shares its sync.
- A rule that raises ends only its own call. A transaction that cannot be committed ends every call
  in it, and none of their changes is stored.
- No connection crosses a fork: it is closed before, and parent and child open their own.
- A rule that changes nothing does not make the file.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from agent_saga.errors import AgentSagaError
from agent_saga.state import sqlite_schema as schema
from agent_saga.state.base import Capabilities, Rule, StateStore, judge
from agent_saga.state.document import Doc, check_key, decode
from agent_saga.state.sqlite_file import SQLiteFile
from agent_saga.state.worker import Job, Worker

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

__all__ = ["FILE_NAME", "SQLiteStateStore"]

T = TypeVar("T")

FILE_NAME: Final = "state.sqlite"
"""The name of the file inside the log's folder."""

DEFAULT_TIMEOUT: Final = 5.0


class SQLiteStateStore(StateStore):
    """A state store in one SQLite file, shared by every process of a host.

    Args:
        path: the file; it and its folder are made at the first write.
        timeout: seconds that a call waits, for other processes and for the disk.

    Crash: an answered durable transaction survives a power loss; any answered one survives the
    process. Fails closed: what cannot be read or written raises.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: float = DEFAULT_TIMEOUT,
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
    ) -> None:
        self.path = Path(path).absolute()
        self.address = f"sqlite:{self.path}"
        self.capabilities = Capabilities("disk", True, True, False)
        self._timeout = timeout
        self._worker = Worker(_Service(SQLiteFile(self.path, connect)))
        self._finalizer = weakref.finalize(self, self._worker.stop)

    def transact(
        self,
        keys: Sequence[str],
        rule: Rule[T],
        *,
        durable: bool = True,
        timeout: float | None = None,
    ) -> T:
        """Apply a rule to the named documents, atomically, and return its answer."""
        answer: T = self._worker.call(_write(keys, rule, durable=durable), self._bound(timeout))
        return answer

    async def async_transact(
        self,
        keys: Sequence[str],
        rule: Rule[T],
        *,
        durable: bool = True,
        timeout: float | None = None,
    ) -> T:
        """Do what `transact` does without blocking the event loop."""
        write = _write(keys, rule, durable=durable)
        answer: T = await self._worker.async_call(write, self._bound(timeout))
        return answer

    def get(self, key: str, *, timeout: float | None = None) -> Doc | None:
        """Return one document, or None; makes no file."""
        return self._doc(key, self._worker.call(_get(key), self._bound(timeout)))

    async def async_get(self, key: str, *, timeout: float | None = None) -> Doc | None:
        """Do what `get` does without blocking the event loop."""
        return self._doc(key, await self._worker.async_call(_get(key), self._bound(timeout)))

    def scan(self, prefix: str = "", *, timeout: float | None = None) -> list[tuple[str, Doc]]:
        """Return the documents whose keys begin with a prefix, by key, as of one moment."""
        read = _Read(lambda connection: schema.scan(connection, prefix), [])
        found = self._worker.call(read, self._bound(timeout))
        return [(key, decode(body, where=self._where(key))) for key, body in found]

    def close(self) -> None:
        """Finish what was asked, close the file and end the private thread."""
        self._finalizer()

    def _bound(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    def _doc(self, key: str, body: bytes | None) -> Doc | None:
        return None if body is None else decode(body, where=self._where(key))

    def _where(self, key: str) -> str:
        return f"{key!r} in {self.path}"


class _Write(Struct):
    keys: tuple[str, ...]
    rule: Rule[Any]
    durable: bool


class _Read(Struct):
    action: Callable[[sqlite3.Connection], Any]
    default: Any


def _write(keys: Sequence[str], rule: Rule[Any], *, durable: bool) -> _Write:
    return _Write(tuple([check_key(key) for key in keys]), rule, durable)


def _get(key: str) -> _Read:
    check_key(key)
    return _Read(lambda connection: schema.fetch(connection, key), None)


class _Service:
    """What the private thread does with the file."""

    def __init__(self, file: SQLiteFile) -> None:
        self.name = f"The state store {file.path}"
        self._file = file

    def serve(self, jobs: list[Job[Any]]) -> None:
        """Answer the reads one by one, and the writes together in one transaction."""
        writes = []
        for job in jobs:
            if isinstance(job.request, _Write):
                writes.append(job)
            elif job.begin():
                self._read(job)
        if writes and not self._file.exists():
            writes = [job for job in writes if self._needs_file(job)]
        if writes:
            self._write(writes)

    def release(self) -> None:
        """Close the file."""
        self._file.release()

    def abandon(self) -> None:
        """Drop the parent's connection."""
        self._file.abandon()

    def _read(self, job: Job[Any]) -> None:
        read = job.request
        try:
            found = self._file.read(read.action, read.default, deadline=job.deadline)
        except AgentSagaError as error:
            job.fail(error)
        else:
            job.finish(found)

    def _needs_file(self, job: Job[Any]) -> bool:
        """Answer a rule that changes nothing where nothing was ever stored."""
        write = job.request
        try:
            result, changes = judge(write.rule, dict.fromkeys(write.keys), where=self._file.place)
        except BaseException as error:
            if job.begin():
                job.fail(error)
            return False
        if not changes and job.begin():
            job.finish(result)
        return bool(changes)

    def _write(self, jobs: list[Job[Any]]) -> None:
        begun: list[Job[Any]] = []
        durable, deadline = False, 0.0
        for job in jobs:
            durable = durable or job.request.durable
            deadline = max(deadline, job.deadline)

        def apply_all(connection: sqlite3.Connection) -> None:
            for job in jobs:
                if job.begin():
                    begun.append(job)
                    self._apply(connection, job)

        try:
            self._file.write(apply_all, durable=durable, deadline=deadline)
        except AgentSagaError as error:
            for job in jobs:
                job.fail(type(error)(error.message, fix=error.fix))
        else:
            for job in begun:
                job.end()

    def _apply(self, connection: sqlite3.Connection, job: Job[Any]) -> None:
        """Store what a rule decides, and note what its job ends with once that is committed."""
        write = job.request
        stored = {key: schema.fetch(connection, key) for key in write.keys}
        try:
            job.result, changes = judge(write.rule, stored, where=self._file.place)
        except BaseException as error:
            job.error = error
            return
        for key, body in changes.items():
            schema.store(connection, key, body)

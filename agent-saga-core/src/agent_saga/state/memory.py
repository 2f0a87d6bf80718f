"""The state store in memory: for tests, and for programs that asked for no disk.

Rules of this part:

- One lock over all documents makes a transaction atomic among threads. Nothing survives the
  process, and nothing is shared with another one; a forked child has a copy of its own.
- Documents are kept in their stored form, so that a caller who changes what it got changes nothing
  here, and so that what a disk would refuse is refused here too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

from agent_saga.errors import StateError, StateUnavailable
from agent_saga.state import forking
from agent_saga.state.base import Capabilities, Rule, StateStore, judge
from agent_saga.state.document import Doc, check_key, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MemoryStateStore"]

T = TypeVar("T")

DEFAULT_TIMEOUT: Final = 5.0

POLL: Final = 0.001
"""Seconds between two looks at the lock from an event loop."""


class MemoryStateStore(StateStore):
    """A state store that lives in this process.

    Args:
        timeout: seconds that a call waits for another thread's rule.

    Crash: everything is gone. `durable` changes nothing.
    """

    def __init__(self, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        self.address = "memory:"
        self.capabilities = Capabilities("memory", False, False, False)
        self._timeout = timeout
        self._stored: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._holder: int | None = None
        self._closed = False
        self._forking = False
        forking.watch(self)

    def transact(
        self,
        keys: Sequence[str],
        rule: Rule[T],
        *,
        durable: bool = True,
        timeout: float | None = None,
    ) -> T:
        """Apply a rule to the named documents, atomically, and return its answer."""
        named = [check_key(key) for key in keys]
        self._enter(self._bound(timeout))
        return self._decide(named, rule)

    async def async_transact(
        self,
        keys: Sequence[str],
        rule: Rule[T],
        *,
        durable: bool = True,
        timeout: float | None = None,
    ) -> T:
        """Do what `transact` does without blocking the event loop."""
        named = [check_key(key) for key in keys]
        deadline = time.monotonic() + self._bound(timeout)
        while not self._try_enter():
            if time.monotonic() >= deadline:
                raise _held()
            await asyncio.sleep(POLL)
        return self._decide(named, rule)

    def get(self, key: str, *, timeout: float | None = None) -> Doc | None:
        """Return one document, or None."""
        self._check_usable()
        body = self._stored.get(check_key(key))
        return None if body is None else decode(body, where=f"{key!r} in {self.address}")

    async def async_get(self, key: str, *, timeout: float | None = None) -> Doc | None:
        """Return one document, or None."""
        return self.get(key)

    def scan(self, prefix: str = "", *, timeout: float | None = None) -> list[tuple[str, Doc]]:
        """Return the documents whose keys begin with a prefix, by key, as of one moment."""
        self._enter(self._bound(timeout))
        try:
            found = sorted(item for item in self._stored.items() if item[0].startswith(prefix))
        finally:
            self._leave()
        return [(key, decode(body, where=f"{key!r} in {self.address}")) for key, body in found]

    def close(self) -> None:
        """End the use of the store; its documents are dropped."""
        self._closed = True
        self._stored = {}

    def before_fork(self) -> None:
        """Wait, bounded, for a change that is being kept, so that the child's copy is whole."""
        self._forking = self._lock.acquire(timeout=forking.PATIENCE)

    def after_fork_in_parent(self) -> None:
        """Let the other threads go on."""
        if self._forking:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Forget the lock: its holder does not exist here."""
        self._lock = threading.Lock()
        self._holder = None

    def _keep(self, changes: dict[str, bytes | None]) -> None:
        for key, body in changes.items():
            if body is None:
                self._stored.pop(key, None)
            else:
                self._stored[key] = body

    def _decide(self, keys: list[str], rule: Rule[T]) -> T:
        """Apply a rule under the lock, and leave."""
        try:
            stored = {key: self._stored.get(key) for key in keys}
            answer, changes = judge(rule, stored, where=self.address)
            self._keep(changes)
            return answer
        finally:
            self._leave()

    def _bound(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    def _enter(self, timeout: float) -> None:
        self._check_usable()
        if not self._lock.acquire(timeout=timeout):
            raise _held()
        self._holder = threading.get_ident()

    def _try_enter(self) -> bool:
        self._check_usable()
        entered = self._lock.acquire(blocking=False)
        if entered:
            self._holder = threading.get_ident()
        return entered

    def _leave(self) -> None:
        self._holder = None
        self._lock.release()

    def _check_usable(self) -> None:
        if self._closed:
            raise StateError("The state store in memory is closed.")
        if self._holder == threading.get_ident():
            raise StateError("A rule used the state store; rules are pure functions.")


def _held() -> StateUnavailable:
    return StateUnavailable("The state store in memory is held by a rule; nothing was changed.")

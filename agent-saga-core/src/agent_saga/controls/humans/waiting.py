"""Hearing that a request was decided, here or elsewhere, without a storm of questions.

Rules of this part:

- However many calls wait, one thread listens to the bell of a store: a look at it every so often,
  less often while nothing happens, and none while nobody waits. Who is woken reads its own document
  once.
- Where there is no bell, and after a ring that was lost, a waiter reads its document by itself: a
  second after it began, then less and less often, at random within a quarter.
- The thread keeps neither the store nor the interpreter alive. A forked child has none of its
  parent's waiters.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from agent_saga.state.bell import bell_of
from agent_saga.wal.os_port import restart_after_fork

if TYPE_CHECKING:
    from agent_saga.state.base import StateStore
    from agent_saga.state.bell import Bell

__all__ = ["Ear", "Listener", "listener_of", "pause"]

BELL: Final = "approvals"

SHORTEST: Final = 0.02
LONGEST: Final = 0.25
"""Bounds in seconds of the pause between two looks at the bell."""

LINGER: Final = 2.0
"""Seconds for which the thread stays when nobody waits any more."""

_FIRST_LOOK: Final = 1.0
_LAST_LOOK: Final = 15.0


def pause(looks: int, *, bell: bool) -> float:
    """Return how many seconds a waiter waits before it reads its document by itself.

    Args:
        looks: how often it has read it.
        bell: whether a bell wakes it when something happens.
    """
    from random import uniform  # noqa: PLC0415 - slow to load, and only who waits needs it

    first = _FIRST_LOOK if bell else SHORTEST * 5
    longest = _LAST_LOOK if bell else 2.0
    return float(min(longest, first * 1.5 ** min(looks, 20))) * uniform(0.75, 1.25)  # noqa: S311


class Listener:
    """Wakes who waits for a name to be rung.

    Args:
        bell: what is rung, or None where nothing is.
    """

    def __init__(self, bell: Bell | None) -> None:
        self.bell = bell
        self._reset()
        restart_after_fork(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._mark: object = None

    def restart_in_child(self) -> None:
        """In a forked child: nobody waits yet."""
        self._reset()

    def ring(self, name: str) -> None:
        """Say that the document of a name has changed; waiters of this process hear it at once."""
        if self.bell is not None:
            self.bell.ring(name)
        with self._lock:
            waiting = self._waiting.pop(name, [])
        for wake in waiting:
            wake()

    def listen(self, name: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Have a function called once when a name is rung; returns what ends that."""
        with self._lock:
            self._waiting.setdefault(name, []).append(wake)
            if self.bell is not None and self._thread is None:
                self._mark = self.bell.heard(None)[0]  # before the caller reads its document
                self._thread = threading.Thread(
                    target=self._run, name="agent-saga-approvals", daemon=True
                )
                self._thread.start()

        def end() -> None:
            with self._lock:
                left = self._waiting.get(name, [])
                if wake in left:
                    left.remove(wake)
                if not left:
                    self._waiting.pop(name, None)

        return end

    def _run(self) -> None:
        """Look at the bell for as long as anybody waits; the body of the thread."""
        bell, quiet, idle = self.bell, SHORTEST, 0.0
        while bell is not None and self._needed(idle):
            time.sleep(quiet)
            self._mark, names = bell.heard(self._mark)
            if names is None or names:
                self._wake(names)
                quiet = SHORTEST
            quiet = min(LONGEST, quiet * 1.3)
            idle = 0.0 if self._waiting else idle + quiet

    def _needed(self, idle: float) -> bool:
        """Say whether the thread goes on; it stays a while: who is woken often waits again."""
        with self._lock:
            if self._waiting or idle < LINGER:
                return self._thread is threading.current_thread()
            self._thread = None
            return False

    def _wake(self, names: frozenset[str] | None) -> None:
        with self._lock:
            rung = [name for name in self._waiting if names is None or name in names]
            waiting = [wake for name in rung for wake in self._waiting.pop(name)]
        for wake in waiting:
            wake()


class Ear:
    """Waits on an event loop, which goes on meanwhile.

    Args:
        listener: whom to ask.
        name: what is rung.
    """

    def __init__(self, listener: Listener, name: str) -> None:
        self._listener, self._name = listener, name
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._end: Callable[[], None] = _nothing

    def prick(self) -> None:
        """Listen from now on; what is rung before the next wait ends that wait at once."""
        self.close()
        self._rung.clear()
        self._end = self._listener.listen(self._name, self._wake)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop that waited is closed
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> None:
        """Wait until it rings, at most so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()

    def close(self) -> None:
        """Listen no more."""
        self._end()
        self._end = _nothing


def _nothing() -> None:
    """End nothing."""


_listeners: Final[WeakKeyDictionary[StateStore, Listener]] = WeakKeyDictionary()
_making = threading.Lock()


def listener_of(store: StateStore) -> Listener:
    """Return the one listener of a store in this process."""
    with _making:
        listener = _listeners.get(store)
        if listener is None:
            listener = _listeners[store] = Listener(bell_of(store, BELL))
        return listener

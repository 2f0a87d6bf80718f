"""Who waits for a record: futures of any event loop, and plain threads.

Rules of this part:

- No task per wait and no timer per wait: a loop has one watchdog timer while somebody on it
  waits.
- Futures are settled on their own loop, with one hop per loop however many wait. A loop that was
  closed meanwhile is skipped: its waiters are gone, and the flusher must live on.
- A wait that is given up (cancelled future, expired lock) is simply settled without effect.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent_saga.errors import WALError, WALPoisoned, WALStalled

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Future",
    "ThreadWaiter",
    "Waiters",
    "failed_future",
    "poisoned",
    "release",
    "settle",
    "stalled",
]

_GRACE: Final = 0.005


class ThreadWaiter:
    """A plain thread that waits; `error` is set before it is released."""

    __slots__ = ("error", "lock")

    def __init__(self) -> None:
        self.error: WALError | None = None
        self.lock = threading.Lock()
        self.lock.acquire()


Future = asyncio.Future[None]
_Waiter = tuple[int, float, "Future | ThreadWaiter", "asyncio.AbstractEventLoop | None"]


def poisoned(cause: BaseException) -> WALPoisoned:
    """A new error for one waiter: an exception that is raised in many places mixes their traces."""
    if isinstance(cause, WALPoisoned):
        error = WALPoisoned(cause.message, fix=cause.fix)
    else:
        error = WALPoisoned(
            f"The log could not write ({cause!r}); what was not confirmed before may be lost.",
            fix="Free the disk or repair it, start anew, and let recovery settle what was left.",
        )
    error.__cause__ = cause
    return error


def stalled(seconds: float) -> WALStalled:
    """The error of a wait that passed its bound."""
    return WALStalled(
        f"The disk did not confirm a record within {seconds:g} s; whether it will is unknown.",
        fix="Look at the disk that holds the log; no new effect was started on this record.",
    )


def failed_future(loop: asyncio.AbstractEventLoop, error: WALError) -> Future:
    """A future that has failed already."""
    future: Future = loop.create_future()
    _settle_one(future, error)
    return future


def _settle_one(future: Future, error: WALError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # a waiter that has gone must not be reported as an unseen error


def settle(futures: Iterable[Future], cause: BaseException | None) -> None:
    """Settle futures of the loop that this runs on."""
    for future in futures:
        if cause is not None:
            _settle_one(future, poisoned(cause))
        elif not future.done():
            future.set_result(None)


class Waiters:
    """Waits for durability, in the order in which they came.

    Args:
        stall_after: seconds after which a wait fails with `WALStalled`.

    The caller holds the log's lock for `add_future`, `add_thread` and `take`; `release` and the
    watchdog do not need it.
    """

    __slots__ = ("_waiting", "_watched", "lock", "stall_after")

    def __init__(self, lock: threading.Lock, stall_after: float) -> None:
        self.lock = lock
        self.stall_after = stall_after
        self._waiting: list[_Waiter] = []
        self._watched: set[asyncio.AbstractEventLoop] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add_future(self, seq: int, loop: asyncio.AbstractEventLoop) -> Future:
        """Wait on an event loop; called on the loop's own thread."""
        future: Future = loop.create_future()
        self._waiting.append((seq, time.monotonic(), future, loop))
        if loop not in self._watched:
            self._watched = {one for one in self._watched if not one.is_closed()}
            self._watched.add(loop)
            loop.call_later(self.stall_after + _GRACE, self._watch, loop)
        return future

    def add_thread(self, seq: int) -> ThreadWaiter:
        """Wait on a plain thread, which then acquires the waiter's lock."""
        waiter = ThreadWaiter()
        self._waiting.append((seq, time.monotonic(), waiter, None))
        return waiter

    def take(self, seq: int) -> list[_Waiter]:
        """Take out everyone who waits for `seq` or less."""
        waiting = self._waiting
        ready = [waiter for waiter in waiting if waiter[0] <= seq]
        if len(ready) == len(waiting):
            self._waiting = []
        elif ready:
            self._waiting = [waiter for waiter in waiting if waiter[0] > seq]
        return ready

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """The watchdog of a loop: fail who waits too long, look again while anyone waits."""
        now = time.monotonic()
        with self.lock:
            late = [one for one in self._waiting if one[3] is loop and self._is_late(one, now)]
            passed = {id(one) for one in late}
            self._waiting = [one for one in self._waiting if id(one) not in passed]
            young = [one[1] for one in self._waiting if one[3] is loop]
            if young:
                delay = min(young) + self.stall_after - now + _GRACE
                loop.call_later(delay, self._watch, loop)
            else:
                self._watched.discard(loop)
        for _, _, future, _ in late:
            if isinstance(future, asyncio.Future):
                _settle_one(future, stalled(self.stall_after))

    def _is_late(self, waiter: _Waiter, now: float) -> bool:
        return now - waiter[1] >= self.stall_after


Woken = Callable[[asyncio.AbstractEventLoop], object]


def release(waiters: list[_Waiter], cause: BaseException | None, woken: Woken) -> None:
    """Let waiters go on (or fail with the cause), each on its own thread or loop.

    Args:
        waiters: what `Waiters.take` returned.
        cause: why they fail, or None.
        woken: told, on each loop's thread, that its waiters go on.
    """
    loops: dict[asyncio.AbstractEventLoop, list[Future]] = {}
    for _, _, waiter, loop in waiters:
        if isinstance(waiter, ThreadWaiter):
            waiter.error = None if cause is None else poisoned(cause)
            waiter.lock.release()
        elif loop is not None:
            loops.setdefault(loop, []).append(waiter)
    for loop, futures in loops.items():
        try:
            loop.call_soon_threadsafe(_wake, loop, futures, cause, woken)
        except RuntimeError:  # it was closed: who waited is gone
            if not loop.is_closed():
                raise


def _wake(
    loop: asyncio.AbstractEventLoop,
    futures: list[Future],
    cause: BaseException | None,
    woken: Woken,
) -> None:
    woken(loop)
    settle(futures, cause)

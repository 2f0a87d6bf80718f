"""Who waits for a record: futures of any event loop, and plain threads.

Rules of this part:

- No task per wait and no timer per wait: a loop has one watchdog timer while somebody on it
  waits.
- Futures are settled on their own loop, with one hop per loop however many wait, and who waits goes
  on in the same turn. A loop that was closed meanwhile is skipped: its waiters are gone, and the
  flusher must live on.
- A wait that is given up (cancelled future, expired lock) is simply settled without effect.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import operator
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from agent_saga.errors import WALError, WALPoisoned, WALStalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "Future",
    "ThreadWaiter",
    "Waiters",
    "Waking",
    "failed_future",
    "first_came",
    "poisoned",
    "release",
    "settle",
    "stalled",
]

_GRACE: Final = 0.005


class ThreadWaiter:
    """A plain thread that waits, settled as a future is; `error` is set before it is released."""

    __slots__ = ("error", "lock")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.lock = threading.Lock()
        self.lock.acquire()

    def done(self) -> bool:
        """Whether it was released."""
        return not self.lock.locked()

    def go(self) -> None:
        """Let the thread go on."""
        self.lock.release()

    def set_exception(self, error: BaseException, /) -> None:
        """Let the thread fail."""
        self.error = error
        self.lock.release()

    def exception(self) -> BaseException | None:
        """What it fails with."""
        return self.error


Future = asyncio.Future[None]


class Wait(asyncio.Future[None]):
    """A future whose first callback, its waiter's own, is called in the turn in which `go` is.

    Any other future has its callbacks called a turn later, and a turn of a loop costs about as much
    as the rest of a wait.
    """

    _first: tuple[Callable[[Any], object], contextvars.Context] | None = None

    def go(self) -> None:
        """Let the waiter go on, now; does nothing when the wait has ended already."""
        if not self.done():
            first, self._first = self._first, None
            super().set_result(None)
            if first is not None:
                callback, context = first
                context.run(callback, self)

    def set_result(self, result: None, /) -> None:
        """End the wait; the waiter goes on in the next turn."""
        super().set_result(result)
        self._tell_first()

    def set_exception(self, error: type[BaseException] | BaseException, /) -> None:
        """Have the wait fail, in the next turn."""
        super().set_exception(error)
        self._tell_first()

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the wait; whether it had not ended yet."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._tell_first()
        return cancelled

    def add_done_callback(
        self, callback: Callable[[Any], object], /, *, context: contextvars.Context | None = None
    ) -> None:
        """Have a function called when the wait has ended."""
        if self._first is None and not self.done():
            self._first = (callback, contextvars.copy_context() if context is None else context)
        else:
            super().add_done_callback(callback, context=context)

    def remove_done_callback(self, callback: Callable[[Any], object], /) -> int:
        """Take back every call of a function; how many there were."""
        removed = super().remove_done_callback(callback)
        if self._first is not None and self._first[0] == callback:
            self._first = None
            removed += 1
        return removed

    def _tell_first(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            callback, context = first
            self.get_loop().call_soon(callback, self, context=context)


_Waiter = tuple[int, float, "Wait | ThreadWaiter"]
"""One wait: for which sequence, since when, and what is settled at its end."""

_whom: Final = operator.itemgetter(2)


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


def _settle_one(future: Future | ThreadWaiter, error: WALError) -> None:
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


class Waking(Protocol):
    """One event loop whose waiters are woken."""

    loop: asyncio.AbstractEventLoop

    def woken(self) -> None:
        """Note, on the loop's thread, that its waiters go on."""


Ready = dict["Waking | None", list[_Waiter]]
"""Who goes on, by loop; plain threads stand under None."""


class Waiters:
    """Waits for durability: for each loop, and for plain threads, in the order in which they came.

    Args:
        stall_after: seconds after which a wait fails with `WALStalled`.

    The caller holds the log's lock for `add_future`, `add_thread` and `take`; `release` and the
    watchdog do not need it.
    """

    __slots__ = ("_highest", "_waiting", "_watched", "lock", "stall_after")

    def __init__(self, lock: threading.Lock, stall_after: float) -> None:
        self.lock = lock
        self.stall_after = stall_after
        self._waiting: Ready = {}
        self._highest = 0
        self._watched: set[Waking] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add_future(self, seq: int, waking: Waking) -> Future:
        """Wait on an event loop; called on the loop's own thread."""
        wait = Wait(loop=waking.loop)
        self._put(waking, seq, wait)
        if waking not in self._watched:
            self._begin_watch(waking)
        return wait

    def add_thread(self, seq: int) -> ThreadWaiter:
        """Wait on a plain thread, which then acquires the waiter's lock."""
        waiter = ThreadWaiter()
        self._put(None, seq, waiter)
        return waiter

    def _put(self, waking: Waking | None, seq: int, wait: Wait | ThreadWaiter) -> None:
        waiting = self._waiting.get(waking)
        if waiting is None:
            waiting = self._waiting[waking] = []
        waiting.append((seq, time.monotonic(), wait))
        self._highest = max(self._highest, seq)

    def take(self, seq: int) -> Ready:
        """Take out everyone who waits for `seq` or less; there may be nobody."""
        if seq >= self._highest:
            ready, self._waiting = self._waiting, {}
            return ready
        waiting = self._waiting
        self._waiting = _those(waiting, lambda waiter: waiter[0] > seq)
        self._highest = max((one[0] for them in self._waiting.values() for one in them), default=0)
        return _those(waiting, lambda waiter: waiter[0] <= seq)

    # --- the watchdog -----------------------------------------------------------------------------

    def _begin_watch(self, waking: Waking) -> None:
        self._watched = {one for one in self._watched if not one.loop.is_closed()}
        self._watched.add(waking)
        waking.loop.call_later(self.stall_after + _GRACE, self._watch, waking)

    def _watch(self, waking: Waking) -> None:
        """The watchdog of a loop: fail who waits too long, look again while anyone waits."""
        now = time.monotonic()
        with self.lock:
            waiting = self._waiting.pop(waking, [])
            late = [one for one in waiting if self._is_late(one, now)]
            young = [one for one in waiting if not self._is_late(one, now)]
            if young:
                self._waiting[waking] = young
                delay = min(one[1] for one in young) + self.stall_after - now + _GRACE
                waking.loop.call_later(delay, self._watch, waking)
            else:
                self._watched.discard(waking)
        for _, _, future in late:
            _settle_one(future, stalled(self.stall_after))

    def _is_late(self, waiter: _Waiter, now: float) -> bool:
        return now - waiter[1] >= self.stall_after


def _those(ready: Ready, wanted: Callable[[_Waiter], bool]) -> Ready:
    found = {waking: list(filter(wanted, waiters)) for waking, waiters in ready.items()}
    return {waking: waiters for waking, waiters in found.items() if waiters}


def first_came(ready: Ready) -> float:
    """When whoever came first of them came, on the monotonic clock."""
    for waiters in ready.values():
        return waiters[0][1]
    return math.inf


def release(ready: Ready, cause: BaseException | None) -> None:
    """Let waiters go on (or fail with the cause), each on its own thread or loop.

    Args:
        ready: what `Waiters.take` returned.
        cause: why they fail, or None.
    """
    for waking, waiters in ready.items():
        if waking is None:
            _let_go(waiters, cause)
            continue
        try:
            waking.loop.call_soon_threadsafe(_wake, waking, waiters, cause)
        except RuntimeError:  # it was closed: who waited is gone
            if not waking.loop.is_closed():
                raise


def _let_go(waiters: Iterable[_Waiter], cause: BaseException | None) -> None:
    for _, _, wait in waiters:
        if cause is None:
            wait.go()
        else:
            _settle_one(wait, poisoned(cause))


def _wake(waking: Waking, waiters: list[_Waiter], cause: BaseException | None) -> None:
    """Let the waiters of the loop go on that this runs on."""
    waking.woken()
    left = iter(waiters)
    try:
        _let_go(left, cause)
    finally:  # what ends the program, raised where one of them went on, leaves the others waiting
        settle(map(_whom, left), cause)

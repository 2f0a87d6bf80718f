"""Time that jumps over waits, so that a random saga takes milliseconds and its waits are certain.

- The time is the real one plus an offset. Whoever would sleep moves the offset instead.
- Nobody jumps while a thread still works that others may wait for (`busy`).
- What is due arrives before anybody can read a later time: an effect that arrives within a tool's
  `settle_after` has arrived for everybody who saw that time pass.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
import threading
import time
from collections.abc import Callable

_REAL_WAIT = 0.004


class VirtualClock:
    """A clock that can be moved on, and that makes what is due happen first."""

    def __init__(self) -> None:
        self.busy: Callable[[], bool] = lambda: False
        self._offset = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._number = itertools.count().__next__
        self._lock = threading.RLock()

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        with self._lock:
            now = time.monotonic() + self._offset
            while self._due and self._due[0][0] <= now:
                heapq.heappop(self._due)[2]()
            return now

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._offset += max(seconds, 0.0)
            self.monotonic()

    def later(self, delay: float, happens: Callable[[], object]) -> None:
        with self._lock:
            at = time.monotonic() + self._offset + delay
            heapq.heappush(self._due, (at, self._number(), happens))

    def let_all_arrive(self) -> None:
        """Let everything happen that is still due."""
        with self._lock:
            while self._due:
                heapq.heappop(self._due)[2]()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that jumps to its next timer when nothing else comes."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        super().__init__(_Jumping(selectors.DefaultSelector(), clock))

    def time(self) -> float:
        return self.clock.monotonic()


class _Jumping:
    def __init__(self, inner: selectors.BaseSelector, clock: VirtualClock) -> None:
        self._inner = inner
        self._clock = clock

    def select(self, timeout: float | None = None) -> list:
        if timeout is None or timeout <= _REAL_WAIT:
            return self._inner.select(timeout)
        end = self._clock.monotonic() + timeout
        while (left := end - self._clock.monotonic()) > 0:
            ready = self._inner.select(min(left, _REAL_WAIT))
            if ready:
                return ready
            if not self._clock.busy():
                self._clock.advance(end - self._clock.monotonic())
        return self._inner.select(0)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


class SleepAsAdvance:
    """Stands for the module `time` where the synchronous driver sleeps."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.monotonic = time.monotonic

    def sleep(self, seconds: float) -> None:
        time.sleep(0)
        self._clock.advance(seconds)

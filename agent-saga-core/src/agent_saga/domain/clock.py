"""Time as a value that is passed in, so that tests and replays can choose it.

Two clocks, never mixed: `now_us` is the wall clock and serves display only; `monotonic` measures
durations (timeouts, waits) and never steps back.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the engine reads the time."""

    def now_us(self) -> int:
        """Wall clock: whole microseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never step back; only differences mean something."""


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    def now_us(self) -> int:
        """Wall clock: whole microseconds since the epoch."""
        return time.time_ns() // 1000

    monotonic = staticmethod(time.monotonic)
    """Seconds that never step back; only differences mean something."""


SYSTEM_CLOCK = SystemClock()

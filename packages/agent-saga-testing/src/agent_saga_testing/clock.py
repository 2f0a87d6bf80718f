"""A clock that moves only when it is told to."""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["FakeClock"]

DEFAULT_START: Final = 1_700_000_000_000_000


class FakeClock:
    """A `Clock` for tests: time stands still until `advance`.

    Args:
        start_us: the wall clock at first, in microseconds since the epoch.
        tick: seconds by which every look at the clock advances it; 0 lets it stand still.

    The wall clock can be set to another time, also back, as the clocks of machines can; the
    monotonic one only goes forward.
    """

    def __init__(self, start_us: int = DEFAULT_START, *, tick: float = 0.0) -> None:
        self._wall_us = start_us
        self._monotonic = 0.0
        self._tick = tick
        self._lock = threading.Lock()

    def now_us(self) -> int:
        """Wall clock: whole microseconds since the epoch."""
        with self._lock:
            self._move(self._tick)
            return self._wall_us

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        with self._lock:
            self._move(self._tick)
            return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ValueError: the time is negative; use `set_wall` to step the wall clock back.
        """
        if seconds < 0:
            raise ValueError("Time does not run backwards; set_wall steps the wall clock.")
        with self._lock:
            self._move(seconds)

    def set_wall(self, now_us: int) -> None:
        """Step the wall clock, forward or back; the monotonic one does not notice."""
        with self._lock:
            self._wall_us = now_us

    def _move(self, seconds: float) -> None:
        self._monotonic += seconds
        self._wall_us += round(seconds * 1_000_000)

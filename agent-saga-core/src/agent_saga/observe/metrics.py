"""Counters, gauges and waits of one process, to be read by `status()` and by exporters.

Rules of this part:

- Counting never fails and never waits for anything but its own short lock.
- A forked child starts from zero: what the parent counted happened in the parent.
- Waits are kept as the last 1,024 durations, so memory stays flat.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final

from agent_saga.observe.forks import renew_after_fork

__all__ = [
    "BARRIER_WAIT",
    "EVENTS_DROPPED",
    "INVERSES_UNRECORDED",
    "LATE_ARRIVALS",
    "OBSERVER_ERRORS",
    "POISONED_WRITERS",
    "STEPS_REFUSED",
    "STEPS_UNKNOWN",
    "STEPS_WITHOUT_INVERSE",
    "UNSETTLED_STEPS",
    "Metrics",
    "process_metrics",
]

STEPS_REFUSED: Final = "steps_refused"
STEPS_UNKNOWN: Final = "steps_unknown"
STEPS_WITHOUT_INVERSE: Final = "steps_without_inverse"
INVERSES_UNRECORDED: Final = "inverses_unrecorded"
LATE_ARRIVALS: Final = "late_arrivals"
UNSETTLED_STEPS: Final = "unsettled_steps"
POISONED_WRITERS: Final = "poisoned_writers"
BARRIER_WAIT: Final = "barrier_wait_seconds"
OBSERVER_ERRORS: Final = "observer_errors"
EVENTS_DROPPED: Final = "events_dropped"

_KEPT: Final = 1024


class Metrics:
    """Named counters, gauges and waits; safe to use from several threads."""

    def __init__(self) -> None:
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start from zero, as a forked child does."""
        self._lock = threading.Lock()
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, float] = {}
        self._waits: dict[str, deque[float]] = {}

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counters[name] = self._counters.get(name, 0) + by

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge to what holds now."""
        with self._lock:
            self._gauges[name] = value

    def wait(self, name: str, seconds: float) -> None:
        """Add one duration to the recent waits of a name."""
        with self._lock:
            recent = self._waits.get(name)
            if recent is None:
                recent = self._waits[name] = deque(maxlen=_KEPT)
            recent.append(seconds)

    def snapshot(self) -> dict[str, Any]:
        """Return all values by name: counters, gauges, and each wait as count, p50, p99 and max."""
        with self._lock:
            told: dict[str, Any] = {**self._counters, **self._gauges}
            waits = {name: sorted(recent) for name, recent in self._waits.items()}
        return told | {name: _spread(recent) for name, recent in waits.items()}


def _spread(ordered: list[float]) -> dict[str, float]:
    last = len(ordered) - 1
    return {
        "count": len(ordered),
        "p50": ordered[last // 2],
        "p99": ordered[round(last * 0.99)],
        "max": ordered[last],
    }


_METRICS: Final = Metrics()


def process_metrics() -> Metrics:
    """Return the metrics of this process."""
    return _METRICS

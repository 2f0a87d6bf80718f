"""Events of one log, held back until their records are durable.

Rules of this part:

- An observer is told what a crash can no longer take back: an event leaves when the log's highest
  durable sequence number has reached its record, in the order of the records.
- Whoever asks `active` first makes no event that nobody observes.
- What waits is bounded; beyond it the oldest are dropped and counted. A log that has failed lets
  nothing out.
"""

from __future__ import annotations

import heapq
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agent_saga.domain.clock import SYSTEM_CLOCK, Clock
from agent_saga.observe.events import QUEUE_LENGTH, Event, EventStream
from agent_saga.observe.forks import renew_after_fork
from agent_saga.observe.metrics import EVENTS_DROPPED, Metrics, process_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    _Waiting: TypeAlias = tuple[int, int, Event]

__all__ = ["DurableEvents"]


class DurableEvents:
    """Hands a log's events to a stream once their records are durable.

    Args:
        stream: where the events go.
        synced: returns the log's highest durable sequence number.
        clock: where the time of an event is read.
        metrics: where drops are counted; those of the process when not given.
    """

    def __init__(
        self,
        stream: EventStream,
        synced: Callable[[], int],
        *,
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
    ) -> None:
        self._stream = stream
        self._synced = synced
        self._clock = clock
        self._metrics = process_metrics() if metrics is None else metrics
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget what waits: the parent hands it on."""
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._made = 0

    @property
    def active(self) -> bool:
        """True while anybody observes."""
        return self._stream.active

    def after(
        self,
        seq: int,
        *,
        name: str,
        saga: str = "",
        step: str = "",
        generation: int = 0,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Queue an event for the moment when its record is durable; never waits and never fails.

        Args:
            seq: the record's sequence number.
            name: the name of its record.
            saga: the saga's id.
            step: the step's id.
            generation: the step's generation.
            data: further facts; copied, and read-only afterwards.
        """
        facts = MappingProxyType(dict(data or {}))
        event = Event(name, self._clock.now_us(), saga, step, generation, facts)
        with self._lock:
            self._made += 1
            heapq.heappush(self._waiting, (seq, self._made, event))
            if len(self._waiting) > QUEUE_LENGTH:
                heapq.heappop(self._waiting)
                self._metrics.count(EVENTS_DROPPED)
        self.reached()

    def reached(self) -> None:
        """Let out every event whose record is durable now; the log calls it after each sync."""
        synced = self._synced()
        with self._lock:
            while self._waiting and self._waiting[0][0] <= synced:
                # Published under the lock: two threads would otherwise change the order.
                self._stream.publish(heapq.heappop(self._waiting)[2])

"""One stream of immutable events to observers, off the hot path.

Rules of this part:

- Whoever publishes asks `stream.active` first: with no observer an event is not even made.
- Publishing never waits and never fails. Each observer has a bounded queue and a daemon thread of
  its own, so that one that hangs or raises harms neither the engine nor the others. Its errors are
  logged and counted; when its queue is full, events are dropped for it, counted, and said.
- An event is published after its record is out, never before. Events in flight are lost in a crash;
  the log is the truth, and nothing may be decided from events.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from agent_saga.observe.forks import renew_after_fork
from agent_saga.observe.logger import logger
from agent_saga.observe.metrics import EVENTS_DROPPED, OBSERVER_ERRORS, Metrics, process_metrics

__all__ = ["Event", "EventStream"]

QUEUE_LENGTH: Final = 10_000
_logger = logger("agent_saga.observe")


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a saga, as observers are told.

    Attributes:
        name: the name of its record, for example "STEP_COMMITTED".
        time: whole microseconds since the epoch, for display.
        saga: the saga's id.
        step: the step's id, or an empty string.
        generation: the step's generation.
        data: further facts by name, read-only; secrets are masked.
    """

    name: str
    time: int
    saga: str = ""
    step: str = ""
    generation: int = 0
    data: Mapping[str, Any] = MappingProxyType({})


Observer = Callable[[Event], object]


class _Subscription:
    """One observer with its queue and its thread."""

    def __init__(self, name: str, observer: Observer, length: int, metrics: Metrics) -> None:
        self.name = name
        self._observer = observer
        self._length = length
        self._metrics = metrics
        self.dropped = 0
        self.errors = 0
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start with an empty queue and no thread; the parent delivers what it had queued."""
        self._queue: deque[Event] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._busy = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, event: Event) -> None:
        """Queue an event, or drop it when the queue is full."""
        with self._changed:
            if self._closing:
                return
            if len(self._queue) >= self._length or not self._running():
                self._drop()
                return
            self._queue.append(event)
            self._changed.notify_all()

    def flush(self, deadline: float) -> bool:
        """Wait until everything queued was delivered; say whether that was reached in time."""
        left = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        with self._changed:
            return self._changed.wait_for(self._idle, left)

    def close(self) -> None:
        """Take no more events; the thread ends when it has delivered what is queued."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _idle(self) -> bool:
        return not self._queue and not self._busy

    def _running(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(
                target=self._run, name=f"agent-saga-observer-{self.name}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no thread can start while the interpreter shuts down
                return False
            self._thread = thread
        return True

    def _drop(self) -> None:
        self.dropped += 1
        self._metrics.count(EVENTS_DROPPED)
        if self.dropped == 1 or self.dropped % self._length == 0:
            _logger.warning(
                "The observer %r cannot keep up: %d events were dropped for it so far.",
                self.name,
                self.dropped,
            )

    def _run(self) -> None:
        while (event := self._next()) is not None:
            self._deliver(event)

    def _next(self) -> Event | None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._queue or self._closing)
            if not self._queue:
                return None
            self._busy = True
            return self._queue.popleft()

    def _deliver(self, event: Event) -> None:
        try:
            self._observer(event)
        except BaseException:  # a SystemExit would end the thread in silence
            self.errors += 1
            self._metrics.count(OBSERVER_ERRORS)
            _logger.exception("The observer %r failed on %s.", self.name, event.name)


class EventStream:
    """Hands events to observers; safe to use from several threads.

    Args:
        queue_length: how many events may wait for one observer.
        metrics: where errors and drops are counted; those of the process when not given.

    Attributes:
        active: True while anybody observes; ask it before an event is made.
    """

    def __init__(self, *, queue_length: int = QUEUE_LENGTH, metrics: Metrics | None = None) -> None:
        self.active = False
        self._length = queue_length
        self._metrics = process_metrics() if metrics is None else metrics
        self._subscriptions: tuple[_Subscription, ...] = ()
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock, which another thread of the parent may have held."""
        self._lock = threading.Lock()

    def subscribe(self, observer: Observer, *, name: str = "") -> Callable[[], None]:
        """Have an observer called with every event from now on, on a thread of its own.

        What it raises is logged and counted. It may be slow; see the rules of this module.

        Args:
            observer: called with one `Event`.
            name: how messages call it; the function's name when not given.

        Returns:
            A function that ends the subscription; what is queued is still delivered.
        """
        label = name or getattr(observer, "__qualname__", type(observer).__name__)
        subscription = _Subscription(label, observer, self._length, self._metrics)
        with self._lock:
            self._set((*self._subscriptions, subscription))
        return lambda: self._unsubscribe(subscription)

    def publish(self, event: Event) -> None:
        """Queue an event for every observer; never waits and never fails."""
        for subscription in self._subscriptions:
            subscription.put(event)

    def emit(
        self,
        name: str,
        time_us: int,
        *,
        saga: str = "",
        step: str = "",
        generation: int = 0,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Make an event and queue it, if anybody observes.

        Args:
            name: the name of its record.
            time_us: whole microseconds since the epoch.
            saga: the saga's id.
            step: the step's id.
            generation: the step's generation.
            data: further facts; copied, and read-only afterwards.
        """
        if self.active:
            facts = MappingProxyType(dict(data or {}))
            self.publish(Event(name, time_us, saga, step, generation, facts))

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until every observer has got what was published; for tests and shutdown.

        Args:
            timeout: seconds to wait at most.

        Returns:
            False when an observer had not finished in time.
        """
        deadline = time.monotonic() + timeout
        return all(subscription.flush(deadline) for subscription in self._subscriptions)

    def close(self, timeout: float = 5.0) -> bool:
        """Deliver what is queued, for at most `timeout` seconds, and end all subscriptions."""
        subscriptions = self._subscriptions
        for subscription in subscriptions:
            self._unsubscribe(subscription)
        deadline = time.monotonic() + timeout
        return all(subscription.flush(deadline) for subscription in subscriptions)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return, for each observer by name, how many errors and drops it had."""
        return {s.name: {"errors": s.errors, "dropped": s.dropped} for s in self._subscriptions}

    def _unsubscribe(self, subscription: _Subscription) -> None:
        with self._lock:
            self._set(tuple(s for s in self._subscriptions if s is not subscription))
        subscription.close()

    def _set(self, subscriptions: tuple[_Subscription, ...]) -> None:
        self._subscriptions = subscriptions
        self.active = bool(subscriptions)

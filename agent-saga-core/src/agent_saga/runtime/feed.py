"""From the log to observers: every record, once it is durable, as an event."""

from __future__ import annotations

import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from agent_saga.observe.events import Event, EventStream
from agent_saga.wal.encoding import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_saga.wal.base import BaseWAL, Durable


class Feed:
    """The events of one log; costs nothing until somebody observes.

    It does not keep its log alive: a log that nobody uses any more goes, with what it holds.
    """

    def __init__(self, wal: BaseWAL) -> None:
        self.stream = EventStream()
        self._connected = False
        self._plugins: set[str] = set()
        self._wal = ref(wal)

    def subscribe(self, observer: Callable[[Any], object], *, name: str = "") -> Callable[[], None]:
        """Have an observer told every event from now on; see `EventStream.subscribe`."""
        end = self.stream.subscribe(observer, name=name)
        wal = self._wal()
        if wal is not None and not self._connected:
            self._connected = True
            wal.on_durable(self._durable)
        return end

    def connect_plugins(self, observers: Mapping[str, Callable[[Any], object]]) -> None:
        """Have every plugin's observer told, each once however many kits share the log."""
        for name, observer in observers.items():
            if name not in self._plugins:
                self._plugins.add(name)
                self.subscribe(observer, name=name)

    def _durable(self, batch: list[Durable]) -> None:
        if not self.stream.active:
            return
        for _, (time, event, saga, _epoch, step, generation, payload) in batch:
            data = decode(payload)
            facts = MappingProxyType(data if isinstance(data, dict) else {})
            self.stream.publish(Event(event, time, saga, step, generation, facts))


_lock = threading.Lock()
_feeds: WeakKeyDictionary[BaseWAL, Feed] = WeakKeyDictionary()


def feed_of(wal: BaseWAL) -> Feed:
    """Return the feed of a log, the same for every caller."""
    with _lock:
        feed = _feeds.get(wal)
        if feed is None:
            feed = _feeds[wal] = Feed(wal)
        return feed

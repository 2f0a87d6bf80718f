"""Observers are told what a crash can no longer take back."""

from __future__ import annotations

from typing import Any

import pytest

from agent_saga.observe import durable
from agent_saga.observe.durable import DurableEvents
from agent_saga.observe.events import Event, EventStream
from agent_saga.observe.metrics import EVENTS_DROPPED, Metrics


class Log:
    synced = 0

    def now(self) -> int:
        return self.synced


@pytest.fixture
def parts() -> Any:
    log, metrics, seen = Log(), Metrics(), list[Event]()
    stream = EventStream(metrics=metrics)
    stream.subscribe(seen.append)
    yield log, metrics, stream, DurableEvents(stream, log.now, metrics=metrics), seen
    stream.close()


def test_an_event_waits_for_its_record_and_keeps_the_order_of_the_records(parts: Any) -> None:
    log, _, stream, events, seen = parts
    for seq in (3, 1, 2):
        events.after(seq, name=f"E{seq}", saga="s", step="t", generation=1, data={"n": seq})
    stream.flush()
    assert seen == []
    log.synced = 2
    events.reached()
    stream.flush()
    assert [event.name for event in seen] == ["E1", "E2"]
    assert (seen[0].saga, seen[0].step, seen[0].generation) == ("s", "t", 1)
    assert dict(seen[0].data) == {"n": 1}
    assert seen[0].time > 0


def test_an_event_whose_record_is_durable_already_goes_out_at_once(parts: Any) -> None:
    log, _, stream, events, seen = parts
    log.synced = 9
    events.after(9, name="E")
    stream.flush()
    assert len(seen) == 1


def test_it_is_active_while_anybody_observes() -> None:
    stream = EventStream(metrics=Metrics())
    events = DurableEvents(stream, lambda: 0)
    assert not events.active
    end = stream.subscribe(print)
    assert events.active
    end()


def test_what_waits_is_bounded(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log, metrics, stream, events, seen = parts
    monkeypatch.setattr(durable, "QUEUE_LENGTH", 2)
    for seq in (1, 2, 3):
        events.after(seq, name=f"E{seq}")
    log.synced = 3
    events.reached()
    stream.flush()
    assert [event.name for event in seen] == ["E2", "E3"]
    assert metrics.snapshot()[EVENTS_DROPPED] == 1

"""The event stream: off the hot path, isolated, bounded."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Any

import pytest

from agent_saga.observe.events import Event, EventStream
from agent_saga.observe.metrics import EVENTS_DROPPED, OBSERVER_ERRORS, Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def stream(metrics: Metrics) -> Any:
    made = EventStream(queue_length=4, metrics=metrics)
    yield made
    made.close()


def test_without_an_observer_the_stream_is_inactive(stream: EventStream) -> None:
    assert not stream.active
    stream.emit("STEP_INTENT", 1)
    end = stream.subscribe(print)
    assert stream.active
    end()
    assert not stream.active


def test_an_observer_gets_events_in_order(stream: EventStream) -> None:
    seen: list[Event] = []
    stream.subscribe(seen.append)
    for number in range(3):
        stream.emit(
            "STEP_COMMITTED", number, saga="s", step="t", generation=2, data={"tool": "charge"}
        )
    assert stream.flush()
    assert [event.time for event in seen] == [0, 1, 2]
    event = seen[0]
    assert (event.name, event.saga, event.step, event.generation) == ("STEP_COMMITTED", "s", "t", 2)
    assert dict(event.data) == {"tool": "charge"}


def test_an_event_cannot_be_changed(stream: EventStream) -> None:
    facts = {"tool": "charge"}
    seen: list[Event] = []
    stream.subscribe(seen.append)
    stream.emit("STEP_INTENT", 1, data=facts)
    facts["tool"] = "changed"
    stream.flush()
    assert seen[0].data["tool"] == "charge"
    with pytest.raises(AttributeError):
        seen[0].name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        seen[0].data["tool"] = "other"  # type: ignore[index]


def test_observers_run_on_a_thread_of_their_own(stream: EventStream) -> None:
    threads: list[threading.Thread] = []
    stream.subscribe(lambda event: threads.append(threading.current_thread()), name="one")
    stream.subscribe(lambda event: threads.append(threading.current_thread()), name="two")
    stream.emit("STEP_INTENT", 1)
    stream.flush()
    assert {thread.name for thread in threads} == {
        "agent-saga-observer-one",
        "agent-saga-observer-two",
    }
    assert all(thread.daemon for thread in threads)


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1), KeyboardInterrupt()])
def test_an_observer_that_raises_harms_nobody(
    stream: EventStream,
    metrics: Metrics,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    seen: list[int] = []

    def broken(event: Event) -> None:
        raise error

    stream.subscribe(broken, name="broken")
    stream.subscribe(lambda event: seen.append(event.time))
    stream.emit("STEP_INTENT", 1)
    stream.emit("STEP_INTENT", 2)
    assert stream.flush()
    assert seen == [1, 2]
    assert stream.counts()["broken"] == {"errors": 2, "dropped": 0}
    assert metrics.snapshot()[OBSERVER_ERRORS] == 2
    assert "'broken' failed on STEP_INTENT" in caplog.text


def test_an_observer_that_hangs_loses_events_and_the_others_do_not(
    stream: EventStream, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    started, release = threading.Event(), threading.Event()
    seen: list[int] = []

    def hang(event: Event) -> None:
        started.set()
        release.wait()

    stream.subscribe(hang, name="hangs")
    end = stream.subscribe(lambda event: seen.append(event.time), name="works")
    stream.emit("E", 0)
    started.wait()
    with caplog.at_level(logging.WARNING):
        for number in range(1, 8):
            stream.emit("E", number)
            stream._subscriptions[1].flush(float("inf"))
    assert seen == list(range(8))
    assert stream.counts()["hangs"]["dropped"] == 3
    assert metrics.snapshot()[EVENTS_DROPPED] == 3
    assert "'hangs' cannot keep up" in caplog.text
    assert not stream.flush(0.0)
    release.set()
    assert stream.flush()
    end()


def test_an_observer_may_publish_and_unsubscribe(stream: EventStream) -> None:
    seen: list[str] = []

    def again(event: Event) -> None:
        seen.append(event.name)
        if event.name == "first":
            stream.emit("second", 2)
        else:
            end()

    end = stream.subscribe(again)
    observed = stream._subscriptions[0]
    stream.emit("first", 1)
    assert observed.flush(float("inf"))
    assert seen == ["first", "second"]
    assert not stream.active


def test_closing_delivers_what_is_queued_and_takes_no_more(stream: EventStream) -> None:
    seen: list[int] = []
    stream.subscribe(lambda event: seen.append(event.time))
    subscription = stream._subscriptions[0]
    stream.emit("E", 1)
    assert stream.close()
    subscription.put(Event("E", 2))
    assert seen == [1]
    assert not stream.active


def test_a_thread_that_cannot_start_drops_the_event(
    stream: EventStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    stream.subscribe(print, name="late")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        stream.emit("E", 1)
    assert stream.counts()["late"]["dropped"] == 1


def test_many_threads_may_publish(metrics: Metrics) -> None:
    stream = EventStream(metrics=metrics)
    seen: list[int] = []
    stream.subscribe(lambda event: seen.append(event.time))

    def publish(start: int) -> None:
        for number in range(start, start + 200):
            stream.emit("E", number)

    threads = [threading.Thread(target=publish, args=(n * 200,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stream.close()
    assert sorted(seen) == list(range(800))


FORK = """
import os
from agent_saga.observe.events import EventStream
from agent_saga.observe.metrics import Metrics
stream = EventStream(metrics=Metrics())
seen = []
stream.subscribe(lambda event: seen.append(event.time))
stream.emit("E", 1)
assert stream.flush()
with stream._subscriptions[0]._changed, stream._lock, stream._metrics._lock:
    child = os.fork()
    if child == 0:
        stream.emit("E", 2)
        stream._metrics.count("n")
        os._exit(0 if stream.flush() and seen == [1, 2] and stream.close() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert seen == [1]
"""


def test_a_forked_child_observes_with_locks_and_a_thread_of_its_own() -> None:
    # Python 3.12 warns of every fork beside threads; that is the case under test.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK]
    subprocess.run(command, check=True, timeout=300)

"""Counters, gauges and waits."""

from __future__ import annotations

import threading

from agent_saga.observe.metrics import BARRIER_WAIT, Metrics, process_metrics


def test_counters_add_and_gauges_replace() -> None:
    metrics = Metrics()
    metrics.count("steps")
    metrics.count("steps", 2)
    metrics.gauge("open", 5)
    metrics.gauge("open", 1)
    assert metrics.snapshot() == {"steps": 3, "open": 1}


def test_waits_are_told_as_their_spread() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.wait(BARRIER_WAIT, float(number))
    assert metrics.snapshot() == {BARRIER_WAIT: {"count": 100, "p50": 49, "p99": 98, "max": 99}}


def test_memory_of_waits_is_flat() -> None:
    metrics = Metrics()
    for number in range(5000):
        metrics.wait("w", float(number))
    assert metrics.snapshot()["w"]["count"] == 1024


def test_counting_from_several_threads_loses_nothing() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(1000):
            metrics.count("n")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.snapshot()["n"] == 4000


def test_a_snapshot_is_a_copy() -> None:
    metrics = Metrics()
    metrics.snapshot()["n"] = 1
    assert metrics.snapshot() == {}


def test_there_is_one_set_of_metrics_in_a_process() -> None:
    assert process_metrics() is process_metrics()

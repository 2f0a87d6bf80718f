"""When the recovery service compacts, and that it goes on whatever comes of it."""

from __future__ import annotations

import logging

import pytest

from agent_saga.cli import compacting
from agent_saga.cli.compacting import Schedule
from agent_saga.errors import CompactionRefused
from agent_saga.wal.compaction import Compacted


class Daemon:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def compact(self):
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else Compacted()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(compacting.time, "monotonic", lambda: now[0])
    return now


def test_the_first_time_is_soon_and_then_once_in_every_period(clock):
    daemon = Daemon()
    schedule = Schedule(daemon, 86_400.0)
    counts = []
    for seconds in (0, 599, 2, 3600, 86_400):
        clock[0] += seconds
        schedule.after_a_pass()
        counts.append(daemon.asked)
    assert counts == [0, 0, 1, 1, 2]


def test_zero_never_compacts(clock):
    daemon = Daemon()
    schedule = Schedule(daemon, 0.0)
    clock[0] += 1e9
    schedule.after_a_pass()
    assert daemon.asked == 0


def test_what_goes_wrong_is_told_and_tried_again(clock, caplog):
    daemon = Daemon(CompactionRefused("busy"), RuntimeError("x"), Compacted(kept=("damaged",)))
    schedule = Schedule(daemon, 10.0)
    with caplog.at_level(logging.INFO, "agent_saga.recovery"):
        for _ in range(3):
            clock[0] += 11
            schedule.after_a_pass()
    assert daemon.asked == 3
    assert "busy" in caplog.text
    assert "nothing leaves the log: damaged" in caplog.text

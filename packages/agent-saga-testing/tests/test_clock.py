"""The fake clock."""

from __future__ import annotations

import pytest

from agent_saga.domain.clock import Clock
from agent_saga_testing.clock import FakeClock


def reads(clock: Clock) -> tuple[int, float]:
    return clock.now_us(), clock.monotonic()


def test_time_stands_still_until_it_is_moved():
    clock = FakeClock(1_000)
    assert reads(clock) == reads(clock) == (1_000, 0.0)
    clock.advance(2.5)
    assert reads(clock) == (2_501_000, 2.5)


def test_the_wall_clock_steps_alone():
    clock = FakeClock(1_000)
    clock.advance(1)
    clock.set_wall(5)
    assert reads(clock) == (5, 1.0)


def test_a_ticking_clock_moves_at_every_look():
    clock = FakeClock(0, tick=0.5)
    assert [clock.monotonic(), clock.monotonic(), clock.now_us()] == [0.5, 1.0, 1_500_000]


def test_time_does_not_run_backwards():
    with pytest.raises(ValueError, match="backwards"):
        FakeClock().advance(-1)

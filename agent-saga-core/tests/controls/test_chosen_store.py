"""Which limit store counts for a log after another one was chosen."""

from __future__ import annotations

import pytest

from agent_saga import LimitStore, MemoryWAL, set_limit_store
from agent_saga.controls.control import Surroundings
from agent_saga.controls.limits import chosen
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.observe.metrics import process_metrics
from agent_saga.state.memory import MemoryStateStore


@pytest.fixture
def choose():
    yield set_limit_store
    set_limit_store(None)


def test_a_store_is_not_taken_for_one_that_was_dropped_and_had_its_address(choose, monkeypatch):
    monkeypatch.setattr(chosen, "id", lambda _: 1, raising=False)
    around = Surroundings(MemoryWAL(), MemoryStateStore, SYSTEM_CLOCK, process_metrics())
    found = []
    for state in (MemoryStateStore(), MemoryStateStore()):
        choose(LimitStore(state))
        found.append(chosen.limit_store_for(around)._state is state)
        assert chosen.limit_store_for(around) is chosen.limit_store_for(around)
    assert found == [True, True]

"""From the log to observers."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from agent_saga import AgentKit
from agent_saga.domain.records import Ev
from agent_saga.runtime.feed import feed_of
from agent_saga.wal.base import BaseWAL
from agent_saga.wal.memory import MemoryWAL


@pytest.fixture
def wal() -> Any:
    made = MemoryWAL()
    yield made
    made.close()


def test_an_observer_is_told_after_its_record_is_durable(wal: Any) -> None:
    seen: list[Any] = []
    end = feed_of(wal).subscribe(lambda event: seen.append((event.name, wal.synced)))
    seq = wal.append(Ev.STEP_INTENT, saga="s", epoch=1, step="a", payload={"x": 1})
    wal.barrier_sync()
    assert feed_of(wal).stream.flush()
    synced = dict(seen)[Ev.STEP_INTENT]
    assert synced >= seq
    end()


def test_plugins_are_told_once_however_many_kits_share_a_log(wal: Any) -> None:
    seen: list[str] = []

    def observer(event: Any) -> None:
        seen.append(event.name)

    for _ in range(3):
        feed_of(wal).connect_plugins({"acme": observer})
    wal.append(Ev.SAGA_BEGIN, saga="s", epoch=1)
    wal.barrier_sync()
    assert feed_of(wal).stream.flush()
    assert seen.count(Ev.SAGA_BEGIN) == 1


def test_a_log_that_nobody_uses_any_more_goes() -> None:
    def used() -> weakref.ref[BaseWAL]:
        kit = AgentKit("gone", wal="memory:")
        with kit.transaction():
            pass
        return weakref.ref(kit.runtime.wal)

    log = used()
    gc.collect()
    assert log() is None

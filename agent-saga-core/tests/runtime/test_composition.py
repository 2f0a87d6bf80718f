"""Engines are put together once, from settings, plugins, log and gate."""

from __future__ import annotations

import threading

import pytest

from agent_saga import (
    AgentKit,
    ConfigurationError,
    MemoryWAL,
    PreFlightGate,
    Rule,
    SagaAborted,
    Settings,
    tool_is,
)
from agent_saga.runtime.composition import Runtime, process_runtime, timing, tool_pool
from agent_saga.runtime.logs import canonical, default_wal, set_default_wal, wal_at


@pytest.mark.parametrize("wal", [MemoryWAL(), "memory:"])
def test_an_engine_is_put_together_once(wal):
    runtime = Runtime(wal=wal, settings=Settings())
    engines = set()

    def look():
        engines.add(id(runtime.engine()))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engines == {id(runtime.engine())}


def test_an_engine_carries_what_the_settings_say():
    settings = Settings(
        settle=1.0,
        inverse_timeout=2.0,
        inverse_attempts=4,
        inverse_delay=0.5,
        settle_after=3.0,
        settle_unknown="release",
        cancel_grace=0.1,
        step_timeout=9.0,
        approval_timeout=8.0,
        after_stuck="continue",
    )
    bounds = timing(settings)
    assert (bounds.settle, bounds.undo_timeout, bounds.undo_attempts) == (1.0, 2.0, 4)
    assert (bounds.undo_delay, bounds.settle_after, bounds.cancel_grace) == (0.5, 3.0, 0.1)
    assert (bounds.step_timeout, bounds.approval) == (9.0, 8.0)
    assert bounds.wait_to_settle is False
    assert bounds.after_stuck == "continue"
    assert timing(Settings()).wait_to_settle is True


def test_a_time_for_inverses_that_was_set_bounds_them_on_this_thread_too():
    assert timing(Settings()).undo_bounded is False
    assert timing(Settings(inverse_timeout=5.0)).undo_bounded is True


def test_the_gate_that_was_given_judges():
    gate = PreFlightGate([Rule("no", tool_is("x"))])
    runtime = Runtime(wal=MemoryWAL(), gate=gate, settings=Settings())
    kit = AgentKit("judged", gate=gate, wal=MemoryWAL())
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        kit.safe_tool(int, "REVERSIBLE", name="x")()
    assert caught.value.cause.rule == "no"
    assert len(runtime.engine().gate.checks) == len(kit.runtime.engine().gate.checks)
    assert Runtime(wal=MemoryWAL()).gate.rules == ()


def test_one_pool_serves_a_process():
    assert tool_pool(7) is tool_pool(7)
    assert tool_pool(7).threads == 7
    assert process_runtime() is process_runtime()


@pytest.mark.parametrize(
    ("address", "same"),
    [("/a/log", "file:/a/log"), ("file:/a/./log", "file:/a/log"), ("memory:", "memory:")],
)
def test_addresses_have_one_form(address, same):
    assert canonical(address) == same


@pytest.mark.parametrize("wal", [5, None, object(), ["x"]])
def test_what_is_no_log_and_no_address_is_refused(wal):
    with pytest.raises(ConfigurationError):
        wal_at(wal)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ConfigurationError):
        wal_at("carrier-pigeon://log")


def test_the_default_log_can_be_set_and_given_back(tmp_path):
    wal = MemoryWAL()
    set_default_wal(wal)
    try:
        assert default_wal(Settings()) is wal
    finally:
        set_default_wal(None)
    settings = Settings(wal=str(tmp_path / "log"))
    assert default_wal(settings) is default_wal(settings)
    assert default_wal(settings).address == f"file:{tmp_path}/log"

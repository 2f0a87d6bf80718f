"""`agent-saga limits` and `agent-saga breaker`: what people see, and what machines read."""

from __future__ import annotations

import pytest

from agent_saga import (
    AgentKit,
    BreakerPolicy,
    BudgetLimit,
    CircuitBreaker,
    CircuitOpen,
    FileWAL,
    LimitExceeded,
    PreFlightGate,
    RateLimit,
    by_arg,
    set_breaker,
)
from agent_saga.state.address import open_state
from agent_saga.state.base import Change


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def kit(log):
    wal = FileWAL(log)
    gate = PreFlightGate(
        limits=[
            BudgetLimit("spend", arg="amount", max_total="10.5", window=3600, scope=by_arg("to")),
            RateLimit("calls", max_calls=3, window=60),
        ]
    )
    yield AgentKit("k", wal=wal, gate=gate)
    wal.close()


def test_limits_tell_what_is_used_and_what_is_left(cli, kit, log):
    pay = kit.safe_tool(lambda amount, to: None, "COMPENSABLE", name="pay")
    with kit.transaction():
        pay(10.25, "acme")
        pay(2, "a\x1b[2Jb")
        with pytest.raises(LimitExceeded):
            pay(1, "acme")
    run = cli("limits", "--wal-path", log)
    assert run.code == 0
    assert "\x1b" not in run.out
    lines = [line.split() for line in run.out.splitlines()]
    assert ["spend", "to=acme", "10.25", "10.5", "0.25", "3600", "s", "1"] in lines
    assert ["calls", "all", "2", "3", "1", "60", "s", "1"] in lines
    found = cli("limits", "--wal-path", log, "--limit", "calls", "--json").document["limits"]
    assert [(one["used"], one["left"], one["most"]) for one in found] == [("2", "1", "3")]


def test_limits_of_a_log_that_is_not_there_make_nothing(cli, log):
    run = cli("limits", "--wal-path", log)
    assert (run.code, "There is no log here yet." in run.out) == (3, True)
    assert cli("limits", "--wal-path", log, "--limit", "x").code == 3
    assert cli("breaker", "status", "--wal-path", log).code == 3
    assert cli("breaker", "reset", "x", "--by", "ann", "--wal-path", log).code == 3
    assert not log.exists()


def test_limits_of_a_store_of_its_own(cli, tmp_path):
    store = tmp_path / "x.sqlite"
    run = cli("limits", "--store", f"sqlite:{store}", "--json")
    assert (run.code, run.document["limits"], store.exists()) == (3, [], False)
    with open_state(f"sqlite:{store}") as state:
        state.transact(["x"], lambda docs: Change(None, {"x": {"a": 1}}), durable=True)
    run = cli("limits", "--store", f"sqlite:{store}", "--json")
    assert (run.code, run.document["limits"]) == (0, [])
    named = cli("limits", "--store", f"sqlite:{store}", "--limit", "daily")
    assert (named.code, "Nothing is counted for a limit 'daily'" in named.err) == (3, True)


@pytest.fixture
def breaker():
    set_breaker(CircuitBreaker(BreakerPolicy(failure_threshold=1)))
    yield
    set_breaker(None)


def test_a_breaker_is_shown_and_closed_by_hand_while_its_process_runs(
    cli, kit, log, breaker, monkeypatch
):
    from agent_saga.controls.breaker import breaker as module

    monkeypatch.setattr(module, "REFRESH", 0.0)
    down = [True]

    def call():
        if down[0]:
            raise ConnectionError
        return "ok"

    tool = kit.safe_tool(call, "REVERSIBLE", name="call")
    with kit.transaction(reraise=True):
        with pytest.raises(ConnectionError):
            tool()
        with pytest.raises(CircuitOpen):
            tool()
        run = cli("breaker", "status", "--wal-path", log)
        assert run.code == 1
        assert "OPEN" in run.out
        assert "it failed 1 time in a row" in run.out
        assert "breaker reset" in run.out
        down[0] = False
        assert cli("breaker", "reset", "other", "--by", "ann", "--wal-path", log).code == 3
        assert cli("breaker", "reset", "call", "--by", " ", "--wal-path", log).code == 2
        assert cli("breaker", "reset", "call", "--wal-path", log).code == 2
        done = cli("breaker", "reset", "call", "--by", "ann", "--wal-path", log, "--json")
        assert (done.code, done.document["closed"]) == (0, True)
        assert tool() == "ok"
    found = cli("breaker", "status", "--wal-path", log, "--json")
    assert (found.code, found.document["breakers"][0]["state"]) == (0, "closed")
    told = [r.data for r in kit.runtime.wal.read_all() if r.event == "CIRCUIT_CLOSED"]
    assert [one.get("by") for one in told] == ["ann"]

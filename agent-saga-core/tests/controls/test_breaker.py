"""The breaker: it opens, tries with care, closes, and never stands in the way of an undo."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from agent_saga import (
    AgentKit,
    BreakerPolicy,
    CircuitBreaker,
    CircuitOpen,
    Compensation,
    ConfigurationError,
    FileWAL,
    MemoryWAL,
    RefusedError,
    RetryPolicy,
    Rule,
    SagaAborted,
    set_breaker,
)
from agent_saga.controls.breaker.circuit import CLOSED, HALF_OPEN, KEY, OPEN, Circuits
from agent_saga.controls.control import Surroundings
from agent_saga.controls.limits.moments import Moment
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.observe.metrics import process_metrics
from agent_saga.state.base import Change
from agent_saga.state.memory import MemoryStateStore


class Clock:
    def __init__(self):
        self.now = 1000.0

    def now_us(self):
        return int(self.now * 1_000_000)

    def monotonic(self):
        return self.now


class Provider:
    """A provider that can be down."""

    def __init__(self):
        self.down = True
        self.calls = 0

    def call(self, error=ConnectionError):
        self.calls += 1
        if self.down:
            raise error("down")
        return "ok"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture(params=["memory", "files"])
def wal(request, tmp_path):
    if request.param == "memory":
        yield MemoryWAL()
        return
    log = FileWAL(tmp_path / "log")
    yield log
    log.close()


@pytest.fixture
def breaking(clock):
    def make(wal, policy=None, **options):
        set_breaker(CircuitBreaker(policy or BreakerPolicy(failure_threshold=3), clock=clock))
        return AgentKit("kit", wal=wal, **options)

    yield make
    set_breaker(None)


def tries(kit, tool, times=1, **options):
    """How each of some calls ended, each in a saga of its own."""
    ends = []
    for _ in range(times):
        try:
            with kit.transaction(reraise=True):
                tool(**options)
        except CircuitOpen:
            ends.append("refused")
        except Exception:
            ends.append("failed")
        else:
            ends.append("ok")
    return ends


def events(wal):
    return [r.event for r in wal.read_all() if r.event.startswith("CIRCUIT")]


@pytest.mark.guarantee("BREAKER-1")
def test_a_tool_that_keeps_failing_is_left_alone_then_tried_then_used(
    breaking, wal, clock, provider
):
    kit = breaking(wal)
    tool = kit.safe_tool(provider.call, "REVERSIBLE", name="call")
    assert tries(kit, tool, 5) == ["failed"] * 3 + ["refused"] * 2
    assert provider.calls == 3
    clock.now += 29
    assert tries(kit, tool) == ["refused"]
    clock.now += 2
    assert tries(kit, tool, 2) == ["failed", "refused"]
    clock.now += 31
    provider.down = False
    assert tries(kit, tool, 3) == ["ok"] * 3
    assert provider.calls == 7
    assert events(wal) == [
        "CIRCUIT_OPENED",
        "CIRCUIT_PROBED",
        "CIRCUIT_OPENED",
        "CIRCUIT_PROBED",
        "CIRCUIT_CLOSED",
    ]
    told = next(r.data for r in wal.read_all() if r.event == "STEP_REFUSED")
    assert told["decision"]["control"] == "breaker"
    assert told["decision"]["facts"]["tries_again_after"] == 30.0


def test_one_success_ends_the_row_of_failures(breaking, wal, provider):
    kit = breaking(wal)
    tool = kit.safe_tool(provider.call, "REVERSIBLE")
    for _ in range(4):
        provider.down = True
        assert tries(kit, tool, 2) == ["failed"] * 2
        provider.down = False
        assert tries(kit, tool) == ["ok"]


def test_a_rate_counts_only_with_enough_calls_within_the_window(breaking, wal, clock, provider):
    policy = BreakerPolicy(failure_threshold=None, failure_rate=0.5, min_volume=6, window=60)
    kit = breaking(wal, policy)
    tool = kit.safe_tool(provider.call, "REVERSIBLE")
    assert tries(kit, tool, 5) == ["failed"] * 5
    clock.now += 70
    ends = []
    for down in (True, False, False, True, False, True):
        provider.down = down
        ends += tries(kit, tool)
    assert "refused" not in ends
    assert tries(kit, tool) == ["refused"]


def test_the_breakers_of_two_tools_are_two(breaking, wal, provider):
    kit = breaking(wal)
    bad = kit.safe_tool(provider.call, "REVERSIBLE", name="bad")
    good = kit.safe_tool(lambda: "ok", "REVERSIBLE", name="good")
    tries(kit, bad, 4)
    assert tries(kit, good) == ["ok"]


@pytest.mark.guarantee("BREAKER-1")
@pytest.mark.parametrize("kind", ["refusal", "argument", "harmless", "ignored", "cancelled"])
def test_what_says_nothing_about_a_tool_is_not_counted(breaking, wal, kind):
    policy = BreakerPolicy(failure_threshold=1, ignore=KeyError)
    from agent_saga import PreFlightGate

    kit = breaking(wal, policy, gate=PreFlightGate([Rule("r", lambda view: kind == "refusal")]))

    def work(number=1):
        if kind == "harmless":
            raise ValueError
        if kind == "ignored":
            raise KeyError
        if kind == "cancelled":
            raise KeyboardInterrupt

    tool = kit.safe_tool(work, "REVERSIBLE", not_applied_on=(ValueError,))
    options = {"nonsense": 1} if kind == "argument" else {}
    for _ in range(3):
        try:
            with kit.transaction(reraise=True):
                tool(**options)
        except (RefusedError, TypeError, ValueError, KeyError, KeyboardInterrupt) as error:
            assert not isinstance(error, CircuitOpen)  # noqa: PT017
    assert events(wal) == []


def test_a_refused_connection_is_a_failure_even_if_it_had_no_effect(breaking, wal, provider):
    kit = breaking(wal)
    tool = kit.safe_tool(provider.call, "COMPENSABLE", not_applied_on=(ConnectionError,))
    assert tries(kit, tool, 4)[-1] == "refused"


def test_a_retry_loop_ends_when_the_breaker_opens(breaking, wal, provider):
    kit = breaking(wal)
    tool = kit.safe_tool(
        provider.call,
        "REVERSIBLE",
        retry=RetryPolicy(max_retries=10, base_delay=0.001, retry_on=(ConnectionError,)),
    )
    assert tries(kit, tool) == ["refused"]
    assert provider.calls == 3


@pytest.mark.guarantee("BREAKER-1")
def test_only_so_many_probes_go_at_a_time_and_so_many_must_succeed(breaking, clock, tmp_path):
    provider, wal = Provider(), FileWAL(tmp_path / "log")
    policy = BreakerPolicy(failure_threshold=1, probes=2, success_threshold=3)
    kit = breaking(wal, policy)
    tool = kit.safe_tool(provider.call, "REVERSIBLE", name="call")
    tries(kit, tool)
    provider.down = False
    clock.now += 31
    inside, go, ends = threading.Semaphore(0), threading.Event(), []

    def slow():
        inside.release()
        go.wait(20)

    slow_tool = kit.safe_tool(slow, "REVERSIBLE", name="call")
    threads = [
        threading.Thread(target=lambda: ends.extend(tries(kit, slow_tool))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for _ in range(2):
        inside.acquire(timeout=60)
    assert tries(kit, tool, 3) == ["refused"] * 3
    go.set()
    for thread in threads:
        thread.join()
    assert ends == ["ok", "ok"]
    assert events(wal)[-1] == "CIRCUIT_PROBED"
    assert tries(kit, tool, 5) == ["ok"] * 5
    assert events(wal)[-1] == "CIRCUIT_CLOSED"
    wal.close()


@pytest.mark.guarantee("BREAKER-1")
def test_a_late_success_of_an_old_call_changes_nothing(breaking, clock):
    wal = MemoryWAL()
    kit = breaking(wal, BreakerPolicy(failure_threshold=2))
    inside, go = threading.Event(), threading.Event()

    def work(slow=False):
        if slow:
            inside.set()
            go.wait(20)
            return "ok"
        raise ConnectionError

    tool = kit.safe_tool(work, "REVERSIBLE", name="work")
    thread = threading.Thread(target=lambda: tries(kit, tool, slow=True))
    thread.start()
    inside.wait(60)
    assert tries(kit, tool, 3) == ["failed", "failed", "refused"]
    go.set()
    thread.join()
    assert tries(kit, tool) == ["refused"]
    assert events(wal) == ["CIRCUIT_OPENED"]


def test_a_probe_that_another_control_refuses_gives_its_place_back(breaking, clock, provider):
    from agent_saga import PreFlightGate

    stop = [False]
    gate = PreFlightGate([Rule("r", lambda view: stop[0])])
    kit = breaking(MemoryWAL(), BreakerPolicy(failure_threshold=1), gate=gate)
    tool = kit.safe_tool(provider.call, "REVERSIBLE")
    tries(kit, tool)
    clock.now += 31
    provider.down = False
    stop[0] = True
    assert tries(kit, tool, 2) == ["failed"] * 2  # the rule's refusals, not the breaker's
    stop[0] = False
    assert tries(kit, tool) == ["ok"]


@pytest.mark.guarantee("BREAKER-2")
def test_compensations_neither_meet_nor_feed_it(breaking, wal):
    kit = breaking(wal, BreakerPolicy(failure_threshold=1))
    undone = []

    def undo():
        undone.append(1)
        if len(undone) == 1:
            raise ConnectionError

    tool = kit.safe_tool(lambda: 1, compensate=lambda r: Compensation(fn=undo), name="charge")

    def fails():
        raise ConnectionError

    bad = kit.safe_tool(fails, "REVERSIBLE", name="charge")
    with pytest.raises(SagaAborted), kit.transaction():
        tool()
        with pytest.raises(ConnectionError):
            bad()
        with pytest.raises(CircuitOpen):
            tool()
        raise ValueError
    assert undone
    assert events(wal) == ["CIRCUIT_OPENED"]


class Down(MemoryStateStore):
    def transact(self, *args, **kwargs):
        raise OSError("down")

    def get(self, *args, **kwargs):
        raise OSError("down")


@pytest.mark.guarantee("BREAKER-2")
def test_a_store_that_is_down_lets_calls_through(clock, provider, caplog):
    set_breaker(CircuitBreaker(BreakerPolicy(failure_threshold=1), store=Down(), clock=clock))
    try:
        kit = AgentKit("kit", wal=MemoryWAL())
        tool = kit.safe_tool(provider.call, "REVERSIBLE")
        assert tries(kit, tool, 4) == ["failed"] * 4
    finally:
        set_breaker(None)
    assert "goes on" in caplog.text


DAMAGED = [
    {},
    {"tools": []},
    {"tools": {"pay": 5}, "axis": [1.0, 2, 3.0, ""]},
    {"tools": {"pay": {}}, "axis": [1.0, 2, 3.0, ""]},
    {"tools": {}, "axis": ["x"]},
]


@pytest.mark.guarantee("BREAKER-2")
@pytest.mark.parametrize("doc", DAMAGED)
def test_a_document_that_cannot_be_understood_lets_calls_through(clock, provider, caplog, doc):
    store = MemoryStateStore()
    store.transact([KEY], lambda docs: Change(None, {KEY: doc}))
    set_breaker(CircuitBreaker(BreakerPolicy(failure_threshold=2), store=store, clock=clock))
    kit = AgentKit("kit", wal=MemoryWAL())
    tool = kit.safe_tool(provider.call, "REVERSIBLE", name="pay")
    try:
        assert tries(kit, tool, 3) == ["failed", "failed", "refused"]
    finally:
        set_breaker(None)
    assert "begins anew" in caplog.text


def test_two_processes_share_what_opened(clock, provider):
    """Two breakers on one store stand for two processes."""
    store = MemoryStateStore()
    kits = []
    for _ in range(2):
        set_breaker(CircuitBreaker(BreakerPolicy(failure_threshold=2), store=store, clock=clock))
        kit = AgentKit("kit", wal=MemoryWAL())
        kit.runtime.engine()
        kits.append(kit)
        tools = [k.safe_tool(provider.call, "REVERSIBLE", name="call") for k in kits]
        with kit.transaction():
            pass
    engines = [k.runtime._engine for k in kits]
    for kit, engine in zip(kits, engines, strict=True):
        kit.runtime.engine = lambda engine=engine: engine
    set_breaker(None)
    assert tries(kits[0], tools[0], 3) == ["failed", "failed", "refused"]
    clock.now += 1.1
    assert tries(kits[1], tools[1]) == ["refused"]
    clock.now += 30
    provider.down = False
    assert tries(kits[1], tools[1]) == ["ok"]
    assert tries(kits[0], tools[0]) == ["ok"]


@pytest.mark.parametrize("driver", ["async"])
def test_it_works_on_an_event_loop(breaking, wal, clock, driver):
    kit = breaking(wal)
    calls = []

    async def work():
        calls.append(1)
        raise ConnectionError

    tool = kit.safe_tool(work, "REVERSIBLE")

    async def main():
        async with kit.transaction():
            for _ in range(3):
                with pytest.raises(ConnectionError):
                    await tool()
            with pytest.raises(CircuitOpen):
                await tool()

    asyncio.run(main())
    assert len(calls) == 3


# --- the rules alone ------------------------------------------------------------------------------

POLICY = BreakerPolicy(failure_threshold=1, cool_down=10, probes=1, success_threshold=1)


def at(doc, now):
    return Circuits(doc, Moment(0, now, "boot"))


def opened():
    circuits = at(None, 0.0)
    assert circuits.trip("t", 0, "why")
    return circuits.document()


def test_an_old_generation_trips_nothing():
    circuits = at(opened(), 1.0)
    assert not circuits.trip("t", 0, "again")
    assert circuits.of("t")["state"] == OPEN


def test_a_dead_probe_gives_its_place_back():
    circuits = at(opened(), 10.0)
    assert circuits.admit("t", "one", POLICY).probe
    assert circuits.of("t")["state"] == HALF_OPEN
    assert not circuits.admit("t", "two", POLICY).admitted
    circuits = at(circuits.document(), 20.0)
    assert circuits.admit("t", "two", POLICY).admitted
    assert circuits.ended("t", "one", 2, True, POLICY) == ""
    assert circuits.ended("t", "two", 2, True, POLICY) == CLOSED


@pytest.mark.parametrize("how", [True, False, None])
def test_an_ending_under_another_generation_changes_nothing(how):
    circuits = at(opened(), 10.0)
    circuits.admit("t", "one", POLICY)
    before = circuits.document()
    assert circuits.ended("t", "one", 1, how, POLICY) == ""
    assert circuits.document() == before


def test_closing_by_hand_raises_the_generation():
    circuits = at(opened(), 1.0)
    assert circuits.reset("t")
    assert not circuits.reset("t")
    assert (circuits.of("t")["state"], circuits.of("t")["generation"]) == (CLOSED, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"failure_threshold": 0},
        {"failure_threshold": 1.5},
        {"failure_threshold": True},
        {"failure_threshold": None},
        {"failure_rate": 0},
        {"failure_rate": 1.1},
        {"failure_rate": math.nan},
        {"min_volume": 0},
        {"window": 0},
        {"cool_down": math.inf},
        {"probes": 0},
        {"success_threshold": -1},
        {"ignore": "KeyError"},
    ],
    ids=str,
)
def test_a_policy_that_cannot_work_is_refused_when_it_is_written(wrong):
    with pytest.raises(ConfigurationError):
        BreakerPolicy(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: CircuitBreaker(5),
        lambda: CircuitBreaker(wal="path"),
        lambda: set_breaker(BreakerPolicy()),
    ],
)
def test_a_breaker_that_cannot_work_is_refused(wrong):
    with pytest.raises(ConfigurationError):
        wrong()


def test_the_breaker_of_a_log_keeps_its_counts_when_gates_are_put_together_anew():
    breaker, wal = CircuitBreaker(), MemoryWAL()
    around = Surroundings(wal, MemoryStateStore, SYSTEM_CLOCK, process_metrics())
    assert breaker.bound(around) is breaker.bound(around)
    assert KEY == "breaker"

"""Calls that were given up and end later: before the end, after it, and at the worst moment."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from agent_saga import (
    Applied,
    CommittedUnsettled,
    NotApplied,
    OutcomeUnknown,
    RetryPolicy,
    SagaAborted,
    Settings,
    StepTimeout,
)
from agent_saga.engine import late


class Boom(Exception):
    pass


class Gate:
    """A tool that waits for the test before its effect."""

    def __init__(self, world):
        self.world = world
        self.go = threading.Event()
        self.entered = threading.Event()
        self.ends = "well"

    def pay(self, amount):
        self.entered.set()
        self.go.wait(20)
        if self.ends == "not applied":
            raise NotApplied("closed")
        if self.ends == "lost":
            self.world.charge(amount)
            raise RuntimeError("the answer was lost")
        return self.world.charge(amount)


@pytest.fixture
def gate(world):
    gate = Gate(world)
    yield gate
    gate.go.set()


@pytest.fixture
def slow(kit, gate, world):
    tool = kit.safe_tool(gate.pay, "COMPENSABLE", timeout=0.05, name="slow")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    return tool


def wait_for(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


PATIENT = Settings(settle=60, inverse_delay=0.0, cancel_grace=0.2)
"""What runs is waited for, however slow the machine is."""

patient = pytest.mark.parametrize("fast", [PATIENT], ids=["patient"])


@patient
@pytest.mark.guarantee("TIME-1")
def test_a_timeout_of_a_sync_tool_whose_effect_lands_later_is_undone(kit, world, gate, slow):
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        try:
            slow(5)
        finally:
            threading.Timer(0.1, gate.go.set).start()
    assert isinstance(caught.value.cause, StepTimeout)
    assert world.amounts == [5]
    assert world.standing == []
    assert caught.value.report.clean


def test_an_effect_that_lands_after_the_undoing_reopens_the_saga(kit, world, gate, slow, events):
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        slow(5)
    report = caught.value.report
    assert not report.clean
    assert report.outcome == "STUCK"
    gate.go.set()
    wait_for(lambda: "STEP_LATE" in events())
    assert world.standing == ["ch1"]
    assert not report.clean


def test_an_effect_that_lands_after_the_commit_is_said_and_never_clean(kit, world, gate, slow):
    with pytest.raises(CommittedUnsettled) as caught, kit.transaction(), pytest.raises(StepTimeout):
        slow(5)
    report = caught.value.report
    assert not report.clean
    gate.go.set()
    wait_for(lambda: report.unresolved)
    assert not report.clean
    assert world.standing == ["ch1"]


@patient
def test_an_effect_that_lands_after_a_commit_that_waited_is_committed(kit, world, gate, slow):
    with kit.transaction() as saga:
        with pytest.raises(StepTimeout):
            slow(5)
        threading.Timer(0.1, gate.go.set).start()
    assert saga.report.clean
    assert world.standing == ["ch1"]


def test_a_late_answer_that_nothing_happened_settles_the_step(kit, world, gate, slow):
    gate.ends = "not applied"
    with kit.transaction() as saga:
        with pytest.raises(StepTimeout):
            slow(5)
        gate.go.set()
        wait_for(lambda: slow.tool and not saga._scope.saga.in_flight)
    assert saga.report.clean


def test_a_late_lost_answer_stays_unknown(kit, world, gate, slow):
    gate.ends = "lost"
    with pytest.raises(CommittedUnsettled), kit.transaction() as saga:
        with pytest.raises(StepTimeout):
            slow(5)
        gate.go.set()
        wait_for(lambda: not saga._scope.saga.in_flight)
    assert world.standing == ["ch1"]


@pytest.mark.guarantee("ONCE-1")
def test_a_retry_while_the_call_still_runs_in_its_thread_does_not_run(kit, world, gate, slow):
    with pytest.raises(CommittedUnsettled), kit.transaction():
        with pytest.raises(StepTimeout):
            slow(5)
        with pytest.raises(OutcomeUnknown):
            slow(5)
    gate.go.set()
    wait_for(lambda: world.charges)
    assert world.amounts == [5]


@patient
def test_a_retry_gets_the_result_that_arrived_meanwhile(kit, world, gate, slow):
    with kit.transaction():
        with pytest.raises(StepTimeout):
            slow(5)
        threading.Timer(0.05, gate.go.set).start()
        assert slow(5) == {"id": "ch1", "amount": 5}
    assert world.amounts == [5]


def test_a_step_is_not_repeated_by_its_policy_while_its_call_still_runs(kit, world, gate):
    policy = RetryPolicy(3, base_delay=0, retry_on=TimeoutError)
    tool = kit.safe_tool(gate.pay, "COMPENSABLE", timeout=0.05, retry=policy)
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        tool(5)
    assert not caught.value.report.clean
    gate.go.set()
    wait_for(lambda: world.charges)
    assert world.amounts == [5]


def test_a_call_that_ends_while_it_is_being_given_up_is_not_in_flight_for_ever(
    kit, world, gate, slow, monkeypatch
):
    """The ending comes before the protocol has recorded that it gave the call up."""
    from agent_saga.engine.pool import Job

    whole = Job.give_up

    def ends_at_once(self, told):
        ending = whole(self, told)
        gate.go.set()
        wait_for(lambda: world.charges)
        time.sleep(0.05)
        return ending

    monkeypatch.setattr(Job, "give_up", ends_at_once)
    with kit.transaction() as saga:
        with pytest.raises(StepTimeout):
            slow(5)
        assert not saga._scope.saga.in_flight
    assert saga.report.clean
    assert world.standing == ["ch1"]


@patient
def test_an_async_tool_that_ignores_its_cancellation_is_found_again(kit, world):
    given_up = threading.Event()

    async def stubborn(amount):
        while not given_up.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        return world.charge(amount)

    tool = kit.safe_tool(stubborn, "COMPENSABLE", timeout=0.05, name="stubborn")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    async def main():
        with pytest.raises(SagaAborted) as caught:
            async with kit.transaction():
                try:
                    await tool(5)
                finally:
                    given_up.set()
        return caught.value.report

    report = asyncio.run(main())
    assert world.amounts == [5]
    assert world.standing == []
    assert report.clean


@pytest.mark.guarantee("TIME-1")
def test_a_timeout_is_unknown_whatever_the_author_listed_as_harmless(mode, kit, world):
    def pay(amount):
        world.charge(amount)
        time.sleep(0.2)

    async def pay_async(amount):
        world.charge(amount)
        await asyncio.sleep(10)

    tool = kit.safe_tool(
        pay_async if mode.name == "async" else pay,
        "COMPENSABLE",
        timeout=0.05,
        not_applied_on=(TimeoutError, OSError),
    )

    async def body(saga):
        await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert not error.report.clean
    assert world.standing == ["ch1"]


def test_a_late_read_disturbs_nobody(kit, gate, world, events):
    tool = kit.safe_tool(gate.pay, "REVERSIBLE", timeout=0.05, name="read")
    with kit.transaction() as saga, pytest.raises(StepTimeout):
        tool(5)
    assert saga.report.clean
    gate.go.set()
    wait_for(lambda: world.charges)
    time.sleep(0.05)
    assert saga.report.clean
    assert "SAGA_REOPENED" not in events()


def test_an_awaitable_that_comes_late_is_no_effect_and_no_end(kit, gate, world, events):
    ran = []

    async def later():
        ran.append(1)

    def returns_an_awaitable():
        gate.go.wait(20)
        return later()

    tool = kit.safe_tool(returns_an_awaitable, "COMPENSABLE", timeout=0.05, name="lazy")

    async def main():
        with pytest.raises(SagaAborted) as caught:
            async with kit.transaction():
                await tool()
        return caught.value.report

    report = asyncio.run(main())
    gate.go.set()
    time.sleep(0.1)
    assert not report.clean
    assert ran == []
    assert "STEP_LATE" not in events()


def test_an_ending_that_cannot_be_recorded_disturbs_nobody(kit, gate, world, slow, monkeypatch):
    with pytest.raises(CommittedUnsettled), kit.transaction() as saga, pytest.raises(StepTimeout):
        slow(5)
    monkeypatch.setattr(late, "_applied_late", lambda *_: 1 / 0)
    gate.go.set()
    wait_for(lambda: not saga._scope.saga.in_flight)


@pytest.mark.guarantee("PROBE-1")
def test_a_prober_s_no_is_waited_out_after_a_timeout(kit, world):
    """The prober says no while the effect is still on its way; only the later answer counts."""
    asked = []

    def lost(amount):
        raise ConnectionError("the answer was lost")

    tool = kit.safe_tool(lost, "COMPENSABLE", name="on_its_way", settle_after=0.3)

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    @tool.probe
    def find(args):
        asked.append(len(world.charges))
        if not world.charges:
            world.charge(args["amount"])  # it arrives behind the look
        return Applied({"id": "ch1"}) if asked[-1] else NotApplied()

    with pytest.raises(SagaAborted) as caught, kit.transaction():
        tool(5)
    assert asked == [0, 1]
    assert world.amounts == [5]
    assert world.standing == []
    assert caught.value.report.clean


def test_a_late_answer_does_not_answer_for_an_attempt_before_it(kit, world, gate):
    """The first attempt's answer was lost; that the second one failed says nothing about it."""
    calls = []

    def pay(amount):
        calls.append(amount)
        if len(calls) == 1:
            raise ConnectionError("lost")
        gate.go.wait(20)
        raise ValueError("refused")

    tool = kit.safe_tool(
        pay,
        "COMPENSABLE",
        timeout=0.2,
        prober=lambda args: NotApplied(),
        retry=RetryPolicy(1, base_delay=0, retry_on=ConnectionError),
        settle_after=60,
    )
    with pytest.raises(CommittedUnsettled), kit.transaction() as saga:
        with pytest.raises(StepTimeout):
            tool(5)
        gate.go.set()
        wait_for(lambda: not saga._scope.saga.in_flight)

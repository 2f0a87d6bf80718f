"""A call that was announced and never made leaves no trace in a meter, nor in a grant."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent_saga import (
    AgentKit,
    ApprovalGateway,
    ApprovalPolicy,
    BudgetLimit,
    Compensation,
    FileSwitchStore,
    Halted,
    KillSwitch,
    PreFlightGate,
    RateLimit,
    RetryPolicy,
    SagaAborted,
    Settings,
)
from agent_saga.controls.limits.leases import _at_exit
from agent_saga.controls.limits.moments import moment
from agent_saga.controls.limits.upkeep import usage_of
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.effective import facts_of
from agent_saga.wal.reader import scan_log


def nothing(result):
    return Compensation.none("nothing stands")


ONE_THREAD = Settings(
    settle=2, settle_after=0.2, inverse_delay=0.0, cancel_grace=0.2, tool_threads=1
)


@pytest.fixture
def kit(log, store):
    limits = [BudgetLimit("spend", "amount", 1000, 86_400), RateLimit("calls", 1000, 86_400)]
    gateway = ApprovalGateway(store, policy=ApprovalPolicy(timeout=5))
    gate = PreFlightGate(limits=limits, approval_provider=gateway)
    return AgentKit("metered", wal=str(log), gate=gate, settings=ONE_THREAD)


def used(store):
    _at_exit()  # what is left of leases is handed back
    found = usage_of(store.state, moment(SYSTEM_CLOCK))
    return {one.limit: one.used for one in found if one.used}


def shares(store):
    return [len(grant["shares"]) for grant in store.grants()]


def closed_by(log):
    return [facts_of(one).get("by") for one in scan_log(log) if one.event == "STEP_NOT_APPLIED"]


@pytest.mark.guarantee("LIMIT-8")
@pytest.mark.parametrize("semantics", ["COMPENSABLE", "IRREVERSIBLE"])
def test_one_that_is_cancelled_while_it_waits_for_its_turn(kit, log, store, world, semantics):
    store.grant("wire", approver="ann", seconds=60)
    waits, goes_on = threading.Event(), threading.Event()

    def hold(number):
        waits.set()
        goes_on.wait(20)

    undo = {} if semantics == "IRREVERSIBLE" else {"compensate": nothing}
    hold = kit.safe_tool(hold, "REVERSIBLE", name="hold")
    wire = kit.safe_tool(world.wire, semantics, name="wire", **undo)

    async def run():
        async with kit.transaction():
            await wire(5)

    async def holding():
        async with kit.transaction():
            await hold(1)

    async def main():
        first = asyncio.create_task(holding())
        await asyncio.to_thread(waits.wait, 20)
        second = asyncio.create_task(run())
        while not any(one.event == "STEP_INTENT" for one in scan_log(log)):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        goes_on.set()
        await first

    asyncio.run(main())
    assert world.amounts == []
    assert closed_by(log) == ["engine"]
    assert used(store) == {"calls": 1}  # of the one that held the thread
    assert shares(store) == [0]


@pytest.mark.guarantee("LIMIT-8")
def test_those_that_a_halt_keeps_from_being_made(kit, log, store, world):
    waits, goes_on = threading.Event(), threading.Event()

    def wire(amount):
        waits.set()
        goes_on.wait(20)
        return world.wire(amount)

    tool = kit.safe_tool(wire, "COMPENSABLE", nothing, name="wire")

    async def main():
        with pytest.raises(SagaAborted):
            async with kit.transaction():
                calls = [asyncio.create_task(tool(amount)) for amount in (1, 10, 100)]
                await asyncio.to_thread(waits.wait, 20)
                while sum(one.event == "STEP_INTENT" for one in scan_log(log)) < 3:
                    await asyncio.sleep(0.01)
                switch = KillSwitch(FileSwitchStore(log))
                await asyncio.to_thread(switch.halt, reason="stop", by="ann")
                goes_on.set()
                for ended in await asyncio.gather(*calls, return_exceptions=True):
                    if isinstance(ended, BaseException):
                        raise ended

    asyncio.run(main())
    assert len(world.amounts) == 1
    assert closed_by(log) == ["engine", "engine"]
    assert used(store) == {"spend": world.amounts[0], "calls": 1}


@pytest.mark.guarantee("LIMIT-8")
def test_one_whose_time_is_over_before_its_turn_comes(kit, log, store, world):
    """It is tried again, and takes nothing a second time; when it is given up, it gives it back."""
    waits, goes_on = threading.Event(), threading.Event()

    def hold(number):
        waits.set()
        goes_on.wait(20)

    hold = kit.safe_tool(hold, "REVERSIBLE", name="hold")
    retry = RetryPolicy(max_retries=1, base_delay=0.01, retry_on=(TimeoutError,))
    undo = {"compensate": nothing, "retry": retry, "timeout": 0.1}
    wire = kit.safe_tool(world.wire, "COMPENSABLE", name="wire", **undo)

    async def main():
        first = asyncio.create_task(holding())
        await asyncio.to_thread(waits.wait, 20)
        async with kit.transaction():
            with pytest.raises(TimeoutError):
                await wire(5)
        goes_on.set()
        await first
        async with kit.transaction():
            await wire(7)

    async def holding():
        async with kit.transaction():
            await hold(1)

    asyncio.run(main())
    assert world.amounts == [7]
    assert used(store) == {"spend": 7, "calls": 2}


@pytest.mark.guarantee("LIMIT-8")
def test_a_call_that_was_made_stays_counted_whatever_becomes_of_it(kit, store, world):
    def wire(amount):
        world.wire(amount)
        raise ValueError("had no effect")

    tool = kit.safe_tool(
        wire,
        "COMPENSABLE",
        nothing,
        name="wire",
        not_applied_on=(ValueError,),
    )
    with kit.transaction(), pytest.raises(ValueError, match="no effect"):
        tool(5)
    assert used(store) == {"spend": 5, "calls": 1}


def test_a_halt_is_told_to_whoever_called(kit, log, world):
    KillSwitch(FileSwitchStore(log)).halt(reason="stop", by="ann")
    tool = kit.safe_tool(world.wire, "COMPENSABLE", nothing, name="wire")
    with kit.transaction(), pytest.raises(Halted):
        tool(5)

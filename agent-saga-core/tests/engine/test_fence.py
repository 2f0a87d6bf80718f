"""Another process has taken a saga over: this one acts on it no more."""

from __future__ import annotations

import threading

import pytest

from agent_saga import AgentKit, Compensation, SagaAborted, SagaFenced
from agent_saga.controls.control import Control
from agent_saga.controls.installed import INSTALLED


class Boom(Exception):
    pass


@pytest.mark.guarantee("FENCE-2")
def test_no_effect_starts_in_a_saga_that_was_taken_over(mode, kit, world, charge, wal):
    async def body(saga):
        await mode.call(charge, 1)
        wal.fence(saga.id)
        await mode.call(charge, 2)

    error = mode.attempt(kit, body)
    assert isinstance(error.cause, SagaFenced)
    assert world.amounts == [1]
    assert not error.report.clean


@pytest.mark.guarantee("FENCE-2")
def test_no_inverse_runs_in_a_saga_that_was_taken_over(mode, kit, world, charge, wal):
    async def body(saga):
        await mode.call(charge, 1)
        wal.fence(saga.id)
        raise Boom

    error = mode.attempt(kit, body)
    assert world.refunds == []
    assert error.report.outcome == "RELEASED"
    assert not error.report.clean


@pytest.mark.guarantee("FENCE-2")
def test_an_undoing_stops_where_the_saga_was_taken_over(mode, kit, world, wal):
    holder = []

    def refund(number):
        world.refund(number)
        wal.fence(holder[0])

    tool = kit.safe_tool(
        mode.fn(world.charge),
        compensate=lambda r: Compensation(fn=refund, kwargs={"number": r["id"]}),
    )

    async def body(saga):
        holder.append(saga.id)
        await mode.call(tool, 1)
        await mode.call(tool, 2)
        raise Boom

    error = mode.attempt(kit, body)
    assert world.refunds == ["ch2"]
    assert error.report.outcome == "RELEASED"


@pytest.mark.guarantee("FENCE-2")
def test_nobody_is_told_success_for_a_saga_that_was_taken_over(mode, kit, world, charge, wal):
    async def body(saga):
        await mode.call(charge, 1)
        wal.fence(saga.id)

    error = mode.attempt(kit, body)
    assert isinstance(error, SagaAborted)
    assert isinstance(error.cause, SagaFenced)
    assert not error.report.clean


def test_another_saga_s_fence_disturbs_nobody(mode, kit, world, charge, wal):
    async def body(saga):
        wal.fence("another")
        await mode.call(charge, 1)

    assert mode.attempt(kit, body) is None


def test_a_fence_of_the_whole_writer_holds_for_every_saga(mode, kit, world, charge, wal):
    wal.fence("*")

    async def body(saga):
        await mode.call(charge, 1)

    assert isinstance(mode.attempt(kit, body).cause, SagaFenced)
    assert world.charges == []


def test_a_lost_lock_is_told_as_such_and_not_as_a_takeover(mode, tmp_path, world):
    kit = AgentKit("k", wal=str(tmp_path / "log"))

    @kit.tool("COMPENSABLE")
    def act() -> int:
        world.charges.append(1)
        return 1

    @act.undo
    def unact(result):
        pass

    async def body(saga):
        await mode.call(act)
        [lock] = (tmp_path / "log").rglob("lock")
        lock.unlink()
        await mode.call(act)

    error = mode.attempt(kit, body)
    assert isinstance(error.cause, SagaFenced)
    assert "lock" in error.cause.message
    assert "has taken over" not in error.cause.message


class Slow(Control):
    """A control that takes its time for its last look; meanwhile another process takes over."""

    name = "slow"

    def __init__(self, wal):
        self.wal = wal
        self.over = threading.Event()
        self.announced = 0

    def check(self, call):
        """Let everything go on."""

    def recheck(self, call):
        if self.over.is_set():
            self.wal.fence(call.saga)

    def undoing(self, saga):
        if self.over.is_set() and self.wal.seq > self.announced:
            self.wal.fence(saga)


@pytest.fixture
def slow(wal):
    control = Slow(wal)
    INSTALLED.put("switch", control)
    yield control
    INSTALLED.put("switch", None)


@pytest.mark.guarantee("FENCE-2")
def test_a_takeover_during_the_last_look_of_a_control_stops_the_call(
    mode, slow, kit, world, charge
):
    """The fence is looked at last: nothing waits between it and the call."""

    async def body(saga):
        await mode.call(charge, 1)
        slow.over.set()
        await mode.call(charge, 2)

    error = mode.attempt(kit, body)
    assert isinstance(error.cause, SagaFenced)
    assert world.amounts == [1]
    assert not error.report.clean


@pytest.mark.guarantee("FENCE-2")
def test_a_takeover_during_the_last_look_of_a_control_stops_the_inverse(
    mode, slow, kit, world, charge
):
    async def body(saga):
        await mode.call(charge, 1)
        slow.over.set()
        slow.announced = slow.wal.seq + 1  # that it is being undone; then, that the charge is
        raise Boom

    error = mode.attempt(kit, body)
    assert world.refunds == []
    assert error.report.outcome == "RELEASED"
    assert not error.report.clean

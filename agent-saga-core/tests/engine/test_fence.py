"""Another process has taken a saga over: this one acts on it no more."""

from __future__ import annotations

import pytest

from agent_saga import Compensation, SagaAborted, SagaFenced


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

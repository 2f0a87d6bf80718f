"""A saga that is asked to be undone or suspended while its boundary is left, and after that."""

from __future__ import annotations

import asyncio

import pytest

from agent_saga import SagaAborted, SagaClosed, current_saga


def paid(kit, world):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="charge")
    tool.undo(lambda result: world.refund(result["id"]))
    return tool


@pytest.mark.guarantee("ABORT-1")
def test_a_step_that_is_waited_for_at_the_end_can_abort_the_saga(kit, world):
    charge = paid(kit, world)

    @kit.tool("REVERSIBLE")
    async def check():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        current_saga().abort("it is a fraud")

    async def main():
        async with kit.transaction():
            await charge(1)
            task = asyncio.create_task(check())
            await asyncio.sleep(0)
        return task

    with pytest.raises(SagaAborted, match="it is a fraud"):
        asyncio.run(main())
    assert world.standing == []


def test_a_step_that_is_waited_for_at_the_end_cannot_suspend_it(kit, world):
    refused = []

    @kit.tool("REVERSIBLE")
    async def wait():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        try:
            current_saga().suspend("for a human")
        except SagaClosed as error:
            refused.append(error)

    async def main():
        async with kit.transaction() as saga:
            task = asyncio.create_task(wait())
            await asyncio.sleep(0)
        await task
        return saga

    saga = asyncio.run(main())
    assert saga.report.clean
    assert len(refused) == 1


@pytest.mark.parametrize("ask", ["abort", "suspend"])
@pytest.mark.parametrize("steps", [0, 1])
def test_what_has_ended_is_neither_aborted_nor_suspended(kit, world, ask, steps):
    charge = paid(kit, world)
    with kit.transaction() as saga:
        for amount in range(steps):
            charge(amount)
    with kit.transaction(), pytest.raises(SagaClosed, match="has ended"):
        getattr(saga, ask)("too late")
    assert saga.report.clean
    assert len(world.standing) == steps


def test_what_was_undone_is_not_aborted_again(kit, world):
    charge = paid(kit, world)
    with pytest.raises(SagaAborted), kit.transaction() as saga:
        charge(1)
        raise RuntimeError("it fails")
    with pytest.raises(SagaClosed, match="has ended"):
        saga.abort("again")
    assert world.refunds == ["ch1"]

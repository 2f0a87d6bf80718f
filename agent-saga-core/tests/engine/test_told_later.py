"""A savepoint that outlives its boundary and then fails: the boundary's report is told of it."""

from __future__ import annotations

import asyncio

import pytest

from agent_saga import SagaAborted


class Boom(Exception):
    pass


@pytest.mark.parametrize("undone", [True, False])
def test_the_report_of_a_committed_boundary_tells_what_became_of_it(kit, world, undone):
    async def charge(amount):
        return world.charge(amount)

    tool = kit.safe_tool(charge, "COMPENSABLE")

    @tool.undo
    def refund(result):
        if not undone:
            raise Boom
        world.refund(result["id"])

    async def main():
        booked, go = asyncio.Event(), asyncio.Event()

        async def straggler():
            async with kit.transaction(name="late"):
                await tool(5)
                booked.set()
                await go.wait()
                raise Boom

        async with kit.transaction() as saga:
            await tool(3)
            task = asyncio.create_task(straggler())
            await booked.wait()
        assert saga.report.clean
        assert saga.report.notes == []
        go.set()
        with pytest.raises(SagaAborted):
            await task
        return saga.report

    report = asyncio.run(main())
    assert report.outcome == "COMMITTED"
    assert report.clean is undone
    assert [line.tool for line in report.compensated] == (["charge"] if undone else [])
    assert report.notes == ["savepoint 'late#1' was undone after the end"]
    assert world.standing == (["ch1"] if undone else ["ch1", "ch2"])
    assert "NOT clean" in report.summary() or undone


def test_a_savepoint_that_was_undone_before_the_end_is_told_once(mode, kit, world, charge):
    async def body(saga):
        with pytest.raises(SagaAborted):
            async with mode.open(saga.savepoint()):
                await mode.call(charge, 5)
                raise Boom

    async def whole():
        async with mode.open(kit.transaction()) as saga:
            await body(saga)
        return saga.report

    report = mode.run(whole())
    assert report.clean
    assert report.notes == []
    assert len(report.compensated) == 1

"""A task goes on when the boundary that began it has ended, and leaves a boundary of its own."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agent_saga import RefusedError, SagaAborted, current_saga


class Boom(Exception):
    pass


@pytest.fixture
def charge(kit, world):
    async def charge(amount):
        await asyncio.sleep(0)
        return world.charge(amount)

    tool = kit.safe_tool(charge, "COMPENSABLE")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    return tool


async def straggle(kit, charge, go, **options):
    """Leave a boundary of one's own when the one round it has ended, and call behind that."""
    async with kit.transaction(**options):
        await charge(1)
        await go.wait()
    await charge(2)


@pytest.mark.guarantee("FENCE-1")
@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_no_call_runs_behind_the_end_of_the_boundary_round_it(kit, world, charge, fails, detached):
    async def main():
        go = asyncio.Event()
        before = current_saga()
        with contextlib.suppress(SagaAborted):
            async with kit.transaction() as saga:
                task = asyncio.create_task(straggle(kit, charge, go, detached=detached))
                await asyncio.sleep(0.01)
                if fails:
                    raise Boom
        assert saga.report.clean
        go.set()
        with pytest.raises(RefusedError):
            await task
        assert current_saga() is before

    asyncio.run(main())
    assert world.amounts == [1]
    assert len(world.standing) == (0 if fails and not detached else 1)


@pytest.mark.parametrize("detached", [False, True])
def test_boundaries_of_one_context_may_be_left_in_any_order(kit, world, charge, detached):
    async def main():
        outer, inner = kit.transaction(), kit.transaction(detached=detached)
        await outer.__aenter__()
        await inner.__aenter__()
        await outer.__aexit__(None, None, None)
        await inner.__aexit__(None, None, None)
        assert current_saga() is None
        async with kit.transaction():
            await charge(3)

    asyncio.run(main())
    assert world.amounts == [3]

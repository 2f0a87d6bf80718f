"""What a call returns may not have run yet; nothing is taken for done without running."""

from __future__ import annotations

import asyncio
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap

import pytest

from agent_saga import CannotTell, Compensation, Observation, SagaAborted


class Boom(Exception):
    pass


threads = ThreadPoolExecutor(2)


def slowly(work, amount):
    time.sleep(0.05)
    return work(amount)


def lazily(work):
    """Functions that run their work only when somebody takes what they return further."""

    async def later(amount):
        await asyncio.sleep(0)
        return work(amount)

    async def forgot_to_await(amount):
        return later(amount)

    async def forgot_twice(amount):
        return forgot_to_await(amount)

    async def one_by_one(amount):
        yield work(amount)

    async def brings_one_by_one(amount):
        return one_by_one(amount)

    async def brings_a_generator(amount):
        return (work(one) for one in [amount])

    async def brings_a_future(amount):
        return threads.submit(slowly, work, amount)

    return {
        "no await": forgot_to_await,
        "no await twice": forgot_twice,
        "asynchronous generator": brings_one_by_one,
        "generator": brings_a_generator,
        "map": lambda amount: map(work, [amount]),
        "filter": lambda amount: filter(work, [amount]),
        "starmap": lambda amount: starmap(work, [(amount,)]),
        "zip": lambda amount: zip(map(work, [amount]), strict=True),
        "enumerate": lambda amount: enumerate(map(work, [amount])),
        "chain": lambda amount: itertools.chain(map(work, [amount])),
        "islice": lambda amount: itertools.islice(map(work, [amount]), 1),
        "future": lambda amount: threads.submit(slowly, work, amount),
        "brings a future": brings_a_future,
    }


FORMS = sorted(lazily(None))


@pytest.mark.guarantee("FORM-1")
@pytest.mark.parametrize("timeout", [None, 5])
@pytest.mark.parametrize("form", FORMS)
def test_an_effect_that_is_not_made_yet_is_made(kit, world, form, timeout):
    tool = kit.safe_tool(lazily(world.charge)[form], "COMPENSABLE", name="t", timeout=timeout)

    @tool.undo
    def refund(result):
        world.refund("ch1")

    async def main():
        with pytest.raises(SagaAborted) as caught:
            async with kit.transaction():
                await tool(5)
                assert world.amounts == [5]
                raise Boom
        assert caught.value.report.clean

    asyncio.run(main())
    assert world.standing == []


@pytest.mark.parametrize("form", FORMS)
def test_an_inverse_that_is_not_made_yet_is_made(mode, kit, world, charge, form):
    undo = lazily(world.refund)[form]
    tool = kit.safe_tool(
        mode.fn(world.charge),
        "COMPENSABLE",
        name="other",
        compensate=lambda result: Compensation(fn=undo, kwargs={"amount": result["id"]}),
    )

    async def body(_saga):
        await mode.call(tool, 5)
        raise Boom

    assert mode.attempt(kit, body).report.clean
    assert world.refunds == ["ch1"]


@pytest.mark.parametrize(
    ("seen", "clean"), [(None, False), (Observation(False), False), (Observation(True), True)]
)
def test_an_inverse_that_cannot_tell_is_no_success(mode, kit, world, events, seen, clean):
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", name="told")

    @tool.undo
    def refund(result):
        return CannotTell("the provider keeps no refunds")

    if seen is not None:
        tool.observe(lambda args: seen)

    async def body(_saga):
        await mode.call(tool, 5)
        raise Boom

    report = mode.attempt(kit, body).report
    assert report.clean is clean
    assert clean or "cannot tell" in report.summary() or "CannotTell" in report.summary()
    assert ("STEP_COMPENSATED" in events()) is clean

"""Workflows and agents that are run by their own `run`, in a boundary of the program."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.workflow import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from scripted import call
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

from agent_saga import SagaAborted, SagaSuspended
from agent_saga_llamaindex import saga_tool, wrap_tool

AGAIN = retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(3))


class Part(Event):
    item: str


class Trip(Workflow):
    """Books, and fails so often before it ends well."""

    def __init__(self, books, fails=2):
        super().__init__(timeout=None)
        self.books, self.fails = books, fails

    @step(retry_policy=AGAIN)
    async def act(self, ev: StartEvent) -> StopEvent:
        await self.books()
        if self.fails:
            self.fails -= 1
            raise ConnectionError("lost")
        return StopEvent(result="done")


class Parts(Workflow):
    """Books each part in a step of its own, which fails once."""

    def __init__(self, tool):
        super().__init__(timeout=None)
        self.tool, self.failed = tool, set()

    @step
    async def act(self, ctx: Context, ev: StartEvent) -> Part | None:
        for item in ("seat", "seat", "room"):
            ctx.send_event(Part(item=item))

    @step(retry_policy=AGAIN, num_workers=1)
    async def work(self, ctx: Context, ev: Part) -> StopEvent | None:
        await self.tool.acall(item=ev.item)
        if ev.item not in self.failed:
            self.failed.add(ev.item)
            raise ConnectionError("lost")
        if ctx.collect_events(Part(item=ev.item), [Part] * 3) is None:
            return None
        return StopEvent(result="done")


class Asks(Workflow):
    """Books, and waits for a human in the same step."""

    def __init__(self, tool):
        super().__init__(timeout=None)
        self.tool = tool

    @step
    async def act(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await self.tool.acall(item="seat")
        event = InputRequiredEvent(prefix="shall I?")
        said = await ctx.wait_for_event(HumanResponseEvent, waiter_event=event)
        return StopEvent(result=said.response)


class Desk:
    """A tool that books, and runs in a boundary of the program."""

    def __init__(self, shop):
        self.shop = shop
        self.tool = saga_tool(shop.do, compensate=shop.undo, name="book", kit=shop.kit)

    async def book(self, *items):
        for item in items:
            await self.tool.acall(item=item)

    def run(self, *workflows):
        async def run():
            async with self.shop.kit.transaction():
                return [await one.run() for one in workflows]

        return asyncio.run(run())


@pytest.fixture
def desk(shop):
    return Desk(shop)


@pytest.mark.guarantee("LLAMAINDEX-14")
def test_a_step_that_is_run_again_repeats_no_effect(desk):
    assert desk.run(Trip(lambda: desk.book("seat", "room"))) == ["done"]
    desk.shop.world.assert_applied_once("seat", "room")


@pytest.mark.guarantee("LLAMAINDEX-14")
def test_nor_does_it_repeat_a_function_of_the_kit(desk):
    book = desk.shop.kit.safe_tool(
        desk.shop.do, "COMPENSABLE", compensate=desk.shop.undo, name="own"
    )

    async def books():
        for item in ("seat", "seat", "room"):
            await book(item=item)

    assert desk.run(Trip(books)) == ["done"]
    desk.shop.world.assert_stands("seat", "seat", "room")


def test_what_was_undone_in_a_savepoint_of_a_step_is_done_when_it_is_run_again(desk):
    book = desk.shop.kit.safe_tool(
        desk.shop.do, "COMPENSABLE", compensate=desk.shop.undo, name="own"
    )
    fails = [True]

    async def books():
        async with desk.shop.kit.transaction():
            await book(item="seat")
            if fails:
                fails.clear()
                raise ConnectionError("lost")

    assert desk.run(Trip(books, fails=0)) == ["done"]
    desk.shop.world.assert_stands("seat")


@pytest.mark.guarantee("LLAMAINDEX-19")
def test_a_boundary_that_is_resumed_repeats_no_effect(desk):
    """Its program runs the workflows again, and they have other ids and other pieces of work."""

    async def part(*, last):
        async with desk.shop.kit.transaction(saga_id="trip", resume=True) as saga:
            await Trip(lambda: desk.book("seat", "seat", "room"), fails=1).run()
            await Parts(desk.tool).run()
            if not last:
                saga.suspend("until tomorrow")

    with pytest.raises(SagaSuspended):
        asyncio.run(part(last=False))
    asyncio.run(part(last=True))
    desk.shop.world.assert_stands("seat", "seat", "room", "seat", "seat", "room")


def test_nor_does_one_that_waited_for_a_human(desk):
    async def run():
        async with desk.shop.kit.transaction():
            handler = Asks(desk.tool).run()
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    handler.ctx.send_event(HumanResponseEvent(response="yes"))
            return await handler

    assert asyncio.run(run()) == "yes"
    desk.shop.world.assert_applied_once("seat")


def test_equal_calls_of_one_execution_are_two_and_stay_two(desk):
    desk.run(Trip(lambda: desk.book("seat", "seat")))
    desk.shop.world.assert_stands("seat", "seat")


def test_equal_calls_of_two_pieces_of_work_are_two(desk):
    desk.run(Parts(desk.tool))
    desk.shop.world.assert_stands("seat", "seat", "room")


def test_equal_calls_of_two_runs_and_of_the_program_are_each_one(desk):
    async def run():
        async with desk.shop.kit.transaction():
            for _ in range(2):
                await Trip(lambda: desk.book("seat")).run()
            await desk.book("seat")

    asyncio.run(run())
    desk.shop.world.assert_stands("seat", "seat", "seat")


def test_a_step_that_fails_for_good_undoes_each_effect_once(desk):
    with pytest.raises(SagaAborted) as failed:
        desk.run(Trip(lambda: desk.book("seat", "room"), fails=3))
    assert failed.value.report.clean
    assert desk.shop.world.undone() == ["room", "seat"]
    desk.shop.world.assert_restored()


def test_what_was_lost_is_not_done_again(desk):
    def loses(item: str) -> dict:
        """Book an item, and lose the answer."""
        desk.shop.do(item)
        raise ConnectionError("the line is dead")

    desk.tool = wrap_tool(
        type(desk.shop.book).from_defaults(loses), compensate=desk.shop.undo, kit=desk.shop.kit
    )
    with pytest.raises(SagaAborted) as failed:
        desk.run(Trip(lambda: desk.book("seat")))
    assert not failed.value.report.clean
    assert desk.shop.world.applications() == 1


def test_an_agent_calls_what_its_model_says_as_often_as_it_says(desk):
    seat = [call("book", "c1", item="seat")]
    agent = desk.shop.agent(seat, [*seat, call("book", "c2", item="room")], "done")
    agent.tools = [desk.tool]

    async def run():
        async with desk.shop.kit.transaction():
            return str(await agent.run("go on"))

    assert asyncio.run(run()) == "done"
    desk.shop.world.assert_stands("seat", "seat", "room")

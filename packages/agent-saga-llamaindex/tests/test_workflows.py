"""Workflows of one's own, and the ways in which LlamaIndex goes on, hides or repeats something."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.workflow import (
    Context,
    Event,
    HumanResponseEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from scripted import Scripted, call
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

from agent_saga import ConfigurationError, SagaAborted
from agent_saga_llamaindex import (
    last_report,
    saga_agent,
    saga_run,
    saga_run_sync,
    saga_stream,
    saga_stream_sync,
    saga_tool,
)

AGAIN = retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(3))


def run(work, *args, **options):
    async def case():
        return await saga_run(work, *args, **options)

    return asyncio.run(case())


class Order(StartEvent):
    item: str


class Flaky(Workflow):
    """Books in a step that fails so often, and is run again."""

    def __init__(self, book, fails, **options):
        super().__init__(timeout=None, **options)
        self.book, self.left = book, fails

    @step(retry_policy=AGAIN)
    async def act(self, ctx: Context, ev: Order) -> StopEvent:
        self.book(ev.item)
        self.book(ev.item)
        if self.left:
            self.left -= 1
            raise ConnectionError("lost")
        return StopEvent(result="done")


class TestAStepThatIsRunAgain:
    def test_repeats_its_effects_in_the_bare_framework(self, shop):
        async def case():
            return await Flaky(shop.do, 2).run(start_event=Order(item="seat"))

        assert asyncio.run(case()) == "done"
        assert shop.world.applications() == 6

    @pytest.mark.guarantee("LLAMAINDEX-1")
    def test_repeats_no_effect_in_a_saga(self, shop):
        book = shop.kit.safe_tool(shop.do, "COMPENSABLE", compensate=shop.undo)
        tool = saga_tool(book)
        work = Flaky(lambda item: tool.call(item=item), 2)
        assert run(work, Order(item="seat"), kit=shop.kit) == "done"
        assert shop.world.applications() == 2
        assert work.left == 0

    def test_and_fails_in_the_end_is_undone(self, shop):
        tool = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)
        with pytest.raises(SagaAborted) as failed:
            run(Flaky(lambda item: tool.call(item=item), 9), Order(item="seat"), kit=shop.kit)
        assert failed.value.report.clean
        assert shop.world.applications() == 2
        shop.world.assert_stands()

    @pytest.mark.guarantee("LLAMAINDEX-1")
    def test_runs_an_agent_again_without_a_second_effect(self, shop):
        model = Scripted.of(
            [call("book", "c1", item="seat")],
            ConnectionError("lost"),
            [call("book", "c2", item="seat"), call("book", "c3", item="room")],
            "done",
        )
        agent = FunctionAgent(tools=[shop.book], llm=model)
        agent = saga_agent(agent, shop.kit, tools={"book": shop.declared["book"]})

        class Clerk(Workflow):
            @step(retry_policy=AGAIN)
            async def act(self, ev: StartEvent) -> StopEvent:
                return StopEvent(result=str(await agent.run("go on")))

        assert run(Clerk(), kit=shop.kit) == "done"
        shop.world.assert_applied_once("seat", "room")

    def test_is_no_new_execution_of_another_one(self, shop):
        tool = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)

        class Twice(Workflow):
            @step
            async def act(self, ctx: Context, ev: Order) -> StopEvent | Order:
                tool.call(item=ev.item)
                if await ctx.store.get("done", default=False):
                    return StopEvent(result="done")
                await ctx.store.set("done", True)
                return ev

        assert run(Twice(), Order(item="seat"), kit=shop.kit) == "done"
        assert shop.world.applications() == 2


class Asked(Event):
    pass


class Waits(Workflow):
    """Books in a step, which then waits for an event of another step."""

    def __init__(self, book):
        super().__init__(timeout=None)
        self.book = book

    @step
    async def act(self, ctx: Context, ev: Order) -> Asked | StopEvent:
        self.book(ev.item)
        if not await ctx.store.get("asked", default=False):
            await ctx.store.set("asked", True)
            ctx.send_event(Asked())
        told = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=told.response)

    @step
    async def answer(self, ctx: Context, ev: Asked) -> None:
        ctx.send_event(HumanResponseEvent(response="yes"))


class TestAStepThatWaitsForAnEvent:
    def test_repeats_its_effect_in_the_bare_framework(self, shop):
        async def case():
            return await Waits(shop.do).run(start_event=Order(item="seat"))

        assert asyncio.run(case()) == "yes"
        assert shop.world.applications() == 2

    def test_repeats_no_effect_in_a_saga(self, shop):
        tool = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)
        work = Waits(lambda item: tool.call(item=item))
        assert run(work, Order(item="seat"), kit=shop.kit) == "yes"
        shop.world.assert_applied_once("seat")

    @pytest.mark.parametrize(
        ("first", "policy"), [(False, "continue"), (True, "continue"), (True, "rollback")]
    )
    def test_in_a_tool_is_no_failure_and_has_one_effect(self, shop, first, policy):
        async def book(ctx: Context, item: str) -> dict:
            """Book an item."""
            done = {} if first else shop.world.do(item)
            ctx.send_event(HumanResponseEvent(response="yes"))
            await ctx.wait_for_event(HumanResponseEvent)
            return shop.world.do(item) if first else done

        book.__annotations__["ctx"] = Context
        tool = saga_tool(book, compensate=shop.undo, kit=shop.kit, asks_first=first)
        agent = shop.agent([call("book", "c1", item="seat")], "done", tools=[tool])
        agent = saga_agent(agent, shop.kit, on_tool_failure=policy)

        async def case():
            return await saga_run(agent, "go on"), last_report()

        result, report = asyncio.run(case())
        shop.world.assert_applied_once("seat")
        assert report.clean is first
        assert ("without a known outcome" in str(result.tool_calls[0].tool_output)) is not first


class TestAWorkflow:
    def test_with_free_steps_and_synchronous_steps_is_a_boundary(self, shop):
        tool = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)

        class Free(Workflow):
            pass

        @step(workflow=Free)
        def act(ev: StartEvent) -> StopEvent:
            tool.call(item=ev.item)
            raise ValueError("no")

        with pytest.raises(SagaAborted):
            run(Free(), kit=shop.kit, item="seat")
        assert shop.world.applications() == 1
        shop.world.assert_restored()

    @pytest.mark.guarantee("LLAMAINDEX-9")
    def test_that_catches_a_failure_is_undone_where_that_is_asked_for(self, shop):
        tool = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)
        fails = saga_tool(shop.fail, semantics="REVERSIBLE", kit=shop.kit)

        class Quiet(Workflow):
            @step
            async def act(self, ev: StartEvent) -> StopEvent:
                tool.call(item="seat")
                with contextlib.suppress(RuntimeError):
                    await fails.acall(item="room")
                return StopEvent(result="done")

        assert run(Quiet(), kit=shop.kit) == "done"
        with pytest.raises(SagaAborted, match="no such item"):
            run(Quiet(), kit=shop.kit, on_tool_failure="rollback")
        assert len(shop.world.undone()) == 1

    def test_whose_time_is_up_is_undone(self, shop):
        tool = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)

        class Slow(Workflow):
            @step
            async def act(self, ev: StartEvent) -> StopEvent:
                tool.call(item="seat")
                await asyncio.Event().wait()
                return StopEvent()

        with pytest.raises(SagaAborted, match=r"timed out|Timeout"):
            run(Slow(timeout=0.3), kit=shop.kit)
        assert shop.world.applications() == 1
        shop.world.assert_restored()


class TestAnAgent:
    def agent(self, shop, *script, **options):
        return saga_agent(shop.agent(*script, **options), shop.kit, tools=shop.declared)

    def test_that_comes_to_its_limit_of_iterations_is_undone(self, shop):
        turns = [[call("book", f"c{n}", item=f"seat {n}")] for n in range(4)]
        with pytest.raises(SagaAborted, match="Max iterations"):
            run(self.agent(shop, *turns), "go on", max_iterations=3)
        shop.world.assert_restored()

    def test_that_hands_over_is_one_saga_with_its_agents(self, shop):
        handoff = call("handoff", "h1", to_agent="other", reason="so")
        one = FunctionAgent(
            name="one",
            description="a",
            tools=[shop.book],
            llm=Scripted.of([call("book", "c1", item="seat")], [handoff]),
        )
        other = FunctionAgent(
            name="other",
            description="b",
            tools=[shop.book],
            llm=Scripted.of([call("book", "c2", item="room")], OSError("down")),
        )
        work = AgentWorkflow([one, other], root_agent="one")
        work = saga_agent(work, shop.kit, tools={"book": shop.declared["book"]})
        with pytest.raises(SagaAborted):
            run(work, "go on")
        assert shop.world.undone() == ["room", "seat"]

    def test_is_told_of_a_failure_in_the_bare_framework_and_what_it_did_stands(self, shop):
        agent = shop.agent([call("book", item="seat")], [call("fails", item="x")], "done")

        async def case():
            return await agent.run("go on")

        assert str(asyncio.run(case())) == "done"
        shop.world.assert_applied_once("seat")

    def test_whose_tool_is_cancelled_from_inside_ends(self, shop):
        @saga_tool(semantics="REVERSIBLE", kit=shop.kit)
        async def gives_up(item: str) -> str:
            """Give up."""
            raise asyncio.CancelledError

        agent = shop.agent([call("gives_up", "c1", item="x")], "done", tools=[gives_up])
        assert str(run(saga_agent(agent, shop.kit), "go on")) == "done"

    def test_that_is_no_saga_agent_is_made_one_for_the_run(self, shop):
        tool = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)
        agent = shop.agent([call("book", "c1", item="seat")], OSError("down"), tools=[tool])
        with pytest.raises(SagaAborted):
            run(agent, "go on", kit=shop.kit)
        shop.world.assert_restored()

    def test_goes_on_with_a_conversation_in_its_context(self, shop):
        agent = self.agent(
            shop,
            *([call("book", "c1", item="seat")], "done", [call("book", "c1", item="seat")], "yes"),
        )

        async def case():
            context = Context(agent)
            said = [str(await saga_run(agent, "go on", ctx=context)) for _ in range(2)]
            return said, last_report()

        assert asyncio.run(case())[0] == ["done", "yes"]
        shop.world.assert_stands("seat", "seat")

    def test_streams_without_an_event_loop_and_gives_its_result(self, shop):
        script = [[call("book", "c1", item="seat")], "done"]
        events = list(saga_stream_sync(self.agent(shop, *script), "go on"))
        assert any(getattr(event, "tool_name", "") == "book" for event in events)

        async def case():
            stream = saga_stream(self.agent(shop, *script), "go on")
            with pytest.raises(ConfigurationError, match="saga_run_sync was called where"):
                saga_run_sync(self.agent(shop, *script), "go on")
            assert [event async for event in stream]
            return stream.result

        assert str(asyncio.run(case())) == "done"
        shop.world.assert_stands("seat", "seat")

    def test_inside_another_boundary_has_no_key_of_its_own(self, shop):
        async def case():
            async with shop.kit.transaction():
                await saga_run(self.agent(shop, "done"), "go on", key="mine")

        with pytest.raises(SagaAborted, match="was given a key"):
            asyncio.run(case())

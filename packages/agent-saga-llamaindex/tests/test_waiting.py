"""Runs that wait: for an event, for the gate, in a stream, inside other runs; and what goes on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from drivers import asks
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
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
from pydantic import BaseModel
from scripted import Scripted, call
from workflows.events import WorkflowIdleEvent

from agent_saga import ConfigurationError, PreFlightGate, SagaAborted, SagaClosed
from agent_saga_llamaindex import (
    ApprovalRequired,
    EventApprovals,
    Waiting,
    approve,
    deny,
    irreversible,
    read_only,
    saga_agent,
    saga_run,
    saga_stream,
    saga_tool,
)
from agent_saga_testing.integration.driver import QUICK

YES = HumanResponseEvent(response="yes")
SEAT, ROOM = call("book", "c1", item="seat"), call("book", "c3", item="room")
ASKS = call("ask", "c2", question="shall I?")
WIRE = call("wire", "c4", item="money")


def run(work, *args, **options):
    async def case():
        return await saga_run(work, *args, **options)

    return asyncio.run(case())


def again(waiting):
    """Return a context as another process reads it."""
    return json.loads(json.dumps(waiting.context))


@pytest.fixture
def gated(shop):
    """The shop, its gate asking by events."""
    gate = PreFlightGate(approval_provider=EventApprovals())
    shop.kit = type(shop.kit)("shop", wal=shop.kit.runtime.wal.path, gate=gate, settings=QUICK)
    return shop


def agent(shop, *script, **options):
    def wire(item: str) -> dict:
        """Wire money."""
        return shop.world.do(item)

    tools = [shop.book, shop.fails, *map(FunctionTool.from_defaults, (asks(), wire))]
    declared = {**shop.declared, "ask": read_only(), "wire": irreversible()}
    made = FunctionAgent(tools=tools, llm=Scripted.of(*script))
    return saga_agent(made, shop.kit, tools=declared, **options)


class TestAnAgentThatWaits:
    def test_is_gone_on_with_twice_in_the_bare_framework(self, shop):
        async def case():
            given = [shop.book, FunctionTool.from_defaults(asks())]
            script = [[ASKS], [ROOM], "done"]
            bare = FunctionAgent(tools=given, llm=Scripted.of(*script, *script[1:]))
            handler = bare.run("go on")
            async for event in handler.stream_events(expose_internal=True):
                if isinstance(event, WorkflowIdleEvent):
                    break
            kept = handler.ctx.to_dict()
            await handler.cancel_run()
            for _ in range(2):
                handler = bare.run(ctx=Context.from_dict(bare, kept))
                memory = ChatMemoryBuffer.from_defaults(chat_history=[])
                await handler.ctx.store.set("memory", memory)
                handler.ctx.send_event(YES)
                assert str(await handler) == "done"

        asyncio.run(case())
        assert shop.world.applications(name="room") == 2

    @pytest.mark.guarantee("LLAMAINDEX-7")
    @pytest.mark.guarantee("LLAMAINDEX-6")
    def test_is_gone_on_with_once_in_a_saga(self, shop):
        waiting = run(agent(shop, [SEAT, ASKS]), "go on")
        assert isinstance(waiting, Waiting)
        assert [event.prefix for event in waiting.events] == ["shall I?"]
        assert str(run(agent(shop, [ROOM], "done"), YES, ctx=again(waiting))) == "done"
        with pytest.raises(SagaClosed, match="COMMITTED"):
            run(agent(shop, [ROOM], "done"), YES, ctx=again(waiting))
        shop.world.assert_applied_once("seat", "room")

    def test_that_waits_again_is_not_gone_on_with_from_where_it_was_before(self, shop):
        first = run(agent(shop, [SEAT, ASKS]), "go on")
        more = [call("ask", "c9", question="really?"), ROOM]
        second = run(agent(shop, more), YES, ctx=again(first))
        assert [event.prefix for event in second.events] == ["really?"]
        with pytest.raises(SagaClosed, match="has gone further"):
            run(agent(shop, more), YES, ctx=again(first))
        assert str(run(agent(shop, "done"), YES, ctx=again(second))) == "done"
        shop.world.assert_applied_once("seat", "room")

    def test_goes_on_with_the_object_of_its_context_and_with_its_memory(self, shop):
        made = agent(shop, [SEAT, ASKS], "done")

        async def case():
            context = Context(made)
            assert isinstance(await saga_run(made, "a seat", ctx=context), Waiting)
            return await saga_run(made, YES, ctx=context)

        assert str(asyncio.run(case())) == "done"
        assert "a seat" in made.llm.seen[-1]

    def test_may_reuse_the_id_of_a_call_after_it(self, shop):
        waiting = run(agent(shop, [SEAT], [ASKS]), "go on")
        assert str(run(agent(shop, [SEAT], "done"), YES, ctx=again(waiting))) == "done"
        assert shop.world.applications(name="seat") == 2

    def test_is_told_nothing_but_answers(self, shop):
        waiting = run(agent(shop, [SEAT, ASKS]), "go on")
        with pytest.raises(ConfigurationError, match="is no answer"):
            run(agent(shop), "what now?", ctx=again(waiting))
        with pytest.raises(ConfigurationError, match="waits for none"):
            run(agent(shop), approve(by="ann"), ctx=again(waiting))
        with pytest.raises(ConfigurationError, match="which run waits"):
            run(agent(shop), YES)
        with pytest.raises(ConfigurationError, match="another saga"):
            run(agent(shop), YES, ctx=again(waiting), key="other")
        assert str(run(agent(shop, "done"), YES, ctx=again(waiting))) == "done"
        shop.world.assert_applied_once("seat")

    def test_that_hands_over_is_gone_on_with_by_the_other_agent(self, shop):
        def several(*scripts):
            tools = [shop.book, FunctionTool.from_defaults(asks())]
            made = [
                FunctionAgent(name=name, description=name, tools=tools, llm=Scripted.of(*script))
                for name, script in zip(("one", "other"), scripts, strict=True)
            ]
            work = AgentWorkflow(made, root_agent="one")
            declared = {"book": shop.declared["book"], "ask": read_only()}
            return saga_agent(work, shop.kit, tools=declared)

        handoff = call("handoff", "h1", to_agent="other", reason="so")
        waiting = run(several([[SEAT], [handoff]], [[ASKS]]), "go on")
        with pytest.raises(SagaAborted):
            run(several([], [[ROOM], OSError("down")]), YES, ctx=again(waiting))
        assert shop.world.undone() == ["room", "seat"]

    def test_whose_inverses_have_no_names_is_undone(self, shop):
        undone = []
        tool = saga_tool(shop.do, name="book", compensate=lambda made: undone.append, kit=shop.kit)
        given = [tool, FunctionTool.from_defaults(asks())]
        made = FunctionAgent(tools=given, llm=Scripted.of([SEAT], [ASKS]))
        with pytest.raises(SagaAborted, match="cannot be suspended"):
            run(saga_agent(made, shop.kit, tools={"ask": read_only()}), "go on")


class TestTheGate:
    @pytest.mark.guarantee("LLAMAINDEX-20")
    def test_asks_by_an_event_and_the_answer_is_bound_to_the_call(self, gated):
        waiting = run(agent(gated, [SEAT, WIRE]), "go on")
        [asked] = waiting.events
        assert isinstance(asked, ApprovalRequired)
        assert (asked.tool, asked.arguments) == ("wire", {"item": "money"})
        with pytest.raises(ConfigurationError, match="who gives it"):
            approve(by=" ")
        with pytest.raises(ConfigurationError, match="asks for no approval"):
            deny(by="ann", event=YES)
        yes = approve(by="ann", event=asked)
        assert str(run(agent(gated, "done"), yes, ctx=again(waiting))) == "done"
        gated.world.assert_applied_once("seat", "money")

    def test_asks_for_several_calls_and_is_answered_one_by_one(self, gated):
        other = call("wire", "c5", item="gold")
        waiting = run(agent(gated, [WIRE, other]), "go on")
        assert len(waiting.events) == 2
        yes = approve(by="ann", event=waiting.events[0])
        waiting = run(agent(gated), yes, ctx=again(waiting))
        [left] = waiting.events
        assert str(run(agent(gated, "done"), deny(by="ann"), ctx=again(waiting))) == "done"
        done = {"money", "gold"} - {left.arguments["item"]}
        gated.world.assert_applied_once(*done)

    @pytest.mark.guarantee("LLAMAINDEX-8")
    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize("hides", [False, True])
    def test_asks_in_a_step_of_a_workflow_whoever_catches_it(self, gated, is_async, hides):
        wire = saga_tool(gated.do, semantics="IRREVERSIBLE", name="wire", kit=gated.kit)
        book = saga_tool(gated.do, compensate=gated.undo, name="book", kit=gated.kit)

        def quietly(error):
            if not hides:
                raise error

        class Pays(Workflow):
            if is_async:

                @step
                async def act(self, ev: StartEvent) -> StopEvent:
                    await book.acall(item="seat")
                    try:
                        await wire.acall(item="money")
                    except Exception as error:
                        quietly(error)
                    return StopEvent(result="done")
            else:

                @step
                def act(self, ev: StartEvent) -> StopEvent:
                    book.call(item="seat")
                    try:
                        wire.call(item="money")
                    except Exception as error:
                        quietly(error)
                    return StopEvent(result="done")

        waiting = run(Pays(), kit=gated.kit)
        gated.world.assert_applied_once("seat")
        assert run(Pays(), approve(by="ann"), ctx=again(waiting), kit=gated.kit) == "done"
        gated.world.assert_applied_once("seat", "money")

    def test_asks_inside_an_agent_that_a_step_runs(self, gated):
        def work(*script):
            inner = agent(gated, *script)

            class Clerk(Workflow):
                @step
                async def act(self, ev: StartEvent) -> StopEvent:
                    return StopEvent(result=str(await inner.run("go on")))

            return Clerk()

        waiting = run(work([SEAT], [WIRE]), kit=gated.kit)
        gated.world.assert_applied_once("seat")
        other = call("book", "other", item="seat")
        script = [[other], [call("wire", "w", item="money")], "done"]
        assert run(work(*script), approve(by="ann"), ctx=again(waiting), kit=gated.kit) == "done"
        gated.world.assert_applied_once("seat", "money")

    def test_cannot_ask_inside_another_boundary(self, gated):
        async def case():
            async with gated.kit.transaction():
                return await saga_run(agent(gated, [WIRE], "done"), "go on")

        assert str(asyncio.run(case())) == "done"
        gated.world.assert_untouched()

    def test_asks_about_a_failure_in_a_step(self, gated):
        fails = saga_tool(gated.fail, semantics="REVERSIBLE", name="fails", kit=gated.kit)
        book = saga_tool(gated.do, compensate=gated.undo, name="book", kit=gated.kit)

        class Quiet(Workflow):
            @step
            async def act(self, ev: StartEvent) -> StopEvent:
                await book.acall(item="seat")
                try:
                    await fails.acall(item="x")
                except RuntimeError:
                    return StopEvent(result="went on")

        how = {"kit": gated.kit, "on_tool_failure": "ask"}
        waiting = run(Quiet(), **how)
        assert run(Quiet(), approve(by="ann"), ctx=again(waiting), **how) == "went on"
        gated.world.assert_applied_once("seat")
        waiting = run(Quiet(), **how)
        with pytest.raises(SagaAborted):
            run(Quiet(), deny(by="ann"), ctx=again(waiting), **how)
        gated.world.assert_stands("seat")


class TestAStream:
    def test_is_told_the_answer_while_it_goes_on(self, gated):
        async def case():
            stream = saga_stream(agent(gated, [SEAT, ASKS], [WIRE], "done"), "go on")
            async for event in stream:
                if isinstance(event, ApprovalRequired):
                    await stream.send_event(approve(by="ann", event=event))
                elif isinstance(event, InputRequiredEvent):
                    await stream.send_event(YES)
            with pytest.raises(ConfigurationError, match="Nothing of this run"):
                await stream.send_event(YES)
            return str(stream.result)

        assert asyncio.run(case()) == "done"
        gated.world.assert_applied_once("seat", "money")

    @pytest.mark.parametrize("leaves", [False, True])
    def test_that_is_not_told_or_is_left_there_waits(self, shop, leaves):
        async def case():
            made = agent(shop, [SEAT, ASKS], "done")
            context = Context(made)
            stream = saga_stream(made, "go on", ctx=context)
            async for event in stream:
                if leaves and isinstance(event, InputRequiredEvent):
                    break
            await stream.aclose()
            assert isinstance(stream.result, Waiting)
            shop.world.assert_applied_once("seat")
            return await saga_run(made, YES, ctx=context.to_dict())

        assert str(asyncio.run(case())) == "done"
        shop.world.assert_applied_once("seat")


class Work(Event):
    item: str


class State(BaseModel):
    left: int = 2


class Noted(State):
    agent_saga: Any = None


class TestAWorkflowThatWaits:
    def test_by_the_events_of_its_steps_is_gone_on_with(self, shop):
        tool = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)

        class Steps(Workflow):
            @step
            async def begin(self, ev: StartEvent) -> InputRequiredEvent:
                await tool.acall(item="seat")
                return InputRequiredEvent(prefix="shall I?")

            @step
            async def end(self, ev: HumanResponseEvent) -> StopEvent:
                await tool.acall(item="room")
                return StopEvent(result=ev.response)

        waiting = run(Steps(), kit=shop.kit)
        waiting = run(Steps(), ctx=again(waiting), kit=shop.kit)
        assert [event.prefix for event in waiting.events] == ["shall I?"]
        assert run(Steps(), YES, ctx=again(waiting), kit=shop.kit) == "yes"
        shop.world.assert_applied_once("seat", "room")

    def test_in_a_step_repeats_nothing_that_came_before(self, shop):
        tool = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)

        class Asks(Workflow):
            @step
            async def act(self, ctx: Context, ev: StartEvent) -> StopEvent | Work:
                await tool.acall(item="seat")
                await tool.acall(item="seat")
                ctx.send_event(Work(item="desk"))
                told = await ctx.wait_for_event(HumanResponseEvent, requirements={"by": "ann"})
                await tool.acall(item="room")
                return StopEvent(result=told.response)

            @step
            async def work(self, ev: Work) -> None:
                await tool.acall(item=ev.item)

        waiting = run(Asks(), kit=shop.kit)
        assert shop.world.applications() == 3
        answer = HumanResponseEvent(response="yes", by="ann")
        assert run(Asks(), answer, ctx=again(waiting), kit=shop.kit) == "yes"
        assert [one.name for one in shop.world.calls()] == ["seat", "seat", "desk", "room"]

    @pytest.mark.parametrize("state", [State, Noted])
    def test_needs_a_place_for_the_sagas_id_in_its_state(self, shop, state):
        tool = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit)

        class Typed(Workflow):
            @step
            async def act(self, ctx: Context[state], ev: StartEvent) -> StopEvent:
                await tool.acall(item="seat")
                return StopEvent(result=(await ctx.wait_for_event(HumanResponseEvent)).response)

        if state is State:
            with pytest.raises(SagaAborted, match="has no place for the saga's id"):
                run(Typed(), kit=shop.kit)
            return
        waiting = run(Typed(), kit=shop.kit)
        assert run(Typed(), YES, ctx=again(waiting), kit=shop.kit) == "yes"
        shop.world.assert_applied_once("seat")

    def test_and_is_at_rest_without_a_question_is_left_to_its_time(self, shop):
        class Rests(Workflow):
            @step
            async def act(self, ev: StartEvent) -> Work | None:
                return None

            @step
            async def end(self, ev: Work) -> StopEvent:
                return StopEvent()

        with pytest.raises(SagaAborted, match=r"timed out|Timeout"):
            run(Rests(timeout=0.3), kit=shop.kit)

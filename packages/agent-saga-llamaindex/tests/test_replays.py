"""What LlamaIndex runs again, in strange but legal workflows: no effect comes twice or is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from drivers import asks
from llama_index.core.agent.workflow import FunctionAgent
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
from scripted import Scripted, call
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

from agent_saga import ConfigurationError, PreFlightGate, current_saga
from agent_saga_llamaindex import (
    EventApprovals,
    Waiting,
    approve,
    compensable,
    read_only,
    saga_agent,
    saga_run,
    saga_tool,
)
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.world import World

AGAIN = retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(4))
YES = HumanResponseEvent(response="yes")


class Work(Event):
    item: str = "desk"


class Done(Event):
    pass


class Retried(Workflow):
    """Does something in a step that fails twice."""

    left = 2

    def __init__(self, do):
        super().__init__(timeout=None)
        self.do = do

    @step(retry_policy=AGAIN)
    async def act(self, ev: StartEvent) -> StopEvent:
        await self.do()
        if self.left:
            self.left -= 1
            raise ConnectionError("lost")
        return StopEvent(result="done")


def run(work, *args, **options):
    async def case():
        return await saga_run(work, *args, **options)

    return asyncio.run(case())


def again(waiting):
    return json.loads(json.dumps(waiting.context))


def items(shop):
    return sorted(one.name for one in shop.world.calls() if one.kind == "forward")


@pytest.fixture
def book(shop):
    return saga_tool(shop.do, compensate=shop.undo, name="book", kit=shop.kit)


def inner(shop, *script):
    return saga_agent(shop.agent(*script), shop.kit, tools=shop.declared)


class TestAStepThatIsRetried:
    @pytest.mark.guarantee("LLAMAINDEX-13")
    def test_repeats_no_function_of_the_kit_and_no_step_of_the_saga(self, shop):
        tool = shop.kit.safe_tool(shop.do, "COMPENSABLE", compensate=shop.undo, name="own")

        async def do():
            tool.call(item="seat")
            tool.call(item="seat")
            await current_saga().execute(
                tool="free",
                forward=lambda: shop.do("room"),
                compensate=lambda made: shop.undo,
                arguments={"item": "room"},
            )

        assert run(Retried(do), kit=shop.kit) == "done"
        assert items(shop) == ["room", "seat", "seat"]

    @pytest.mark.parametrize("bounded", [False, True])
    def test_repeats_no_run_of_an_agent_and_takes_two_runs_for_two(self, shop, bounded):
        async def do():
            for _ in range(2):
                agent = inner(shop, [call("book", "c1", item="seat")], "done")
                await (saga_run(agent, "go on") if bounded else agent.run("go on"))

        assert run(Retried(do), kit=shop.kit) == "done"
        assert items(shop) == ["seat", "seat"]

    @pytest.mark.guarantee("LLAMAINDEX-1")
    def test_in_a_workflow_of_the_bare_framework_that_a_step_runs_repeats_nothing(self, shop, book):
        """Two runs of it are two, and the outer step that is run again repeats both."""

        class Inner(Workflow):
            left = 1

            @step
            async def begin(self, ev: StartEvent) -> Work:
                await book.acall(item="seat")
                return Work()

            @step(retry_policy=AGAIN)
            async def work(self, ev: Work) -> StopEvent:
                await book.acall(item=ev.item)
                if self.left:
                    self.left -= 1
                    raise ConnectionError("lost")
                return StopEvent(result="done")

        async def do():
            for _ in range(2):
                await Inner(timeout=None).run()

        assert run(Retried(do), kit=shop.kit) == "done"
        assert items(shop) == ["desk", "desk", "seat", "seat"]

    @pytest.mark.guarantee("LLAMAINDEX-4")
    def test_sends_its_events_again_and_they_have_no_second_effect(self, shop, book):
        class Sends(Workflow):
            left = 2

            @step(retry_policy=AGAIN)
            async def act(self, ctx: Context, ev: StartEvent) -> Work | None:
                event = Work()
                ctx.send_event(event)
                ctx.send_event(event)
                await asyncio.sleep(0)
                if self.left:
                    self.left -= 1
                    raise ConnectionError("lost")

            @step(num_workers=4)
            async def work(self, ev: Work) -> Done:
                await book.acall(item=ev.item)
                return Done()

            @step
            async def end(self, ctx: Context, ev: Done) -> StopEvent | None:
                all_done = ctx.collect_events(ev, [Done] * 6)
                return StopEvent(result="done") if all_done else None

        assert run(Sends(timeout=None), kit=shop.kit) == "done"
        assert items(shop) == ["desk", "desk"]

    def test_beside_others_with_equal_events_repeats_only_its_own_effect(self, shop, book):
        class Fans(Workflow):
            number = 0

            @step
            async def act(self, ev: StartEvent) -> list[Work]:
                return [Work(), Work(), Work(item="lamp")]

            @step(num_workers=4, retry_policy=AGAIN)
            async def work(self, ev: Work) -> Done:
                await book.acall(item=ev.item)
                self.number += 1
                if self.number < 3:
                    raise ConnectionError("lost")
                return Done()

            @step
            async def end(self, evs: list[Done]) -> StopEvent:
                await book.acall(item="bill")
                return StopEvent(result=len(evs))

        assert run(Fans(timeout=None), kit=shop.kit) == 3
        assert items(shop) == ["bill", "desk", "desk", "lamp"]


def test_two_runs_in_one_boundary_are_two_whatever_ids_their_calls_have(shop):
    async def case():
        async with shop.kit.transaction():
            for _ in range(2):
                agent = inner(shop, [call("book", "c1", item="seat")], "done")
                await saga_run(agent, "go on")

    asyncio.run(case())
    assert items(shop) == ["seat", "seat"]


class TestAContext:
    def test_that_several_go_on_with_at_once_is_gone_on_with_by_one(self, shop):
        def agent(*script):
            tools = [shop.book, FunctionTool.from_defaults(asks())]
            declared = {"book": shop.declared["book"], "ask": read_only()}
            made = FunctionAgent(tools=tools, llm=Scripted.of(*script))
            return saga_agent(made, shop.kit, tools=declared)

        async def one(waiting):
            script = [[call("book", "c3", item="room")], "done"]
            try:
                return str(await saga_run(agent(*script), YES, ctx=again(waiting)))
            except Exception as refused:
                return type(refused).__name__

        async def case():
            script = [call("book", "c1", item="seat"), call("ask", "c2", question="shall I?")]
            waiting = await saga_run(agent(script), "go on")
            return await asyncio.gather(*(one(waiting) for _ in range(3)))

        ends = asyncio.run(case())
        assert ends.count("done") == 1
        assert items(shop) == ["room", "seat"]

    def test_whose_step_sent_events_before_it_waited_has_no_second_effect(self, shop, book):
        class Sends(Workflow):
            @step
            async def act(self, ctx: Context, ev: StartEvent) -> StopEvent | Work:
                for _ in range(3):
                    ctx.send_event(Work())
                for number in range(2):
                    await ctx.wait_for_event(
                        HumanResponseEvent, waiter_id=f"{number}", requirements={"of": number}
                    )
                return StopEvent(result="done")

            @step(num_workers=3)
            async def work(self, ev: Work) -> None:
                await book.acall(item=ev.item)

        waiting = run(Sends(), kit=shop.kit)
        for number in range(2):
            answer = HumanResponseEvent(response="yes", of=number)
            waiting = run(Sends(), answer, ctx=again(waiting), kit=shop.kit)
        assert waiting == "done"
        assert items(shop) == ["desk"] * 3

    def test_of_another_workflow_is_refused_and_remains_to_be_gone_on_with(self, shop, book):
        class Asks(Workflow):
            @step
            async def act(self, ctx: Context, ev: StartEvent) -> StopEvent:
                await book.acall(item="seat")
                return StopEvent(result=(await ctx.wait_for_event(HumanResponseEvent)).response)

        waiting = run(Asks(), kit=shop.kit)
        with pytest.raises(ConfigurationError, match="another workflow"):
            run(inner(shop, "done"), YES, ctx=again(waiting))
        assert run(Asks(), YES, ctx=again(waiting), kit=shop.kit) == "yes"
        assert items(shop) == ["seat"]

    def test_of_a_step_that_asks_the_gate_by_a_function_of_the_kit_is_gone_on_with(self, shop):
        gate = PreFlightGate(approval_provider=EventApprovals())
        path = shop.kit.runtime.wal.path
        kit = type(shop.kit)("shop", wal=path, gate=gate, settings=QUICK)
        wire = kit.safe_tool(shop.do, "IRREVERSIBLE", name="wire")

        class Pays(Workflow):
            @step
            async def begin(self, ev: StartEvent) -> Work:
                return Work(item="money")

            @step
            async def act(self, ev: Work) -> StopEvent:
                wire.call(item=ev.item)
                return StopEvent(result="paid")

        waiting = run(Pays(), kit=kit)
        assert run(Pays(), approve(by="ann"), ctx=again(waiting), kit=kit) == "paid"
        assert items(shop) == ["money"]

    def test_is_that_of_the_outer_workflow_where_it_asks_for_an_inner_one(self, shop):
        def agent():
            tools = [shop.book, FunctionTool.from_defaults(asks())]
            script = [call("book", "c1", item="seat"), call("ask", "c2", question="shall I?")]
            made = FunctionAgent(tools=tools, llm=Scripted.of(script, "done"))
            declared = {"book": shop.declared["book"], "ask": read_only()}
            return saga_agent(made, shop.kit, tools=declared)

        class Outer(Workflow):
            @step
            async def act(self, ctx: Context, ev: StartEvent) -> StopEvent:
                handler = agent().run("go on")
                async for event in handler.stream_events():
                    if isinstance(event, InputRequiredEvent):
                        asked = InputRequiredEvent(prefix=event.prefix)
                        told = await ctx.wait_for_event(HumanResponseEvent, waiter_event=asked)
                        handler.ctx.send_event(HumanResponseEvent(response=told.response))
                return StopEvent(result=str(await handler))

        waiting = run(Outer(timeout=None), kit=shop.kit)
        assert run(Outer(timeout=None), YES, ctx=again(waiting), kit=shop.kit) == "done"
        assert items(shop) == ["seat"]


def test_a_tool_that_is_run_again_after_its_end_has_no_second_effect(shop):
    async def sly(ctx: Context, item: str) -> dict:
        """Book, and leave the event that was waited for."""
        if not await ctx.store.get("asked", default=False):
            await ctx.store.set("asked", True)
            await ctx.wait_for_event(HumanResponseEvent, waiter_id="one", requirements={"of": 1})
        return shop.do(item)

    sly.__annotations__["ctx"] = Context

    def agent(*script):
        tools = [FunctionTool.from_defaults(tool) for tool in (sly, asks())]
        declared = {"sly": compensable(shop.undo, asks_first=True), "ask": read_only()}
        made = FunctionAgent(tools=tools, llm=Scripted.of(*script))
        return saga_agent(made, shop.kit, tools=declared)

    waiting = run(agent([call("sly", "c1", item="seat")]), "go on")
    more = [[call("ask", "c2", question="shall I?")], *["done"] * 3]
    answer = HumanResponseEvent(response="yes", of=1)
    result = run(agent(*more), answer, ctx=again(waiting))
    if isinstance(result, Waiting):
        run(agent(*["done"] * 3), YES, ctx=again(result))
    assert items(shop) == ["seat"]


@pytest.mark.guarantee("LLAMAINDEX-5")
@pytest.mark.crash
def test_an_event_that_was_sent_again_before_a_crash_has_no_second_effect(tmp_path):
    program = [sys.executable, str(Path(__file__).with_name("dying.py")), str(tmp_path)]
    assert subprocess.run(program, check=False).returncode == 1
    world = World(tmp_path / "world.sqlite", honours_keys=False)
    world.assert_applied_once("desk")
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "done"
    world.assert_applied_once("desk")


def test_what_handles_an_event_that_was_sent_again_has_no_second_effect_after_it_waited(shop, book):
    class Sends(Workflow):
        left = 1

        @step(retry_policy=AGAIN)
        async def act(self, ctx: Context, ev: StartEvent) -> Work | None:
            ctx.send_event(Work())
            if self.left:
                self.left -= 1
                raise ConnectionError("lost")

        @step
        async def work(self, ctx: Context, ev: Work) -> Done:
            await book.acall(item=ev.item)
            await ctx.wait_for_event(HumanResponseEvent)
            return Done()

        @step
        async def end(self, ctx: Context, ev: Done) -> StopEvent | None:
            return StopEvent(result="done") if ctx.collect_events(ev, [Done] * 2) else None

    waiting = run(Sends(timeout=None), kit=shop.kit)
    assert run(Sends(timeout=None), YES, ctx=again(waiting), kit=shop.kit) == "done"
    assert items(shop) == ["desk"]

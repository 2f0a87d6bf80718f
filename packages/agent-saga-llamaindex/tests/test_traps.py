"""What LlamaIndex repeats, or loses, by itself, and what it does with agent-saga round it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import warnings

import pytest
from llama_index.core.tools import AsyncBaseTool, FunctionTool
from llama_index.core.workflow import Context
from scripted import call

from agent_saga.errors import SagaClosed
from agent_saga_llamaindex import last_report, saga_agent, saga_run, saga_stream, wrap_tool

BOTH = pytest.mark.parametrize("with_saga", [False, True])


class Held:
    """A tool that has had its effect, and has not told so yet."""

    def __init__(self, shop):
        async def held(item: str) -> dict:
            """Book an item."""
            done = shop.world.do(item)
            self.reached.set()
            await self.released.wait()
            return done

        self.reached, self.released = asyncio.Event(), asyncio.Event()
        self.tool = FunctionTool.from_defaults(async_fn=held, name="held")
        self.declared = {"held": shop.declared["book"]}


def agent_with(shop, held, *script, with_saga):
    agent = shop.agent(*script, tools=[held.tool])
    return saga_agent(agent, shop.kit, tools=held.declared) if with_saga else agent


def kept(context):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(context.to_dict()))


async def taken_in_flight(agent, held, *, with_saga):
    """Begin a run; return its context as it was while the tool was in flight, and the run."""
    context = Context(agent)

    async def run():
        if not with_saga:
            return await agent.run("go on", ctx=context)
        async for _ in (stream := saga_stream(agent, "go on", ctx=context)):
            pass
        return stream.result

    task = asyncio.ensure_future(run())
    await held.reached.wait()
    return kept(context), task


SCRIPT = [[call("held", "c1", item="seat")], "done"]


@pytest.mark.guarantee("LLAMAINDEX-6")
@BOTH
def test_a_context_that_was_taken_in_flight_has_the_effect_again_when_it_is_gone_on_with(
    shop, with_saga
):
    async def case():
        held = Held(shop)
        agent = agent_with(shop, held, *SCRIPT, with_saga=with_saga)
        context, task = await taken_in_flight(agent, held, with_saga=with_saga)
        held.released.set()
        assert str(await task) == "done"
        other = agent_with(shop, held, *SCRIPT, with_saga=with_saga)
        if with_saga:
            with pytest.raises(SagaClosed):
                await saga_run(other, ctx=context)
            return
        with contextlib.suppress(Exception):  # it has lost its memory, and fails behind the effect
            await other.run(ctx=Context.from_dict(other, context))

    asyncio.run(case())
    assert shop.world.applications(name="seat") == (1 if with_saga else 2)


@BOTH
def test_a_cancelled_run_whose_tool_had_its_effect_leaves_it_or_says_so(shop, with_saga):
    async def case():
        held = Held(shop)
        agent = agent_with(shop, held, *SCRIPT, with_saga=with_saga)
        if with_saga:
            task = asyncio.ensure_future(reporting(saga_run(agent, "go on")))
            await held.reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return
        handler = agent.run("go on")
        await held.reached.wait()
        await handler.cancel_run()

    async def reporting(run):
        try:
            return await run
        finally:
            reports.append(last_report())

    reports = []
    asyncio.run(case())
    shop.world.assert_stands("seat")
    if with_saga:
        assert not reports[0].clean
        assert [line.tool for line in reports[0].standing] == ["held"]


@pytest.mark.guarantee("LLAMAINDEX-11")
def test_a_run_that_is_cancelled_does_not_go_on_behind_its_caller(shop):
    reached = asyncio.Event()

    async def slow(item: str) -> dict:
        """Book an item, later."""
        reached.set()
        await asyncio.sleep(3)
        return shop.world.do(item)

    tool = FunctionTool.from_defaults(async_fn=slow, name="slow")
    agent = shop.agent([call("slow", "c1", item="seat")], "done", tools=[tool])
    agent = saga_agent(agent, shop.kit, tools={"slow": shop.declared["book"]})

    async def case():
        task = asyncio.ensure_future(saga_run(agent, "go on"))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(case())
    assert not shop.world.calls()


class Delegating(AsyncBaseTool):
    """A tool round a tool, as one is written without looking at how contexts are given."""

    def __init__(self, inner):
        self.inner = inner

    @property
    def metadata(self):
        return self.inner.metadata

    def call(self, *args, **kwargs):
        return self.inner.call(*args, **kwargs)

    async def acall(self, *args, **kwargs):
        return await self.inner.acall(*args, **kwargs)


@BOTH
def test_a_tool_round_a_tool_loses_the_context_and_a_wrapped_one_keeps_it(shop, with_saga):
    def note(ctx: Context, item: str) -> str:
        """Note an item."""
        return f"{item} {type(ctx).__name__}"

    note.__annotations__["ctx"] = Context
    tool = FunctionTool.from_defaults(note)
    script = [[call("note", "c1", item="a")], "done"]

    async def case():
        if not with_saga:
            return await shop.agent(*script, tools=[Delegating(tool)]).run("go on")
        wrapped = wrap_tool(tool, semantics="REVERSIBLE", kit=shop.kit)
        agent = saga_agent(shop.agent(*script, tools=[wrapped]), shop.kit)
        return await saga_run(agent, "go on")

    [told] = asyncio.run(case()).tool_calls
    assert told.tool_output.is_error is not with_saga
    assert told.tool_output.content == "a Context" or not with_saga

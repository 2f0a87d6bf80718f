"""What the SDK hides or leaves running: each by itself, and with agent-saga round it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from agents import Agent, RunConfig, RunHooks, Runner, ToolExecutionConfig, function_tool
from scripted import Scripted, call

from agent_saga import SagaAborted
from agent_saga_openai_agents import (
    last_report,
    saga_agent,
    saga_run,
    saga_run_sync,
    saga_stream,
)
from agent_saga_testing.waiting import until

BOTH = pytest.mark.parametrize("with_saga", [False, True])
DOWN = OSError("down")


def book(item, id=""):  # noqa: A002
    return call("book", id, item=item)


class Case:
    """An agent by itself, or with agent-saga round it."""

    def __init__(self, shop, script, *more, with_saga, **options):
        """Take further tools; each of them may change something."""
        self.shop, self.with_saga, self.report = shop, with_saga, None
        agent = Agent(name="A", model=Scripted(script), tools=[shop.book, shop.fails, *more])
        declared = {**shop.declared, **{tool.name: shop.declared["book"] for tool in more}}
        self.agent = saga_agent(agent, shop.kit, tools=declared, **options) if with_saga else agent

    async def started(self, **options):
        if not self.with_saga:
            return await Runner.run(self.agent, "go on", **options)
        try:
            return await saga_run(self.agent, "go on", **options)
        finally:
            self.report = last_report()

    def run(self, **options):
        return asyncio.run(self.started(**options))


@BOTH
def test_a_tool_error_that_is_text_is_a_success_beside_what_its_siblings_did(shop, with_saga):
    options = {"on_tool_failure": "rollback"} if with_saga else {}
    script = [[book("seat"), call("fails", item="x"), book("room")], "done"]
    case = Case(shop, script, with_saga=with_saga, **options)
    if not with_saga:
        assert case.run().final_output == "done"
        shop.world.assert_stands("seat", "room")
        return
    with pytest.raises(SagaAborted, match="no such item"):
        case.run()
    shop.world.assert_restored()


@BOTH
def test_calls_one_after_the_other_leave_the_first_ones_behind(shop, with_saga):
    """With one call at a time those behind a failure do not begin; those before it stand."""

    @function_tool(failure_error_function=None)
    def breaks(item: str) -> str:
        """Break."""
        raise RuntimeError("broken")

    script = [[book("seat"), call("breaks", item="x"), book("room")], "done"]
    one = RunConfig(tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1))
    case = Case(shop, script, breaks, with_saga=with_saga)
    with pytest.raises(SagaAborted if with_saga else Exception, match="broken"):
        case.run(run_config=one)
    assert not shop.world.calls("forward", "room")
    if with_saga:
        assert shop.world.undone() == ["seat"]
    else:
        shop.world.assert_stands("seat")


@BOTH
def test_a_tool_whose_time_was_up_is_a_success_that_may_have_done_something(shop, with_saga):
    @function_tool(timeout=0.2)
    async def slow(item: str) -> str:
        """Book an item, and never answer."""
        shop.world.do(item)
        await asyncio.sleep(60)
        return item

    case = Case(shop, [[call("slow", item="seat")], "done"], slow, with_saga=with_saga)
    assert case.run().final_output == "done"
    assert shop.world.applications() <= 1
    if with_saga:
        assert case.report.clean is (shop.world.attempts() == 0)


@BOTH
def test_a_cancelled_run_leaves_a_thread_behind_that_has_its_effect_later(shop, with_saga):
    reached, released = threading.Event(), threading.Event()

    @function_tool
    def slow(item: str) -> dict:
        """Book an item, when it may."""
        reached.set()
        until(released.is_set)
        return shop.world.do(item)

    case = Case(shop, [[call("slow", item="seat")], "done"], slow, with_saga=with_saga)

    async def cancelled():
        task = asyncio.ensure_future(case.started())
        await asyncio.to_thread(until, reached.is_set)
        task.cancel()
        if with_saga:
            released.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        stood = shop.world.applications()
        released.set()
        return stood

    stood = asyncio.run(cancelled())
    until(lambda: shop.world.applications() == 1)
    if with_saga:
        assert stood == 1
        assert case.report.clean
        shop.world.assert_restored()
    else:
        assert stood == 0
        shop.world.assert_stands("seat")


@BOTH
def test_a_stream_that_fails_says_so_only_to_who_takes_it_and_leaves_its_effects(shop, with_saga):
    case = Case(shop, [[book("seat")], DOWN], with_saga=with_saga)

    async def taken():
        if with_saga:
            stream = saga_stream(case.agent, "go on")
        else:
            stream = Runner.run_streamed(case.agent, "go on").stream_events()
        async for _ in stream:
            pass

    with pytest.raises(SagaAborted if with_saga else OSError):
        asyncio.run(taken())
    if with_saga:
        shop.world.assert_restored()
    else:
        shop.world.assert_stands("seat")


@BOTH
def test_a_call_that_stands_twice_in_a_turn_is_one_or_two_by_version(shop, with_saga):
    script = [[book("seat", "c1"), book("seat", "c1")], "done"]
    assert Case(shop, script, with_saga=with_saga).run().final_output == "done"
    assert shop.world.applications() == 1 if with_saga else shop.world.applications() in (1, 2)


class Quits(RunHooks):
    """Ends the program behind a tool."""

    async def on_tool_end(self, *args, **kwargs):
        raise SystemExit("all")


@pytest.mark.parametrize("how", ["bare", "loop", "sync"])
def test_a_hook_that_ends_the_program_leaves_what_was_done_or_undoes_it(shop, how):
    """The SDK calls it in a task, which ends the loop; who ends the loop's tasks ends the run."""
    case = Case(shop, [[book("seat")], "done"], with_saga=how != "bare")
    with pytest.raises(SystemExit, match="all"):
        if how == "sync":
            saga_run_sync(case.agent, "go on", hooks=Quits())
        else:
            case.run(hooks=Quits())
    if how == "bare":
        shop.world.assert_stands("seat")
    else:
        shop.world.assert_restored()


def test_a_cancelled_run_and_the_agent_inside_it_undo_each_call_once(shop):
    """Both are undone at the same time: the SDK leaves the inner one behind in a task."""
    reached, released = threading.Event(), threading.Event()

    @function_tool
    def slow(item: str) -> dict:
        """Book an item, when it may."""
        reached.set()
        until(released.is_set)
        return shop.world.do(item)

    inner = Agent(
        name="inner",
        model=Scripted([[call("slow", item="car"), book("boat")], "done"]),
        tools=[slow, shop.book],
    )
    asks = inner.as_tool("ask", "Ask.")
    script = [[call("ask", input="q"), book("seat")], "done"]
    agent = Agent(name="A", model=Scripted(script), tools=[shop.book, asks])
    declared = {"book": shop.declared["book"], "slow": shop.declared["book"]}
    agent = saga_agent(agent, shop.kit, tools=declared)
    reports = []

    async def run():
        try:
            await saga_run(agent, "go on")
        finally:
            reports.append(last_report())

    async def cancelled():
        task = asyncio.ensure_future(run())
        await asyncio.to_thread(until, lambda: reached.is_set() and shop.world.applications() == 2)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        released.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert sorted(shop.world.undone()) == ["boat", "car", "seat"]
    assert reports[0].clean

"""Runtimes that the program stops while a team runs in them, and teams inside agents of teams."""

from __future__ import annotations

import asyncio

import pytest
from autogen_agentchat.agents import SocietyOfMindAgent
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_agentchat.teams import MagenticOneGroupChat, RoundRobinGroupChat
from autogen_core import SingleThreadedAgentRuntime
from autogen_core.tools import FunctionTool
from scripted import Scripted, call
from test_ends import runtime_of
from test_teams import ledger

from agent_saga import ConfigurationError, SagaAborted
from agent_saga_autogen import last_report, read_only, saga_agent, saga_run, saga_stream

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]
CAR = [call("book", item="car")]
SLOW = [call("slow", item="x")]
DOWN = OSError("the model is down")


class Stopped:
    """A team whose first agent is in the middle of its work when its runtime is stopped."""

    def __init__(self, shop):
        self.runtime = SingleThreadedAgentRuntime()
        self.runtime.start()
        self.reached, self.goes_on = asyncio.Event(), asyncio.Event()

        async def slow(item: str) -> str:
            """Take a while."""
            self.reached.set()
            await self.goes_on.wait()
            return item

        tools = [shop.book, FunctionTool(slow, description="Take a while.")]
        first = shop.agent(SEAT, SLOW, ROOM, "A", CAR, "A again", tools=tools)
        second = shop.agent(CAR, "B", "B again", name="B", tools=[shop.book])
        team = RoundRobinGroupChat([first, second], max_turns=2, runtime=self.runtime)
        declared = {"book": shop.declared["book"], "slow": read_only()}
        self.team = saga_agent(team, shop.kit, tools=declared)

    async def stop(self, how):
        await self.reached.wait()
        await getattr(self.runtime, how)()
        self.goes_on.set()


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_run_whose_runtime_is_stopped_comes_to_its_end_and_is_undone(shop, how):
    """AutoGen by itself waits for ever."""

    async def case():
        stopped = Stopped(shop)
        run = asyncio.ensure_future(saga_run(stopped.team, "go on"))
        await stopped.stop(how)
        with pytest.raises(SagaAborted, match="was stopped while the run went on") as aborted:
            await run
        assert isinstance(aborted.value.cause, ConfigurationError)
        assert shop.world.undone() == ["room", "seat"]
        shop.world.assert_restored()
        stopped.runtime.start()
        result = await saga_run(stopped.team, "go on")
        await stopped.runtime.stop()
        return result

    said = [m.content for m in asyncio.run(case()).messages if m.type == "TextMessage"]
    assert said == ["go on", "B", "A again"]  # whose turn it was goes on; "A" is not told
    shop.world.assert_stands("car", "car")


def test_a_stream_whose_runtime_is_stopped_comes_to_its_end(shop):
    async def case():
        stopped = Stopped(shop)
        stopping = asyncio.ensure_future(stopped.stop("stop"))
        with pytest.raises(SagaAborted, match="was stopped"):
            async for event in saga_stream(stopped.team, "go on"):
                if isinstance(event, ToolCallExecutionEvent):
                    await asyncio.sleep(0.05)
        await stopping

    asyncio.run(case())
    shop.world.assert_restored()


def test_a_runtime_that_is_stopped_when_it_is_idle_lets_the_run_end(shop):
    async def case():
        stopped = Stopped(shop)
        run = asyncio.ensure_future(saga_run(stopped.team, "go on"))
        await stopped.reached.wait()
        stopping = asyncio.ensure_future(stopped.runtime.stop_when_idle())
        stopped.goes_on.set()
        result = await run
        await stopping
        return result

    assert asyncio.run(case()).messages[-1].content == "B"
    shop.world.assert_stands("seat", "room", "car")


@pytest.mark.parametrize("kind", ["own", "foreign"])
@pytest.mark.parametrize("outer", ["magentic", "round robin"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_team_inside_an_agent_of_a_team_is_in_the_boundary(shop, kind, outer, fails):
    async def case():
        async with runtime_of(kind) as runtime:
            last = DOWN if fails else "B"
            members = [shop.agent(SEAT, "A"), shop.agent(ROOM, last, name="B")]
            inner = RoundRobinGroupChat(members, max_turns=2)
            mind = SocietyOfMindAgent("mind", inner, Scripted("all"), description="Books.")
            said = ["facts", "plan", ledger("mind"), ledger("mind", done=True), "all is done"]
            if outer == "magentic":
                team = MagenticOneGroupChat([mind], Scripted(*said), runtime=runtime)
            else:
                team = RoundRobinGroupChat([mind], max_turns=1, runtime=runtime)
            team = saga_agent(team, shop.kit, tools=shop.declared)
            if not fails:
                await saga_run(team, "go on")
                return last_report()
            with pytest.raises(SagaAborted) as aborted:
                await saga_run(team, "go on")
            assert aborted.value.cause is DOWN
            return aborted.value.report

    assert asyncio.run(case()).clean
    if fails:
        shop.world.assert_restored()
    else:
        shop.world.assert_applied_once("seat", "room")

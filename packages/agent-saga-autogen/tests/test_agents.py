"""Agents and teams under care: what is cloned, refused, nested, handed over."""

from __future__ import annotations

import asyncio

import pytest
from autogen_agentchat.agents import (
    BaseChatAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import CancellationToken, SingleThreadedAgentRuntime
from autogen_core.tools import FunctionTool
from scripted import Scripted, call

from agent_saga import (
    AgentKit,
    ConfigurationError,
    Policy,
    PreFlightGate,
    SagaAborted,
    UndeclaredTool,
)
from agent_saga_autogen import (
    last_report,
    read_only,
    saga_agent,
    saga_run,
    saga_run_sync,
    saga_stream,
    saga_stream_sync,
    saga_tool,
)
from agent_saga_testing.integration.driver import QUICK

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]
FAILS = [call("fails", item="nothing")]
ASKS = [call("inner", "i1", task="do it")]
DOWN = OSError("the model is down")


def run(shop, agent, task="go on", **options):
    return asyncio.run(saga_run(agent, task, kit=shop.kit, **options))


def last(result):
    return result.messages[-1].content


class TestAClone:
    def test_leaves_the_agent_its_tools_and_shares_what_it_remembers(self, shop):
        agent = shop.agent(SEAT, "done", SEAT, "again")
        clone = saga_agent(agent, shop.kit, tools=shop.declared)
        assert isinstance(clone, type(agent))
        assert last(run(shop, clone)) == "done"
        assert last(asyncio.run(agent.run(task="go on"))) == "again"
        assert clone.model_context is agent.model_context
        shop.world.assert_stands("seat", "seat")

    def test_of_a_team_has_a_runtime_of_its_own(self, shop):
        team = RoundRobinGroupChat([shop.agent(SEAT, "done", "again")], max_turns=1)
        clone = saga_agent(team, shop.kit, tools=shop.declared)
        assert last(run(shop, clone)) == "done"
        assert last(asyncio.run(team.run(task="go on"))) == "again"

    def test_is_not_made_of_a_team_that_has_run(self, shop):
        team = RoundRobinGroupChat([shop.agent("done")], max_turns=1)
        asyncio.run(team.run(task="go on"))
        with pytest.raises(ConfigurationError, match="has run already"):
            saga_agent(team, shop.kit, tools=shop.declared)

    def test_is_not_made_twice(self, shop):
        clone = saga_agent(shop.agent(), shop.kit, tools=shop.declared)
        with pytest.raises(ConfigurationError, match="already"):
            saga_agent(clone, shop.kit)

    def test_refuses_its_tools_where_no_boundary_is(self, shop):
        clone = saga_agent(shop.agent(SEAT, "done"), shop.kit, tools=shop.declared)
        result = asyncio.run(clone.run(task="go on"))
        assert "outside any boundary" in result.messages[2].content[0].content
        shop.world.assert_untouched()

    def test_cannot_be_dumped(self, shop):
        agent = saga_agent(shop.agent(), shop.kit, tools=shop.declared)
        team = saga_agent(RoundRobinGroupChat([shop.agent()]), shop.kit, tools=shop.declared)
        for one in (agent, team):
            with pytest.raises(ConfigurationError, match="cannot be dumped"):
                one.dump_component()

    def test_of_a_team_runs_once_at_a_time(self, shop):
        reached = asyncio.Event()

        async def waits(item: str) -> str:
            reached.set()
            await asyncio.Event().wait()
            return item

        tool = FunctionTool(waits, description="Wait.")
        team = RoundRobinGroupChat([shop.agent([call("waits", item="")], tools=[tool])])
        clone = saga_agent(team, shop.kit, tools={"waits": read_only()})

        async def case():
            first = asyncio.ensure_future(saga_run(clone, "go on"))
            await reached.wait()
            with pytest.raises(SagaAborted, match="has not ended yet"):
                await saga_run(clone, "go on")
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

        asyncio.run(case())


class TestTools:
    def test_must_be_declared_all_of_them(self, shop):
        tools = [shop.book, shop.fails]
        inner = shop.agent(name="inner", tools=[FunctionTool(shop.do, description="x", name="do")])
        team = RoundRobinGroupChat([shop.agent(tools=[*tools, AgentTool(inner)])])
        with pytest.raises(UndeclaredTool, match="book, fails, do"):
            saga_agent(team, shop.kit)

    def test_must_be_there_if_they_are_declared(self, shop):
        with pytest.raises(ConfigurationError, match="no tool buck; the tools are book, fails"):
            saga_agent(shop.agent(), shop.kit, tools={**shop.declared, "buck": read_only()})

    def test_are_what_the_policy_declares(self, shop):
        rows = {"book": {"semantics": "COMPENSABLE"}, "fails": {"semantics": "REVERSIBLE"}}
        rows["book"]["compensate"] = {"handler": "shop.cancel", "kwargs": {"effect": "$.id"}}
        gate = PreFlightGate(policy=Policy({"tools": rows}))
        kit = AgentKit("policed", wal=str(shop.folder / "policed"), gate=gate, settings=QUICK)
        with pytest.raises(SagaAborted):
            asyncio.run(saga_run(saga_agent(shop.agent(SEAT, DOWN), kit), "go on"))
        shop.world.assert_restored()

    def test_of_members_may_be_declared_differently(self, shop):
        one = saga_agent(shop.agent(SEAT, "so"), shop.kit, tools=shop.declared)
        look = FunctionTool(self.look, description="Look.", name="book")
        other = shop.agent(ROOM, DOWN, name="B", tools=[look])
        other = saga_agent(other, shop.kit, tools={"book": read_only()})
        runtime = SingleThreadedAgentRuntime()

        async def case():
            runtime.start()
            with pytest.raises(SagaAborted):
                await saga_run(
                    RoundRobinGroupChat([one, other], runtime=runtime), "go", kit=shop.kit
                )
            await runtime.stop()

        asyncio.run(case())
        assert shop.world.undone() == ["seat"]

    @staticmethod
    def look(item: str) -> str:
        return item


def test_an_agent_that_runs_code_is_refused(shop):
    class Executor:
        timeout = 1

    coder = object.__new__(CodeExecutorAgent)
    coder._name = "coder"
    with pytest.raises(ConfigurationError, match=r"coder .* cannot be wrapped"):
        saga_agent(coder, shop.kit)
    with pytest.raises(ConfigurationError, match="not Executor"):
        saga_agent(Executor(), shop.kit)


class TestAnAgentThatIsATool:
    def agent(self, shop, inner, *script, tool=AgentTool):
        tools = [shop.book, shop.fails, tool(inner)]
        return saga_agent(shop.agent(*script, tools=tools), shop.kit, tools=shop.declared)

    def test_is_a_part_of_the_run(self, shop):
        agent = self.agent(shop, shop.agent(SEAT, "so", name="inner"), ASKS, ROOM, DOWN)
        with pytest.raises(SagaAborted):
            run(shop, agent)
        assert shop.world.undone() == ["room", "seat"]

    def test_is_undone_alone_when_it_fails(self, shop):
        inner = shop.agent(SEAT, DOWN, name="inner")
        assert last(run(shop, self.agent(shop, inner, ROOM, ASKS, "done"))) == "done"
        assert shop.world.undone() == ["seat"]
        shop.world.assert_stands("room")

    def test_undoes_the_run_where_that_is_asked_for(self, shop):
        agent = self.agent(shop, shop.agent(SEAT, DOWN, name="inner"), ROOM, ASKS, "done")
        with pytest.raises(SagaAborted, match="the model is down"):
            run(shop, agent, on_tool_failure="rollback")
        shop.world.assert_restored()

    def test_stops_the_run_when_a_tool_inside_does(self, shop):
        inner = shop.agent(SEAT, FAILS, "so", name="inner")
        with pytest.raises(SagaAborted, match="no such item"):
            run(shop, self.agent(shop, inner, ASKS, ROOM, "done"), on_tool_failure="rollback")
        assert shop.world.undone() == ["seat"]

    def test_may_be_a_team_in_a_runtime_of_others(self, shop):
        runtime = SingleThreadedAgentRuntime()

        async def case():
            runtime.start()
            member = shop.agent(SEAT, DOWN, name="member")
            team = RoundRobinGroupChat([member], runtime=runtime)
            tool = TeamTool(team, name="inner", description="Do it.")
            agent = shop.agent(ROOM, ASKS, "done", tools=[shop.book, shop.fails, tool])
            result = await saga_run(saga_agent(agent, shop.kit, tools=shop.declared), "go on")
            await runtime.stop()
            return result

        assert last(asyncio.run(case())) == "done"
        assert shop.world.undone() == ["seat"]
        shop.world.assert_stands("room")

    def test_tells_a_stream_what_it_does(self, shop):
        agent = self.agent(shop, shop.agent(SEAT, "so", name="inner"), ASKS, "done")

        async def case():
            return [event async for event in saga_stream(agent, "go on")]

        events = asyncio.run(case())
        told = [event.source for event in events if isinstance(event, ToolCallExecutionEvent)]
        assert told == ["inner", "A"]
        assert isinstance(events[-1], TaskResult)
        shop.world.assert_applied_once("seat")


class TestAgentsInsideAgents:
    def test_are_found_in_a_society_of_mind(self, shop):
        team = RoundRobinGroupChat([shop.agent(SEAT, "so")], max_turns=1)
        agent = SocietyOfMindAgent("mind", team, Scripted(DOWN))
        with pytest.raises(SagaAborted):
            run(shop, saga_agent(agent, shop.kit, tools=shop.declared))
        shop.world.assert_restored()

    def test_are_found_behind_a_filter(self, shop):
        agent = MessageFilterAgent(
            "filter", shop.agent(SEAT, DOWN), MessageFilterConfig(per_source=[])
        )
        with pytest.raises(SagaAborted):
            run(shop, saga_agent(agent, shop.kit, tools=shop.declared))
        shop.world.assert_restored()

    def test_are_chosen_by_a_selector(self, shop):
        agents = [shop.agent(SEAT, "so", description="a"), shop.agent(ROOM, DOWN, name="B")]
        team = SelectorGroupChat(agents, Scripted("A", "B"), max_turns=2)
        with pytest.raises(SagaAborted):
            run(shop, saga_agent(team, shop.kit, tools=shop.declared))
        assert shop.world.undone() == ["room", "seat"]

    def test_hand_over_to_each_other(self, shop):
        one = shop.agent(SEAT, [call("transfer_to_b")], handoffs=["B"])
        other = shop.agent(ROOM, "TERMINATE", name="B")
        team = Swarm([one, other], termination_condition=TextMentionTermination("TERMINATE"))
        run(shop, saga_agent(team, shop.kit, tools=shop.declared))
        shop.world.assert_applied_once("seat", "room")


class TestStreams:
    def test_give_their_result_and_their_report(self, shop):
        agent = saga_agent(shop.agent(SEAT, "done"), shop.kit, tools=shop.declared)

        async def case():
            stream = saga_stream(agent, "go on")
            async for _ in stream:
                assert stream.result is None
            return stream.result, last_report()

        result, report = asyncio.run(case())
        assert last(result) == "done"
        assert report.outcome == "COMMITTED"

    def test_of_a_team_that_are_closed_early_are_undone(self, shop):
        team = RoundRobinGroupChat([shop.agent(SEAT, ROOM, "done")], max_turns=1)
        agent = saga_agent(team, shop.kit, tools=shop.declared)
        for event in saga_stream_sync(agent, "go on"):
            if isinstance(event, ToolCallExecutionEvent):
                break
        assert shop.world.applications() == 1
        shop.world.assert_restored()

    def test_without_a_loop_are_refused_where_one_runs(self, shop):
        async def case():
            saga_run_sync(shop.agent("done"), "go on")

        with pytest.raises(ConfigurationError, match="Use saga_run and await it"):
            asyncio.run(case())


def test_a_run_inside_another_boundary_is_a_savepoint(shop):
    async def case():
        async with shop.kit.transaction():
            agent = saga_agent(shop.agent(SEAT, DOWN, ROOM, "done"), tools=shop.declared)
            with pytest.raises(SagaAborted):
                await saga_run(agent, "go on")
            await saga_run(agent, "go on")
            with pytest.raises(ConfigurationError, match="given a key"):
                await saga_run(agent, "go on", key="k")

    asyncio.run(case())
    assert shop.world.undone() == ["seat"]
    shop.world.assert_stands("room")


def test_a_team_that_was_not_put_under_care_goes_on_with_its_conversation(shop):
    member = saga_agent(shop.agent(SEAT, "one", ROOM, "two"), shop.kit, tools=shop.declared)

    async def case():
        runtime = SingleThreadedAgentRuntime()
        runtime.start()
        team = RoundRobinGroupChat([member], max_turns=1, runtime=runtime)
        results = [await saga_run(team, "go on", kit=shop.kit) for _ in range(2)]
        await runtime.stop()
        return [last(result) for result in results]

    assert asyncio.run(case()) == ["one", "two"]
    shop.world.assert_stands("seat", "room")


def test_what_a_lost_model_repeats_is_done_once(shop):
    shop.world.lose_answers(1)
    agent = saga_agent(shop.agent(*[SEAT] * 4, "done"), shop.kit, tools=shop.declared)
    run(shop, agent)
    assert shop.world.attempts() == 1


class Own(BaseChatAgent):
    """An agent that no model leads."""

    produced_message_types = (TextMessage,)

    def __init__(self, tool):
        super().__init__("Own", "Calls a tool.")
        self._tool = tool

    async def on_messages(self, messages, token):
        del messages
        await self._tool.run_json({"item": "seat"}, token)
        return Response(chat_message=TextMessage(content="so", source=self.name))

    async def on_reset(self, token):
        del token


@pytest.mark.parametrize("who", ["own", "proxy"])
def test_an_agent_of_any_class_is_in_the_boundary_also_in_a_runtime_of_others(shop, who):
    book = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit, name="book")

    async def ask(question, token):
        del question
        return str(await book.run_json({"item": "seat"}, token or CancellationToken()))

    first = Own(book) if who == "own" else UserProxyAgent("User", input_func=ask)

    async def case():
        runtime = SingleThreadedAgentRuntime()
        runtime.start()
        team = RoundRobinGroupChat(
            [first, shop.agent(DOWN, name="B")], max_turns=2, runtime=runtime
        )
        team = saga_agent(team, shop.kit, tools=shop.declared)
        with pytest.raises(SagaAborted) as aborted:
            await saga_run(team, "go on")
        await runtime.stop()
        return aborted.value.report

    assert asyncio.run(case()).clean
    assert shop.world.undone() == ["seat"]
    shop.world.assert_restored()

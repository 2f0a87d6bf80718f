"""Agents, teams and tools of classes of the program's own, whatever these keep and ask for."""

from __future__ import annotations

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from scripted import Scripted, call

from agent_saga import SagaAborted
from agent_saga_autogen import saga_agent, saga_run, saga_tool

SEAT = [call("book", item="seat")]
DOWN = OSError("the model is down")


class Slotted(BaseChatAgent):
    """Keeps what it has in slots."""

    __slots__ = ("__hidden", "tool")
    produced_message_types = (TextMessage,)

    def __init__(self, tool):
        super().__init__("Slotted", "Calls a tool.")
        self.tool, self.__hidden = tool, "so"

    async def on_messages(self, messages, cancellation_token):
        del messages
        await self.tool.run_json({"item": "seat"}, cancellation_token)
        return Response(chat_message=TextMessage(content=self.__hidden, source=self.name))

    async def on_reset(self, cancellation_token):
        del cancellation_token


class Registered(AssistantAgent):
    """Wants to know of every subclass what it is for."""

    known = ()

    def __init_subclass__(cls, *, purpose, **options):
        super().__init_subclass__(**options)
        Registered.known = (*Registered.known, purpose)


class Clerk(Registered, purpose="to book"):
    pass


class OwnTeam(RoundRobinGroupChat):
    def __init_subclass__(cls, *, purpose, **options):
        super().__init_subclass__(**options)


class Office(OwnTeam, purpose="to work"):
    pass


class OwnTool(AgentTool):
    def __init_subclass__(cls, *, purpose, **options):
        super().__init_subclass__(**options)


class Asking(OwnTool, purpose="to ask"):
    pass


def run(shop, agent):
    return asyncio.run(saga_run(agent, "go on", kit=shop.kit))


def clerk(shop, *script, name="A", tools=None):
    tools = [shop.book, shop.fails] if tools is None else tools
    return Clerk(name, Scripted(*script), tools=tools, max_tool_iterations=9)


def test_an_agent_that_keeps_what_it_has_in_slots(shop):
    book = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit, name="book")
    agent = saga_agent(Slotted(book), shop.kit)
    assert run(shop, agent).messages[-1].content == "so"
    shop.world.assert_applied_once("seat")


@pytest.mark.parametrize("kind", ["agent", "team", "tool"])
def test_a_class_that_asks_its_subclasses_for_something_is_told_of_none(shop, kind):
    before = Registered.known
    agent = clerk(shop, SEAT, DOWN if kind != "tool" else "so")
    if kind == "team":
        agent = Office([agent], max_turns=1)
    if kind == "tool":
        asks = [call("A", task="do it")]
        agent = shop.agent(asks, DOWN, name="B", tools=[Asking(agent)])
    with pytest.raises(SagaAborted):
        run(shop, saga_agent(agent, shop.kit, tools=shop.declared))
    shop.world.assert_restored()
    assert shop.world.undone() == ["seat"]
    assert Registered.known == before


class TestTheCause:
    """It is the tool's own error, and not that a call may not be repeated."""

    def test_of_a_run_that_makes_an_equal_call_twice(self, shop):
        shop.world.lose_answers(1)
        same = [call("book", "c1", item="seat"), call("book", "c1", item="seat")]
        agent = saga_agent(shop.agent(same, "done"), shop.kit, tools=shop.declared)
        with pytest.raises(SagaAborted) as aborted:
            asyncio.run(saga_run(agent, "go on", on_tool_failure="rollback"))
        assert isinstance(aborted.value.cause, ConnectionError)
        assert shop.world.attempts() == 1

    def test_of_a_run_that_repeats_what_the_program_had_lost(self, shop):
        book = saga_tool(shop.do, compensate=shop.undo, kit=shop.kit, name="book")
        agent = saga_agent(shop.agent(SEAT, "done", tools=[book]), shop.kit)

        async def case():
            async with shop.kit.transaction(on_unsettled="warn"):
                with pytest.raises(ConnectionError):
                    await book.saga_effect.tool.acall(item="seat")
                await saga_run(agent, "go on", on_tool_failure="rollback")

        shop.world.lose_answers(1)
        with pytest.raises(SagaAborted) as aborted:
            asyncio.run(case())
        cause = aborted.value.cause
        cause = cause.cause if isinstance(cause, SagaAborted) else cause
        assert isinstance(cause, ConnectionError)
        assert shop.world.attempts() == 1

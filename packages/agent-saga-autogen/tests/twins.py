"""A team of two agents whose tools have one name and do different things; for any process."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import BaseTool, FunctionTool
from pydantic import BaseModel
from scripted import Scripted, call

from agent_saga import AgentKit, compensator
from agent_saga.plugins.registry import process_handlers
from agent_saga_autogen import compensable, read_only, saga_agent, saga_run, saga_tool
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.world import World

SEAT = [call("book", "c1", item="seat")]
DIES = [call("dies", "d1", item="now")]


class Own(BaseChatAgent):
    """An agent that no model leads: it calls its tool for each item of its script."""

    produced_message_types = (TextMessage,)

    def __init__(self, name, tools, script):
        super().__init__(name, "Calls its tools.")
        self._tools, self._script = {tool.name: tool for tool in tools}, script

    async def on_messages(self, messages, cancellation_token):
        del messages
        for turn in self._script:
            for one in turn if isinstance(turn, list) else ():
                tool = self._tools[one.name]
                await tool.run_json({"item": "seat"}, cancellation_token)
        return Response(chat_message=TextMessage(content="so", source=self.name))

    async def on_reset(self, cancellation_token):
        del cancellation_token


class Twins:
    """The world, the kit, and the agents."""

    def __init__(self, folder):
        self.world = world = World(folder / "world.sqlite", honours_keys=False)
        self.kit = AgentKit("twins", wal=str(folder / "log"), settings=QUICK)

        @compensator("twins.cancel")
        def cancel(effect, *, idempotency_key):
            world.undo(effect, key=idempotency_key)

        self.undo = cancel.using(effect="$.id")
        self.declared = {"book": compensable(self.undo), "dies": read_only()}

    def tools(self, what):
        world = self.world

        def book(item: str) -> dict:
            """Book an item."""
            return world.do(f"{what} {item}")

        def dies(item: str) -> str:
            """Die."""
            os._exit(9)

        return [
            saga_tool(book, compensate=self.undo, kit=self.kit),
            saga_tool(dies, semantics="REVERSIBLE", kit=self.kit),
        ]

    def team(self, one, other, *, own=False):
        members = [
            Own(name, self.tools(what), script)
            if own
            else AssistantAgent(
                name, Scripted(*script), tools=self.tools(what), max_tool_iterations=9
            )
            for name, what, script in (("A", "hotel", one), ("B", "flight", other))
        ]
        team = RoundRobinGroupChat(members, max_turns=len(members))
        return saga_agent(team, self.kit)

    def alike(self, kind, one, other, turns=2):
        """Return a team whose agents have the same tools: of functions, or of a class."""
        world = self.world

        def book(item: str) -> dict:
            """Book an item."""
            return world.do(item)

        def dies(item: str) -> str:
            """Die."""
            os._exit(9)

        tools = [
            FunctionTool(book, description="Book an item.") if kind == "function" else Books(book),
            FunctionTool(dies, description="Die."),
        ]
        members = [
            AssistantAgent(name, Scripted(*script), tools=tools, max_tool_iterations=9)
            for name, script in (("A", one), ("B", other))
        ]
        team = RoundRobinGroupChat(members, max_turns=turns)
        return saga_agent(team, self.kit, tools=self.declared)

    async def run(self, one, other, *, own=False, kind="", key="trip", turns=2):
        team = self.alike(kind, one, other, turns) if kind else self.team(one, other, own=own)
        result = await saga_run(team, "go on", key=key)
        return result.messages[-1].content


class Item(BaseModel):
    """What is booked."""

    item: str


class Books(BaseTool[Item, dict]):
    """A tool of a class of one's own."""

    def __init__(self, book):
        super().__init__(Item, dict, "book", "Book an item.")
        self._book = book

    async def run(self, args, cancellation_token):
        del cancellation_token
        return self._book(args.item)


def run(folder, one, other, own, kind=""):
    """Run the team in this process, which may die."""
    with process_handlers().isolated():
        return asyncio.run(Twins(folder).run(one, other, own=own, kind=kind))

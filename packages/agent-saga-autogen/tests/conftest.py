"""A shop whose effects are counted in a file, for tests against the real framework."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# What lies beside the tests: each framework's package has modules of these names.
sys.path.insert(0, str(Path(__file__).parent))

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from scripted import Scripted

from agent_saga import AgentKit, compensator
from agent_saga.plugins.registry import process_handlers
from agent_saga_autogen import compensable, read_only
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.world import World


class Shop:
    """Tools over a world without keys: a second call is a second effect."""

    def __init__(self, folder):
        self.folder = folder
        self.world = world = World(folder / "world.sqlite", honours_keys=False)
        self.kit = AgentKit("shop", wal=str(folder / "log"), settings=QUICK)

        @compensator("shop.cancel")
        def cancel(effect, *, idempotency_key):
            world.undo(effect, key=idempotency_key)

        def book(item: str) -> dict:
            """Book an item."""
            return world.do(item)

        async def fails(item: str) -> str:
            """Fail."""
            raise RuntimeError("no such item")

        self.cancel = cancel
        self.undo = cancel.using(effect="$.id")
        self.do, self.fail = book, fails
        self.book = FunctionTool(book, description="Book an item.")
        self.fails = FunctionTool(fails, description="Fail.")
        self.declared = {"book": compensable(self.undo), "fails": read_only()}

    def agent(self, *script, tools=None, name="A", **options):
        """Return an agent whose model plays a script."""
        if "workbench" not in options:
            options["tools"] = [self.book, self.fails] if tools is None else tools
        options = {"max_tool_iterations": 20, **options}
        return AssistantAgent(name, Scripted(*script), **options)


@pytest.fixture
def shop(tmp_path):
    with process_handlers().isolated():
        yield Shop(tmp_path)

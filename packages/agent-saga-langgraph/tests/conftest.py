"""A shop whose effects are counted in a file, for tests against the real frameworks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from langchain_core.tools import tool
from langgraph.types import interrupt

from agent_saga import AgentKit, compensator
from agent_saga.plugins.registry import process_handlers
from agent_saga_langgraph import compensable, read_only
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.world import World

# What lies beside the tests: each framework's package has modules of these names.
sys.path.insert(0, str(Path(__file__).parent))


class Shop:
    """Tools over a world without keys: a second call is a second effect."""

    def __init__(self, folder):
        self.folder = folder
        self.world = world = World(folder / "world.sqlite", honours_keys=False)
        self.kit = AgentKit("shop", wal=str(folder / "log"), settings=QUICK)

        @compensator("shop.cancel")
        def cancel(effect, *, idempotency_key):
            world.undo(effect, key=idempotency_key)

        @tool
        def book(item: str) -> dict:
            """Book an item."""
            return world.do(item)

        @tool
        def ask(question: str) -> str:
            """Ask a human."""
            return str(interrupt(question))

        @tool
        def fails(item: str) -> str:
            """Fail."""
            raise RuntimeError("no such item")

        self.cancel = cancel
        self.book, self.ask, self.fails = book, ask, fails
        self.tools = [book, ask, fails]
        self.declared = {
            "book": compensable(cancel.using(effect="$.id")),
            "ask": read_only(),
            "fails": read_only(),
        }


@pytest.fixture
def shop(tmp_path):
    with process_handlers().isolated():
        yield Shop(tmp_path)

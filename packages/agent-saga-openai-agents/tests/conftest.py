"""A shop whose effects are counted in a file, for tests against the real framework."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import warnings
from pathlib import Path

import pytest
from agents import function_tool, set_tracing_disabled

# What lies beside the tests: each framework's package has modules of these names.
sys.path.insert(0, str(Path(__file__).parent))

from agent_saga import AgentKit, compensator
from agent_saga.plugins.registry import process_handlers
from agent_saga_openai_agents import compensable, read_only
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.world import World

set_tracing_disabled(True)


class Shop:
    """Tools over a world without keys: a second call is a second effect."""

    def __init__(self, folder):
        self.folder = folder
        self.world = world = World(folder / "world.sqlite", honours_keys=False)
        self.kit = AgentKit("shop", wal=str(folder / "log"), settings=QUICK)

        @compensator("shop.cancel")
        def cancel(effect, *, idempotency_key):
            world.undo(effect, key=idempotency_key)

        def do(item: str) -> dict:
            """Book an item."""
            return world.do(item)

        book = function_tool(do, name_override="book")

        @function_tool
        async def fails(item: str) -> str:
            """Fail."""
            raise RuntimeError("no such item")

        self.cancel = cancel
        self.undo = cancel.using(effect="$.id")
        self.do = do
        self.book, self.fails = book, fails
        self.declared = {"book": compensable(self.undo), "fails": read_only()}


@pytest.fixture(autouse=True)
def no_loop_is_left():
    """Close the loop that a run without one leaves on its thread, as the SDK's own does."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with contextlib.suppress(RuntimeError):
            asyncio.get_event_loop_policy().get_event_loop().close()
            asyncio.set_event_loop(None)


@pytest.fixture
def shop(tmp_path):
    with process_handlers().isolated():
        yield Shop(tmp_path)

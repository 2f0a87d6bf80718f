"""A shop whose effects are counted in a file, for tests against the real framework."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# What lies beside the tests: each framework's package has modules of these names.
sys.path.insert(0, str(Path(__file__).parent))

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from scripted import Scripted

from agent_saga import AgentKit, compensator
from agent_saga.plugins.registry import process_handlers
from agent_saga_llamaindex import compensable, read_only
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.world import World

WARNINGS = (
    "ignore::pydantic.warnings.PydanticDeprecationWarning",
    "ignore:is_running called from within a step:DeprecationWarning",
    "ignore:Skipping serialization of known unserializable key:Warning",
)


def pytest_configure(config):
    """Let pass what LlamaIndex warns itself of, and what it makes pydantic warn of."""
    for kind in WARNINGS:
        config.addinivalue_line("filterwarnings", kind)


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
        self.book = FunctionTool.from_defaults(book)
        self.fails = FunctionTool.from_defaults(fails)
        self.declared = {"book": compensable(self.undo), "fails": read_only()}
        self.declared_book = {"book": self.declared["book"]}

    def agent(self, *script, tools=None, **options):
        """Return an agent whose model plays a script."""
        given = [self.book, self.fails] if tools is None else tools
        return FunctionAgent(tools=given, llm=Scripted.of(*script), **options)


@pytest.fixture
def shop(tmp_path):
    with process_handlers().isolated():
        yield Shop(tmp_path)

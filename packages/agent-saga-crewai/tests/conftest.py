"""A shop whose effects are counted in a file, for tests against the real framework."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# What lies beside the tests: each framework's package has modules of these names.
sys.path.insert(0, str(Path(__file__).parent))

import quiet  # noqa: F401 - before the framework
from crewai import Agent, Crew, Task
from crewai.tools import tool
from scripted import Scripted

from agent_saga import AgentKit, compensator
from agent_saga.plugins.registry import process_handlers
from agent_saga_crewai import compensable, read_only
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.world import World


def pytest_configure(config):
    """Let pass what CrewAI warns itself of."""
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:crewai")


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
        def fails(item: str) -> str:
            """Fail."""
            raise RuntimeError("no such item")

        self.cancel, self.book, self.fails = cancel, book, fails
        self.undo = cancel.using(effect="$.id")
        self.declared = {"book": compensable(self.undo), "fails": read_only()}

    def agent(self, *script, tools=None, native=True, role="clerk", **options):
        """Return an agent whose model plays a script."""
        return Agent(
            role=role,
            goal="do it",
            backstory="you do",
            llm=Scripted.of(*script, native=native),
            tools=[self.book, self.fails] if tools is None else tools,
            **options,
        )

    def crew(self, *script, task=None, crew=None, **options):
        """Return a crew of one agent and one task."""
        agent = self.agent(*script, **options)
        given = {"description": "go on", "expected_output": "a word", **(task or {})}
        return Crew(agents=[agent], tasks=[Task(agent=agent, **given)], **(crew or {}))


@pytest.fixture
def shop(tmp_path):
    with process_handlers().isolated():
        yield Shop(tmp_path)

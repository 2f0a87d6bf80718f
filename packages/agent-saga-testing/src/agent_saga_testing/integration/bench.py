"""What a case works with: a driver, a world, tools, and short words for what all cases do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent_saga import PreFlightGate, RecoveryDaemon
from agent_saga_testing.integration.driver import (
    QUICK,
    AgentDriver,
    CaseTool,
    Ended,
    Options,
    Turn,
)
from agent_saga_testing.integration.elsewhere import agent_of
from agent_saga_testing.integration.tools import Tools
from agent_saga_testing.kits.conformance import Conformance
from agent_saga_testing.world import World

__all__ = ["Bench", "IntegrationCases"]


class Bench:
    """The place of one case.

    Args:
        driver: the framework's.
        folder: the case's own.
    """

    def __init__(self, driver: AgentDriver, folder: Path) -> None:
        self.driver = driver
        self.folder = folder
        self.tools = Tools(folder)

    @property
    def world(self) -> World:
        """Where effects are counted."""
        return self.tools.world

    def agent(
        self,
        script: Sequence[Turn],
        *tools: CaseTool,
        gate: PreFlightGate | None = None,
        **options: Any,
    ) -> Any:
        """Return an agent; options as `driver.Options`."""
        given = tools or (self.tools.book(), self.tools.reserve(), self.tools.look_up())
        return self.driver.agent(self.driver.kit(gate), script, given, Options(**options))

    def run(self, agent: Any) -> Ended:
        """Run an agent on an event loop."""
        return asyncio.run(self.driver.run(agent))

    def resumable(self, script: Sequence[Turn], **options: Any) -> Any:
        """Return an agent that can be gone on with, also by another process.

        Its gate asks by suspending the run; options as `driver.Options`.
        """
        return agent_of(self.driver, self.tools, script, **options)

    def resume(self, agent: Any, answer: str | None) -> Ended:
        """Go on with an agent's run."""
        return asyncio.run(self.driver.resume(agent, answer))

    def decide(self, agent: Any, *, approved: bool) -> Ended:
        """Answer the question that an agent's run waits for."""
        return asyncio.run(self.driver.decide(agent, approved=approved))

    def recover(self) -> None:
        """Undo what dead processes left."""
        RecoveryDaemon(self.folder / "log", settings=QUICK).recover_all(undo_held=True)


class IntegrationCases(Conformance):
    """The base of the parts of the kit.

    Attributes:
        driver: the framework's driver.
    """

    capabilities: ClassVar[Any] = None
    driver: ClassVar[type[AgentDriver]]

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Bench:
        """The place of one case."""
        return Bench(self.driver(tmp_path), tmp_path)

"""Kits on logs in memory, and handlers that are forgotten again."""

from __future__ import annotations

import pytest

from agent_saga import AgentKit, MemoryWAL, Settings
from agent_saga.plugins.registry import process_handlers


@pytest.fixture
def kit():
    return AgentKit("kit", wal=MemoryWAL(), settings=Settings(settle=0.5, settle_after=0.0))


@pytest.fixture(autouse=True)
def handlers():
    with process_handlers().isolated() as registries:
        yield registries

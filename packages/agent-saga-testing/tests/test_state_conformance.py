"""The built-in state stores pass the kit."""

from __future__ import annotations

from functools import partial

import pytest

from agent_saga.state.base import Capabilities
from agent_saga.state.memory import MemoryStateStore
from agent_saga.state.sqlite import SQLiteStateStore
from agent_saga_testing.kits.state import StateConformance


class TestMemory(StateConformance):
    capabilities = Capabilities("memory", False, False, False)

    @pytest.fixture
    def opener(self):
        return MemoryStateStore


class TestSQLite(StateConformance):
    capabilities = Capabilities("disk", True, True, False)

    @pytest.fixture
    def opener(self, tmp_path):
        return partial(SQLiteStateStore, tmp_path / "log" / "state.sqlite")

"""The built-in logs pass the kit."""

from __future__ import annotations

from functools import partial

import pytest

from agent_saga.wal.base import Capabilities
from agent_saga.wal.file import FileWAL
from agent_saga.wal.memory import MemoryWAL
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.sink import SinkWAL
from agent_saga_testing.kits.wal import WALConformance


class TestFile(WALConformance):
    capabilities = Capabilities(OsPort.durability, True, True, False, OsPort.can_share_locks)

    @pytest.fixture
    def opener(self, tmp_path):
        return partial(FileWAL, tmp_path / "log")


class TestMemory(WALConformance):
    capabilities = Capabilities("memory", False, False, False, False)

    @pytest.fixture
    def opener(self):
        return MemoryWAL


class ListSink:
    """A storage sink that keeps its lines in a list."""

    def __init__(self):
        self.taken = []

    async def write(self, data):
        self.taken.append(data)

    async def sync(self):
        pass

    async def read(self):
        return b"".join(self.taken)


class TestSink(WALConformance):
    capabilities = Capabilities("sink", False, False, False, False)

    @pytest.fixture
    def opener(self):
        return lambda **options: SinkWAL(ListSink(), **options)

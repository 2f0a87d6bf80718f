"""The pytest plugin: fixtures for worlds, kits, clocks, faults and doubles.

Rules of this part:

- pytest loads this module at every start, in every project that has it installed: it imports
  nothing of agent-saga until a fixture is used.
- A fixture that holds something gives it back, also when the test failed.
"""

# ruff: noqa: PLC0415 - imports stand where a fixture needs them, as the rules above say

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent_saga import AgentKit
    from agent_saga.state.memory import MemoryStateStore
    from agent_saga.wal.memory import MemoryWAL
    from agent_saga_testing.clock import FakeClock
    from agent_saga_testing.faults import FaultyPort
    from agent_saga_testing.world import World

pytest.register_assert_rewrite("agent_saga_testing.kits", "agent_saga_testing.integration")


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers of the kits known."""
    config.addinivalue_line("markers", "conformance: a kit that every backend of a port must pass")
    config.addinivalue_line("markers", "crash: kills real processes")


@pytest.fixture
def saga_world(tmp_path: Path) -> World:
    """A new world of effects, in a database file of its own."""
    from agent_saga_testing.world import World

    return World(tmp_path / "world.sqlite")


@pytest.fixture
def saga_handlers() -> Iterator[None]:
    """Let the test register inverses, probers and reconcilers; they are forgotten at the end."""
    from agent_saga.plugins.registry import process_handlers

    with process_handlers().isolated():
        yield


@pytest.fixture
def saga_kit(
    tmp_path: Path,
    saga_handlers: None,  # noqa: ARG001 - it is asked for what it does
) -> Iterator[AgentKit]:
    """A kit with a log of its own on the disk; its handlers are forgotten at the end."""
    from agent_saga import AgentKit
    from agent_saga.wal.file import FileWAL

    wal = FileWAL(tmp_path / "agent-saga.wal")
    yield AgentKit("test", wal=wal)
    wal.close()


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that moves only when it is told to."""
    from agent_saga_testing.clock import FakeClock

    return FakeClock()


@pytest.fixture
def faulty_port() -> Iterator[FaultyPort]:
    """A port of system calls that fail on request; healed, and emptied, at the end."""
    from agent_saga_testing.faults import FaultyPort

    port = FaultyPort()
    yield port
    port.heal()
    port.let_go()


@pytest.fixture
def memory_wal() -> Iterator[MemoryWAL]:
    """A new log in memory, closed at the end."""
    from agent_saga_testing.doubles import MemoryWAL

    wal = MemoryWAL()
    yield wal
    wal.close()


@pytest.fixture
def memory_state() -> Iterator[MemoryStateStore]:
    """A new state store in memory, closed at the end."""
    from agent_saga_testing.doubles import MemoryStateStore

    with MemoryStateStore() as store:
        yield store

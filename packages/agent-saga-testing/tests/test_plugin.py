"""The fixtures, and what loading the plugin costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent_saga_testing.clock import FakeClock
from agent_saga_testing.faults import FaultyPort
from agent_saga_testing.world import World


def test_loading_the_plugin_loads_nothing_else():
    program = (
        "import sys, pytest; before = set(sys.modules); import agent_saga_testing.pytest_plugin;"
        "print(sorted(m for m in set(sys.modules) - before if m.split('.')[0] != '__future__'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "['agent_saga_testing', 'agent_saga_testing.pytest_plugin']"


def test_fixtures(saga_world, fake_clock, faulty_port, memory_state, memory_wal, tmp_path):
    assert type(saga_world) is World
    assert saga_world.path.parent == tmp_path
    assert type(fake_clock) is FakeClock
    assert type(faulty_port) is FaultyPort
    assert memory_state.address == memory_wal.address == "memory:"
    assert memory_wal.capabilities.durability == "memory"


@pytest.mark.parametrize("turn", [1, 2])
def test_a_kit_forgets_its_tools_and_keeps_its_log_apart(saga_kit, saga_world, tmp_path, turn):
    @saga_kit.tool("COMPENSABLE")
    def charge(amount, *, idempotency_key):
        return saga_world.do("charge", key=idempotency_key, amount=amount)

    @charge.undo
    def refund(result, *, idempotency_key):
        saga_world.undo(result["id"], key=idempotency_key)

    with saga_kit.transaction():
        charge(turn)
    saga_world.assert_applied_once("charge")
    assert (tmp_path / "agent-saga.wal").is_dir()

"""A world of counted effects, and kits with a gate."""

from __future__ import annotations

import pytest

from agent_saga import AgentKit, FileApprovalStore, MemoryWAL, PreFlightGate, Settings
from agent_saga.plugins.registry import process_handlers

FAST = Settings(
    settle=0.5, settle_after=0.2, inverse_delay=0.0, cancel_grace=0.2, approval_timeout=5.0
)


class World:
    def __init__(self):
        self.amounts = []

    def wire(self, amount, to="acme"):
        self.amounts.append(amount)
        return {"amount": amount, "to": to}

    def mail(self, to):
        self.amounts.append(to)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def wal():
    return MemoryWAL()


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def store(log):
    return FileApprovalStore(log)


@pytest.fixture
def gated(wal):
    def make(*rules, provider=None, **options):
        gate = PreFlightGate(rules, approval_provider=provider, **options)
        return AgentKit("gated", wal=wal, gate=gate, settings=FAST)

    return make


@pytest.fixture(autouse=True)
def handlers():
    with process_handlers().isolated() as registries:
        yield registries

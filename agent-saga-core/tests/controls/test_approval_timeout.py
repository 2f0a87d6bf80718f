"""How long a human has: one answer, whoever gives it: the policy, the gate, or the setting."""

from __future__ import annotations

import time

import pytest

from agent_saga import (
    AgentKit,
    ApprovalDenied,
    ApprovalGateway,
    ApprovalPolicy,
    ConfigurationError,
    EscalationLevel,
    FileApprovalStore,
    PreFlightGate,
    Settings,
)

HOUR = 3600.0


class Denying:
    """A notifier that remembers how long people had, and denies."""

    def __init__(self, store):
        self.store = store
        self.left = []

    def notify(self, notice):
        self.left.append(notice.deadline / 1_000_000 - time.time())
        self.store.deny(notice.id, approver="ann")


@pytest.fixture
def left(tmp_path):
    """Ask through a kit, and return how many seconds people had."""

    def ask(policy=None, *, gate=None, setting=None):
        store = FileApprovalStore(tmp_path / "log")
        denying = Denying(store)
        gateway = ApprovalGateway(store, denying, policy=policy)
        kit = AgentKit(
            "asking",
            wal=str(tmp_path / "log"),
            gate=PreFlightGate(approval_provider=gateway, approval_timeout=gate),
            settings=Settings() if setting is None else Settings(approval_timeout=setting),
        )
        wire = kit.safe_tool(lambda amount: amount, "IRREVERSIBLE", name="wire")
        with kit.transaction(), pytest.raises(ApprovalDenied, match="ann"):
            wire(5)
        [seconds] = denying.left
        return seconds

    return ask


@pytest.mark.parametrize(
    ("given", "hours"),
    [
        ({"setting": 2 * HOUR}, 2),
        ({"setting": 2 * HOUR, "gate": 4 * HOUR}, 4),
        ({"setting": 2 * HOUR, "policy": ApprovalPolicy(timeout=6 * HOUR)}, 6),
        ({"gate": 4 * HOUR, "policy": ApprovalPolicy(approvers=("ann", "ben"))}, 4),
    ],
)
def test_people_have_the_time_of_the_policy_or_else_the_gate_or_else_the_setting(
    left, given, hours
):
    assert (hours - 0.5) * HOUR < left(**given) <= hours * HOUR


def test_without_any_of_them_the_default_holds(left):
    assert 0 < left() <= Settings().approval_timeout


def test_a_gate_and_a_policy_that_both_say_how_long_are_refused():
    gateway = ApprovalGateway(policy=ApprovalPolicy(timeout=900))
    with pytest.raises(ConfigurationError, match="approval_timeout") as caught:
        PreFlightGate(approval_provider=gateway, approval_timeout=60)
    assert "ApprovalPolicy(timeout=60)" in str(caught.value)


def test_a_level_after_the_time_of_the_setting_is_refused_before_anybody_is_asked(tmp_path):
    late = ApprovalPolicy(levels=[EscalationLevel(("@never",), after_seconds=400)])
    kit = AgentKit(
        "asking",
        wal=str(tmp_path / "log"),
        gate=PreFlightGate(approval_provider=ApprovalGateway(policy=late)),
    )
    with pytest.raises(ConfigurationError, match="Escalation levels"), kit.transaction():
        pytest.fail("the boundary was opened")

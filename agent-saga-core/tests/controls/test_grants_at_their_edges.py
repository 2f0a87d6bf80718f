"""Standing grants at their edges: which amount counts, and which call is covered."""

from __future__ import annotations

import pytest

from agent_saga import AgentKit, ApprovalDenied, ApprovalGateway, ApprovalPolicy, PreFlightGate
from agent_saga.controls.humans.store import ApprovalStore
from agent_saga.controls.policy.policy import Policy
from agent_saga.state.memory import MemoryStateStore

POLICY = Policy(
    {"tools": {"pay": {"semantics": "IRREVERSIBLE", "policy_args": {"amount": "$.payment.amount"}}}}
)


@pytest.fixture
def store():
    return ApprovalStore(MemoryStateStore())


@pytest.fixture
def pay(store, world):
    gateway = ApprovalGateway(store, policy=ApprovalPolicy(timeout=0.05))
    gate = PreFlightGate(approval_provider=gateway, policy=POLICY)
    kit = AgentKit("paying", wal="memory:", gate=gate)

    def pay(payment, amount=0):
        world.amounts.append(payment.get("amount"))

    tool = kit.safe_tool(pay, "IRREVERSIBLE", name="pay")

    def one(**arguments):
        with kit.transaction(reraise=True):
            return tool(**arguments)

    return one


@pytest.mark.guarantee("APPROVE-6")
def test_a_grant_counts_the_amount_that_the_policy_reads(store, world, pay):
    store.grant("pay", approver="ann", seconds=60, arg="amount", up_to=10)
    with pytest.raises(ApprovalDenied):
        pay(payment={"amount": 1_000_000}, amount=1)
    with pytest.raises(ApprovalDenied):
        pay(payment={}, amount=1)
    assert world.amounts == []
    pay(payment={"amount": 7}, amount=1_000_000)
    with pytest.raises(ApprovalDenied):
        pay(payment={"amount": 4})
    pay(payment={"amount": 3})
    assert world.amounts == [7, 3]

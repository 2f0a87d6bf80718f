"""A request whose document is damaged in any one place while its call waits approves nothing."""

from __future__ import annotations

import copy
import threading

import pytest

from agent_saga import AgentKit, ApprovalGateway, ApprovalPolicy, PreFlightGate, RefusedError
from agent_saga.controls.humans import document
from agent_saga.controls.humans.store import ApprovalStore
from agent_saga.errors import ApprovalError, StateError
from agent_saga.state.base import Change
from agent_saga.state.memory import MemoryStateStore

FIELDS = [
    *["id", "saga", "step", "gen", "tool", "rule", "reason", "arguments", "requesters", "state"],
    *["asked", "deadline", "valid", "approvers", "signatures", "keys", "signed", "level"],
    *["decision", "until", "used", "review"],
]
ODD = [None, True, 0, -1, 2**53, 1.5, "", "x", "GRANTED", "USED", [], ["x"], {}, {"by": "ann"}]
YES = {"by": "ann", "note": "", "at": 5, "break_glass": False}
UNNAMED = {**YES, "by": "\u200b"}


@pytest.fixture
def store():
    return ApprovalStore(MemoryStateStore())


@pytest.fixture
def waiting(store, world):
    """Run a call that waits for an approval, and have its document changed meanwhile."""

    def run(change):
        hit, told = [], threading.Event()

        def damage(notice):
            key = document.key_of(notice.id)

            def rule(docs):
                doc = copy.deepcopy(docs[key])
                if doc["state"] != "PENDING":  # it is over already: another one is asked for
                    return Change(False)
                change(doc)
                return Change(True, {key: doc})

            try:
                hit[:] = [True] * store.state.transact([key], rule)
            finally:
                told.set()

        teller = type("Teller", (), {"notify": staticmethod(damage)})()
        gateway = ApprovalGateway(store, teller, policy=ApprovalPolicy(timeout=0.05))
        gate = PreFlightGate(approval_provider=gateway)
        kit = AgentKit("waiting", wal="memory:", gate=gate)
        wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
        while not hit:
            told.clear()
            with kit.transaction(reraise=True), pytest.raises(RefusedError):
                wire(5)
            assert told.wait(300)

    return run


@pytest.mark.guarantee("APPROVE-1")
@pytest.mark.parametrize("field", FIELDS)
def test_no_damage_to_one_field_approves(store, world, waiting, field):
    for odd in ODD:
        waiting(lambda doc, odd=odd: doc.update({field: odd}))
    waiting(lambda doc: doc.pop(field))
    assert world.amounts == []
    for look in (store.pending, store.reviews, store.damaged, store.forget_old):
        look()


@pytest.mark.guarantee("APPROVE-1")
@pytest.mark.parametrize("state", ["GRANTED", "USED"])
@pytest.mark.parametrize("also", [{}, {"until": 2**52}, {"decision": YES}, {"decision": UNNAMED}])
def test_a_yes_that_nobody_gave_or_that_has_no_end_is_none(store, world, waiting, state, also):
    until = {"until": 2**52} if also.get("decision") is UNNAMED else {}
    waiting(lambda doc: doc.update({"state": state, **also, **until}))
    assert world.amounts == []
    (key,) = store.damaged()
    with pytest.raises((StateError, ApprovalError)):
        store.revoke(key.removeprefix(document.PREFIX), approver="ann")

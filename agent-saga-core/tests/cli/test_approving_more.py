"""An approval that is to cover further calls says what became of that."""

from __future__ import annotations

import pytest

from agent_saga.cli.exits import Exit
from agent_saga.controls.humans import document
from agent_saga.controls.humans.document import Asked
from agent_saga.runtime.stores import FileApprovalStore
from agent_saga.state.base import one

REQUEST = "a" * 32
MORE = ("--up-to", "5", "--for", "60", "--arg")


@pytest.fixture
def store(tmp_path):
    store = FileApprovalStore(tmp_path / "agent-saga.wal")
    store.wal.begin()
    return store


@pytest.fixture
def approve(cli, store):
    now = store.clock.now_us()
    names = {name: name for name in ("saga", "step", "tool", "rule", "reason")}
    about = {"id": REQUEST, "gen": 0, "arguments": '{"amount":5}', "requesters": ["agent"], **names}
    asked = Asked(about, now + 60_000_000, 60_000_000)
    key = document.key_of(REQUEST)
    store.state.transact([key], one(key, lambda doc: document.put(doc, asked, now=now)))

    def run(*more):
        return cli("approvals", "approve", REQUEST, "--approver", "ann", *more)

    return run


def state_of(store):
    return store.find(REQUEST)["state"]


def test_a_yes_whose_grant_cannot_be_stored_is_told_as_a_yes(approve, store):
    for _ in range(100):
        store.grant("tool", approver="ann", seconds=60)
    done = approve(*MORE, "amount", "--json")
    assert done.code == Exit.NOT_CLEAN
    assert "the request is approved" in done.err
    assert done.document["request"]["state"] == state_of(store) == "GRANTED"
    assert done.document["grant"] == ""
    assert "grants already" in done.document["grant_problem"]


def test_a_number_of_calls_without_a_bound_decides_nothing(approve, store):
    done = approve("--uses", "5")
    assert done.code == Exit.USAGE
    assert state_of(store) == "PENDING"


def test_a_bound_on_an_argument_that_the_call_does_not_name_is_told(approve, store):
    done = approve(*MORE, "amuont")
    assert done.code == Exit.CLEAN
    assert "names no argument amuont" in done.err


def test_what_is_covered_is_as_before(approve, store):
    done = approve(*MORE, "amount")
    assert done.code == Exit.CLEAN
    assert done.err == ""
    (grant,) = store.grants()
    assert (grant["uses"], grant["arg"], grant["up_to"]) == (100, "amount", "5")

"""Answering from the command line: as another process, by name, readable and as JSON."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from agent_saga.controls.humans import document
from agent_saga.controls.humans.document import Asked
from agent_saga.runtime.stores import FileApprovalStore
from agent_saga.state.base import one

AGENT = """
import sys
from agent_saga import *
gate = PreFlightGate(approval_provider=ApprovalGateway(notifier="console"))
kit = AgentKit("agent", gate=gate)
@kit.tool("IRREVERSIBLE", name="wire.send")
def wire(amount: int, note: str):
    print("sent", amount, flush=True)
with kit.transaction():
    wire(5, note="x\\x1b[31m")
"""


@pytest.fixture
def request_of(tmp_path):
    """Put a request into the log's store; return its id."""

    def make(tool="wire.send", request="a" * 32, **options):
        store = FileApprovalStore(tmp_path / "agent-saga.wal")
        store.wal.begin()
        now = store.clock.now_us()
        about = {
            "id": request,
            "saga": "s",
            "step": "t",
            "gen": 0,
            "tool": tool,
            "rule": "irreversible",
            "reason": "nothing can undo it\x1b[2J",
            "arguments": '{"amount":5}',
            "requesters": ["agent"],
        }
        asked = Asked(about, now + 60_000_000, 60_000_000, **options)
        key = document.key_of(request)
        rule = one(key, lambda doc: document.put(doc, asked, now=now))
        store.state.transact([key], rule)
        return request

    return make


@pytest.fixture
def agent(tmp_path, monkeypatch):
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.mark.guarantee("APPROVE-1")
def test_what_one_process_asks_another_answers(cli, agent):
    while not (found := cli("approvals", "list", "--json").document["pending"]):
        time.sleep(0.05)
    (request,) = found
    assert request["tool"] == "wire.send"
    assert request["arguments"] == {"amount": 5, "note": "x\x1b[31m"}
    told = cli("approvals", "list")
    assert told.code == 1
    assert f"approvals approve {request['id']} --approver WHO" in told.out
    assert "\x1b" not in told.out
    done = cli("approvals", "approve", request["id"][:10], "--approver", "ann", "--note", "fine")
    assert done.code == 0
    assert "wire.send is approved by ann" in done.out
    out, err = agent.communicate(timeout=300)
    assert out == "sent 5\n"
    assert "Approval needed: wire.send" in err
    assert "\x1b" not in err
    assert cli("approvals", "list").code == 0


def test_a_denial_reaches_the_agent(cli, agent):
    while not (found := cli("approvals", "list", "--json").document["pending"]):
        time.sleep(0.05)
    cli("approvals", "deny", found[0]["id"], "--approver", "ann", "--note", "not today")
    out, err = agent.communicate(timeout=300)
    assert out == ""
    assert "not today" in err


@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize("approver", [None, "", "  ", "\u200b"])
def test_a_decision_without_a_name_is_refused(cli, request_of, decision, approver):
    words = ["approvals", decision, request_of()]
    words += [] if approver is None else ["--approver", approver]
    assert cli(*words).code == 2
    assert len(cli("approvals", "list", "--json").document["pending"]) == 1


def test_who_asked_decides_nothing(cli, request_of):
    done = cli("approvals", "approve", request_of(), "--approver", "Agent")
    assert done.code == 4
    assert "own request" in done.err


def test_the_loser_is_told_who_was_faster(cli, request_of):
    request = request_of()
    assert cli("approvals", "approve", request, "--approver", "ann").code == 0
    late = cli("approvals", "deny", request, "--approver", "ben")
    assert late.code == 4
    assert "ann has approved" in late.err
    assert "SAGA-621" in late.err


def test_an_id_that_is_unknown_or_of_several_is_refused(cli, request_of):
    request_of(request="ab" + "0" * 30)
    request_of(request="ac" + "0" * 30)
    for wanted, code in (("zz", 3), ("a", 2), ("", 2)):
        done = cli("approvals", "approve", wanted, "--approver", "ann")
        assert done.code == code
    assert cli("approvals", "approve", "ab", "--approver", "ann").code == 0


def test_breaking_glass_is_marked_and_reviewed(cli, request_of):
    request = request_of(approvers=("ann",))
    assert cli("approvals", "approve", request, "--approver", "eve").code == 4
    done = cli("approvals", "approve", request, "--approver", "eve", "--break-glass")
    assert done.code == 0
    assert "reviews it" in done.out
    assert cli("approvals", "list").code == 1
    assert "breaking glass" in cli("approvals", "list").out
    assert cli("approvals", "review", request, "--approver", "eve").code == 4
    assert cli("approvals", "review", request, "--approver", "ann").code == 0
    assert cli("approvals", "list").code == 0


def test_an_approval_can_cover_further_calls(cli, request_of):
    request = request_of()
    some = cli("approvals", "approve", request, "--approver", "ann", "--up-to", "100")
    assert some.code == 2
    options = ("--up-to", "100.50", "--arg", "amount", "--for", "600", "--uses", "3")
    done = cli("approvals", "approve", request, "--approver", "ann", *options)
    assert done.code == 0
    assert "standing grant" in done.out
    (grant,) = cli("approvals", "list", "--json").document["grants"]
    assert (grant["up_to"], grant["uses"], grant["rule"]) == ("100.5", 3, "irreversible")
    assert "up to 100.5 of amount" in cli("approvals", "list").out


@pytest.mark.parametrize(
    "bounds",
    [
        ("--up-to", "nan", "--arg", "amount", "--for", "60"),
        ("--up-to", "-1", "--arg", "amount", "--for", "60"),
        ("--up-to", "5", "--arg", "", "--for", "60"),
        ("--up-to", "5", "--arg", "amount", "--for", "0"),
        ("--up-to", "5", "--arg", "amount", "--for", "nan"),
        ("--up-to", "5", "--arg", "amount", "--for", "inf"),
        ("--up-to", "5", "--arg", "amount", "--for", "60", "--uses", "0"),
        ("--up-to", "5", "--arg", "amount", "--for", "60", "--break-glass"),
    ],
)
def test_bounds_that_cannot_be_used_decide_nothing(cli, request_of, bounds):
    request = request_of(approvers=("ann",))
    assert cli("approvals", "approve", request, "--approver", "ann", *bounds).code in (2, 4)
    found = cli("approvals", "list", "--json").document
    assert (len(found["pending"]), found["grants"]) == (1, [])


def test_a_signed_request_is_approved_alone(cli, request_of):
    request = request_of(signatures=1)
    bounds = ("--up-to", "5", "--arg", "amount", "--for", "60", "--signature", "x")
    done = cli("approvals", "approve", request, "--approver", "ann", *bounds)
    assert done.code == 2
    assert cli("approvals", "list", "--json").document["grants"] == []


def test_a_challenge_that_cannot_be_written_is_an_error_that_names_the_file(cli, request_of):
    done = cli("approvals", "challenge", request_of(), "--out", "no/such/folder/challenge")
    assert done.code == 1
    assert "no/such/folder/challenge" in done.err


def test_looking_makes_nothing(cli, tmp_path):
    listed = cli("approvals", "list")
    assert (listed.code, "There is no log here yet." in listed.out) == (3, True)
    assert cli("approvals", "approve", "x", "--approver", "ann").code == 3
    assert list(tmp_path.iterdir()) == []


def test_a_standing_grant_is_listed_and_taken_back(cli, tmp_path):
    store = FileApprovalStore(tmp_path / "agent-saga.wal")
    store.wal.begin()
    grant = store.grant("wire.send\x1b", approver="ann", seconds=3600)
    told = cli("approvals", "list")
    assert told.code == 0
    assert f"take it back: agent-saga approvals revoke {grant} --approver WHO" in told.out
    assert cli("approvals", "revoke", grant).code == 2
    assert cli("approvals", "revoke", "zz", "--approver", "ben").code == 3
    done = cli("approvals", "revoke", grant[:6], "--approver", "ben", "--note", "he left")
    assert done.code == 0
    assert f"Revoked: {grant}, the yes of ann to wire.send" in done.out
    assert "\x1b" not in done.out
    assert cli("approvals", "list", "--json").document["grants"] == []
    assert cli("approvals", "revoke", grant, "--approver", "ben").code == 3


def test_a_revocation_is_told_as_json(cli, tmp_path):
    store = FileApprovalStore(tmp_path / "agent-saga.wal")
    store.wal.begin()
    grant = store.grant("wire.send", approver="ann", seconds=3600)
    told = cli("approvals", "revoke", grant, "--approver", "ben", "--json").document
    assert told["revoked"] == {"id": grant, "tool": "wire.send", "approver": "ann", "calls": 0}


@pytest.mark.parametrize("words", [["list"], ["challenge", "a" * 32]])
def test_arguments_that_somebody_nested_without_end_hide_no_request(
    cli, request_of, tmp_path, words
):
    request_of()
    store = FileApprovalStore(tmp_path / "agent-saga.wal")
    key, nested = document.key_of("a" * 32), "[" * 100_000
    store.state.transact([key], one(key, lambda doc: ({**doc, "arguments": nested}, None)))
    told = cli("approvals", *words, "--json").document
    (shown,) = told["pending"] if "pending" in told else [told["request"]]
    assert shown["arguments"] == nested

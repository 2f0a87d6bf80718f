"""Who answers is told when nobody waits any more: the process is gone, or the saga has ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from agent_saga import ApprovalError, FileApprovalStore

AGENT = """
import sys
from agent_saga import *
gate = PreFlightGate(approval_provider=ApprovalGateway(policy=ApprovalPolicy(timeout=600)))
kit = AgentKit("agent", gate=gate)
@kit.tool("IRREVERSIBLE", name="wire.send")
def wire(amount: int):
    print("sent", amount, flush=True)
with kit.transaction(saga_id="one", resume="resume" in sys.argv):
    wire(5)
"""


def started(tmp_path, *words):
    return subprocess.Popen(
        [sys.executable, "-c", AGENT, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def store(tmp_path):
    return FileApprovalStore(tmp_path / "agent-saga.wal")


@pytest.fixture
def left(tmp_path, store):
    """The id of a request whose process was killed while it waited."""
    agent = started(tmp_path)
    while not (found := store.pending()):
        assert agent.poll() is None, agent.communicate()
        time.sleep(0.05)
    assert store.asker(found[0]).waiting.value == "waits"
    agent.send_signal(signal.SIGKILL)
    agent.communicate()
    return found[0]["id"]


@pytest.mark.guarantee("APPROVE-9")
def test_a_request_whose_process_is_gone_is_marked_and_whoever_answers_is_told(cli, tmp_path, left):
    told = cli("approvals", "list")
    assert told.code == 1
    assert "GONE: the process that asked is gone" in told.out
    (shown,) = cli("approvals", "list", "--json").document["pending"]
    assert shown["asker"] == "gone"
    assert "1 of a process that is gone" in cli("status").out
    done = cli("approvals", "approve", left, "--approver", "ann")
    assert done.code == 0
    assert "Note: the process that asked is gone; an answer counts only if" in done.err
    agent = started(tmp_path, "resume")
    out, err = agent.communicate(timeout=300)
    assert out == "sent 5\n", err


@pytest.mark.guarantee("APPROVE-9")
def test_no_yes_is_taken_for_a_saga_that_has_ended(cli, store, left):
    assert cli("recover").code == 0
    told = cli("approvals", "list")
    assert told.code == 0
    assert "Nothing waits for an approval." in told.out
    assert "Gone: wire.send" in told.out
    assert "its saga was undone; nothing waits for an answer" in told.out
    shown = cli("approvals", "list", "--json").document
    assert (shown["pending"], [doc["asker"] for doc in shown["gone"]]) == ([], ["ended"])
    refused = cli("approvals", "approve", left, "--approver", "ann")
    assert refused.code == 4
    assert "cannot be approved: its saga was undone" in refused.err
    for emergency in (False, True):
        with pytest.raises(ApprovalError, match="its saga was undone"):
            store.approve(left, approver="ann", break_glass=emergency)
    denied = cli("approvals", "deny", left, "--approver", "ann")
    assert denied.code == 0
    assert "Note: its saga was undone" in denied.err
    assert "Gone" not in cli("approvals", "list").out


def test_an_answer_to_a_log_that_cannot_be_read_is_taken(cli, store, left, tmp_path):
    (tmp_path / "agent-saga.wal" / "compaction").write_bytes(b"nonsense")
    assert store.asker(store.find(left)).words == ""
    assert store.deny(left, approver="ann")["state"] == "DENIED"

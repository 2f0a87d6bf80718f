"""A yes that is taken back lets nothing begin any more: counted where the effects are."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from agent_saga import (
    AgentKit,
    AlreadyDecided,
    ApprovalDenied,
    ApprovalError,
    ApprovalGateway,
    NotApplied,
    PreFlightGate,
    RetryPolicy,
    Rule,
    Settings,
    tool_is,
)
from agent_saga.errors import NotFound
from agent_saga_testing.waiting import until

FAST = Settings(settle=2, settle_after=0.2, inverse_delay=0.0, cancel_grace=0.2, tool_threads=1)


@pytest.fixture
def kit(log, store):
    gate = PreFlightGate(
        [Rule("ask", tool_is("look"), "ask")], approval_provider=ApprovalGateway(store)
    )
    return AgentKit("asking", wal=str(log), gate=gate, settings=FAST)


def granted(store, tool="wire", rule="irreversible"):
    return store.grant(tool, approver="ann", seconds=3600, uses=100, rule=rule)


def denies(store):
    until(store.pending)
    store.deny(store.pending()[0]["id"], approver="ben")


@pytest.mark.guarantee("APPROVE-8")
def test_a_grant_that_was_revoked_covers_no_further_call(kit, store, world):
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    grant = granted(store)
    with kit.transaction():
        wire(1)
        done = store.revoke(grant, approver="ben", note="he left")
        assert (done.id, done.tool, done.approver, done.calls) == (grant, "wire", "ann", 1)
        assert store.grants() == []
        ben = threading.Thread(target=denies, args=(store,))
        ben.start()
        with pytest.raises(ApprovalDenied):
            wire(2)
        ben.join()
    assert world.amounts == [1]
    told = [r.data for r in kit.runtime.wal.read_all() if r.event == "APPROVAL_DECIDED"]
    (revoked,) = [data for data in told if "revoked" in data]
    assert (revoked["by"], revoked["note"]) == ("ben", "he left")
    assert revoked["revoked"]["grant"] == grant
    assert revoked["revoked"]["granted_by"] == "ann"


@pytest.mark.guarantee("APPROVE-8")
@pytest.mark.parametrize("semantics", ["IRREVERSIBLE", "REVERSIBLE"])
def test_a_call_that_has_its_share_does_not_begin_after_the_revocation(
    kit, store, world, semantics
):
    tool = "wire" if semantics == "IRREVERSIBLE" else "look"
    grant = granted(store, tool, "irreversible" if tool == "wire" else "ask")
    run = kit.safe_tool(
        world.wire,
        semantics,
        name=tool,
        prepare=lambda args: store.revoke(grant, approver="ben", note="stop") and {},
    )
    with kit.transaction(), pytest.raises(ApprovalDenied, match=r"ben has revoked.*stop"):
        run(1)
    assert world.amounts == []


@pytest.mark.guarantee("APPROVE-8")
def test_no_further_attempt_begins_after_the_revocation(kit, store):
    tries = []

    def wire():
        tries.append(1)
        if len(tries) == 1:
            store.revoke(grant, approver="ben")
        raise NotApplied("busy")

    grant = granted(store)
    retry = RetryPolicy(max_retries=5, base_delay=0.01, retry_on=(NotApplied,))
    run = kit.safe_tool(wire, "IRREVERSIBLE", name="wire", retry=retry)
    with kit.transaction(), pytest.raises(ApprovalDenied, match="revoked"):
        run()
    assert tries == [1]


@pytest.mark.guarantee("APPROVE-8")
def test_a_fallback_does_not_begin_after_the_revocation(kit, store, world):
    def wire(amount):
        store.revoke(grant, approver="ben")
        raise NotApplied("busy")

    grant = granted(store)
    run = kit.safe_tool(wire, "IRREVERSIBLE", name="wire", fallback_action=world.wire)
    with kit.transaction(), pytest.raises(ApprovalDenied, match="revoked"):
        run(1)
    assert world.amounts == []


@pytest.mark.guarantee("APPROVE-8")
def test_a_call_that_waits_for_a_thread_does_not_begin_after_the_revocation(kit, store, world):
    busy, taken = threading.Event(), threading.Event()

    def occupy():
        taken.set()
        busy.wait(60)

    grant = granted(store)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    block = kit.safe_tool(occupy, "REVERSIBLE", name="block")

    async def run():
        async with kit.transaction():
            blocking = asyncio.ensure_future(block.acall())
            while not taken.is_set():
                await asyncio.sleep(0.01)
            call = asyncio.ensure_future(wire.acall(1))
            while "STEP_INTENT" not in [r.event for r in kit.runtime.wal.read_all()]:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(store.revoke, grant, approver="ben")
            busy.set()
            with pytest.raises(ApprovalDenied, match="revoked"):
                await call
            await blocking

    asyncio.run(run())
    assert world.amounts == []


@pytest.mark.guarantee("APPROVE-8")
def test_the_yes_to_one_call_can_be_taken_back_until_it_begins(kit, store, world):
    def prepare(args):
        (request,) = [doc["id"] for _, doc in store.state.scan("approval/")]
        store.revoke(request, approver="ben")
        return {}

    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire", prepare=prepare)

    def answer():
        while not (found := store.pending()):
            pass
        store.approve(found[0]["id"], approver="ann")

    threading.Thread(target=answer).start()
    with kit.transaction(), pytest.raises(ApprovalDenied, match="ben has taken it back"):
        wire(1)
    assert world.amounts == []


@pytest.mark.guarantee("APPROVE-8")
def test_another_process_revokes_while_calls_run(kit, store, world, log):
    """What has not begun when the command returns does not begin: one a thread may be under way."""
    grant = granted(store)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    first, stopped = threading.Event(), []

    def work(number):
        with kit.transaction():
            for amount in range(100):
                try:
                    wire(amount, to=f"{number}")
                except ApprovalDenied as refusal:
                    stopped.append(str(refusal))
                    return
                first.set()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    first.wait(60)
    command = [sys.executable, "-m", "agent_saga.cli", "approvals", "revoke", grant[:8]]
    done = subprocess.run(
        [*command, "--approver", "ben", "--wal-path", str(log)],
        capture_output=True,
        text=True,
        check=False,
    )
    after = len(world.amounts)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Revoked: {grant}" in done.stdout
    while any(thread.is_alive() for thread in threads):
        for doc in store.pending():
            store.deny(doc["id"], approver="ben")
    assert len(world.amounts) <= after + len(threads)
    assert len(stopped) == 3


# --- who and what --------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["", "  ", "\u200b"])
def test_whoever_revokes_is_named(store, by):
    grant = granted(store)
    with pytest.raises(ApprovalError, match="named"):
        store.revoke(grant, approver=by)
    assert len(store.grants()) == 1


def test_what_is_not_there_is_not_revoked(store):
    grant = granted(store)
    for wanted in ("", "zz", "f" * 33):
        with pytest.raises(NotFound):
            store.revoke(wanted, approver="ben")
    store.revoke(grant[:6], approver="ben")
    with pytest.raises(NotFound):
        store.revoke(grant, approver="ben")


def test_another_grant_of_the_same_tool_still_covers(kit, store, world):
    first, second = granted(store), granted(store)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    store.revoke(first, approver="ben")
    with kit.transaction():
        wire(1)
    assert world.amounts == [1]
    assert [one["id"] for one in store.grants()] == [second]


def test_a_request_without_a_yes_has_none_to_take_back(kit, store, world):
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    seen = []

    def answer():
        while not (found := store.pending()):
            pass
        for _ in range(2):
            try:
                store.revoke(found[0]["id"], approver="ben")
            except ApprovalError as refusal:
                seen.append(str(refusal))
            if len(seen) == 1:
                store.deny(found[0]["id"], approver="ben")

    thread = threading.Thread(target=answer)
    thread.start()
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(1)
    thread.join()
    assert "decided yet" in seen[0]
    assert "denied" in seen[1]


def test_a_yes_that_was_taken_back_is_decided(kit, store, world):
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    answered = []

    def answer():
        while not (found := store.pending()):
            pass
        store.approve(found[0]["id"], approver="ann")
        answered.append(found[0]["id"])

    threading.Thread(target=answer).start()
    with kit.transaction():
        wire(1)
    done = store.revoke(answered[0], approver="ben")
    assert done.approver == "ann"
    with pytest.raises(AlreadyDecided, match="ben has denied"):
        store.approve(answered[0], approver="carl")

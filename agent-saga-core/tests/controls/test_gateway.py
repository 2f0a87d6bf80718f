"""Approvals that outlive processes, by counting effects: who may decide what, once, and in time."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from agent_saga import (
    AgentKit,
    AlreadyDecided,
    ApprovalDenied,
    ApprovalError,
    ApprovalGateway,
    ApprovalPolicy,
    EscalationLevel,
    PreFlightGate,
    Rule,
    SagaAborted,
    Settings,
    arg_exceeds,
)
from agent_saga.controls.humans import gateway

FAST = Settings(settle=2, settle_after=0.2, inverse_delay=0.0, cancel_grace=0.2, tool_threads=2)


class Telling:
    """A notifier that remembers what it was told, and then does as it is asked."""

    def __init__(self, then=None):
        self.notices = []
        self.then = then

    def notify(self, notice):
        self.notices.append(notice)
        if self.then is not None:
            self.then(notice)


@pytest.fixture
def kit_of(log, store):
    def make(notifier=None, policy=None, *rules, **options):
        gateway = ApprovalGateway(store, notifier, policy=policy, **options)
        gate = PreFlightGate(rules, approval_provider=gateway)
        return AgentKit("asking", wal=str(log), gate=gate, settings=FAST)

    return make


def wiring(kit, world):
    return kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")


def answering(store, *, approved=True, by="ann", **options):
    """Answer from another thread, as another process would, as soon as somebody is told."""

    def then(notice):
        decide = store.approve if approved else store.deny
        threading.Thread(
            target=decide, args=(notice.id,), kwargs={"approver": by, **options}
        ).start()

    return Telling(then)


# --- the answer counts ---------------------------------------------------------------------------


@pytest.mark.guarantee("APPROVE-1")
def test_an_effect_waits_for_an_approval_and_names_who_gave_it(kit_of, store, world, log):
    telling = answering(store)
    kit = kit_of(telling)
    wire = wiring(kit, world)
    with kit.transaction():
        wire(5)
    assert world.amounts == [5]
    (notice,) = telling.notices
    assert (notice.tool, notice.rule, notice.level) == ("wire", "irreversible", 0)
    assert '"amount":5' in notice.arguments
    doc = store.find(notice.id)
    assert doc["state"] == "USED"
    records = [r for r in kit.runtime.wal.read_all() if r.event.startswith(("APPROVAL", "STEP_I"))]
    assert [r.event for r in records if r.saga] == [
        "APPROVAL_ASKED",
        "APPROVAL_DECIDED",
        "STEP_INTENT",
    ]
    assert records[-1].data["approved_by"] == "ann"
    assert records[-1].data["approvals"] == [notice.id]


@pytest.mark.guarantee("APPROVE-1")
def test_a_denial_is_a_no(kit_of, store, world):
    kit = kit_of(answering(store, approved=False, note="too much"))
    wire = wiring(kit, world)
    with kit.transaction(), pytest.raises(ApprovalDenied, match="too much"):
        wire(5)
    assert world.amounts == []


@pytest.mark.guarantee("APPROVE-1")
def test_nobody_s_answer_is_a_no_and_a_grant_after_the_deadline_is_refused(kit_of, store, world):
    telling = Telling()
    kit = kit_of(telling, ApprovalPolicy(timeout=0.2))
    wire = wiring(kit, world)
    with kit.transaction(), pytest.raises(ApprovalDenied, match="in time"):
        wire(5)
    with pytest.raises(ApprovalError, match="over"):
        store.approve(telling.notices[0].id, approver="ann")
    assert world.amounts == []
    assert "APPROVAL_EXPIRED" in [r.event for r in kit.runtime.wal.read_all()]


@pytest.mark.guarantee("APPROVE-1")
def test_a_broken_notifier_is_a_no(kit_of, store, world):
    def broken(notice):
        raise ConnectionError("no route")

    kit = kit_of(Telling(broken))
    wire = wiring(kit, world)
    with kit.transaction(), pytest.raises(ApprovalDenied, match="nobody could be told"):
        wire(5)
    assert world.amounts == []
    assert store.pending() == []


@pytest.mark.guarantee("APPROVE-2")
@pytest.mark.parametrize("by", ["asking", "ASKING", " asking ", "@asking", "a\u200bsking"])
def test_who_asks_does_not_answer(kit_of, store, world, by):
    refused = []

    def then(notice):
        for decide in (store.approve, store.deny):
            with pytest.raises(ApprovalError, match="own request"):
                decide(notice.id, approver=by)
            refused.append(by)
        store.approve(notice.id, approver="ann")

    kit = kit_of(Telling(then))
    wire = wiring(kit, world)
    with kit.transaction():
        wire(5)
    assert (len(refused), world.amounts) == (2, [5])


@pytest.mark.guarantee("APPROVE-2")
def test_for_whom_the_agent_acts_does_not_answer_either(kit_of, store, world):
    def then(notice):
        with pytest.raises(ApprovalError, match="own request"):
            store.approve(notice.id, approver="Bob")
        store.deny(notice.id, approver="ann")

    kit = kit_of(Telling(then))
    wire = wiring(kit, world)
    with kit.transaction(labels={"requester": "bob"}), pytest.raises(ApprovalDenied):
        wire(5)
    assert world.amounts == []


@pytest.mark.guarantee("APPROVE-2")
@pytest.mark.parametrize("by", ["", "  ", "\u200b", "\n\t", "@", None, 5, "\ufeff"])
def test_a_blank_approver_decides_nothing(kit_of, store, world, by):
    def then(notice):
        with pytest.raises(ApprovalError, match="named"):
            store.approve(notice.id, approver=by)
        store.deny(notice.id, approver="ann")

    kit = kit_of(Telling(then))
    wire = wiring(kit, world)
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(5)
    assert world.amounts == []


@pytest.mark.guarantee("APPROVE-3")
def test_of_many_who_decide_at_once_one_wins_and_the_others_are_told(kit_of, store, world):
    won, lost = [], []

    def decide(notice, number):
        try:
            (store.approve if number % 2 else store.deny)(notice.id, approver=f"p{number}")
            won.append(number)
        except AlreadyDecided:
            lost.append(number)

    def then(notice):
        threads = [threading.Thread(target=decide, args=(notice, n)) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    kit = kit_of(Telling(then))
    wire = wiring(kit, world)
    with kit.transaction(), contextlib.suppress(ApprovalDenied):
        wire(5)
    assert (len(won), len(lost)) == (1, 9)
    assert world.amounts == ([5] if won[0] % 2 else [])


# --- it is bound ---------------------------------------------------------------------------------


@pytest.mark.guarantee("APPROVE-4")
def test_an_approval_for_5_is_not_one_for_a_million(kit_of, store, world):
    telling = answering(store)
    kit = kit_of(telling, ApprovalPolicy(timeout=0.4))
    wire = wiring(kit, world)
    with kit.transaction():
        wire(5)
        telling.then = None
        with pytest.raises(ApprovalDenied):
            wire(1_000_000)
        with pytest.raises(ApprovalDenied):
            wire(5)  # the same again is another step
    assert world.amounts == [5]
    assert len({notice.id for notice in telling.notices}) == 3


@pytest.mark.guarantee("APPROVE-4")
def test_arguments_that_change_while_a_human_thinks_are_not_approved(kit_of, store, world):
    order = {"amount": 5}

    def then(notice):
        order["amount"] = 1_000_000
        store.approve(notice.id, approver="ann")

    kit = kit_of(Telling(then))
    pay = kit.safe_tool(lambda order: world.amounts.append(order["amount"]), "IRREVERSIBLE")
    with kit.transaction(), pytest.raises(ApprovalDenied, match="changed"):
        pay(order)
    assert world.amounts == []


@pytest.mark.guarantee("APPROVE-5")
def test_what_the_gate_refuses_at_last_uses_no_grant_up(kit_of, store, world):
    answers = []

    def then(notice):
        answers.append(notice.rule)
        decide = store.approve if notice.rule == "first" else store.deny
        decide(notice.id, approver="ann")

    kit = kit_of(
        Telling(then),
        None,
        Rule("first", arg_exceeds("amount", 1), "ask"),
        Rule("second", arg_exceeds("amount", 1), "ask"),
    )
    wire = kit.safe_tool(world.wire, "REVERSIBLE", name="wire")
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(5)
    assert answers == ["first", "second"]
    states = {doc["rule"]: doc["state"] for _, doc in store.state.scan("approval/")}
    assert states == {"first": "GRANTED", "second": "DENIED"}
    assert world.amounts == []


@pytest.mark.guarantee("APPROVE-5")
def test_a_grant_that_lapses_before_the_effect_starts_is_not_used(kit_of, store, world):
    kit = kit_of(answering(store), ApprovalPolicy(valid_for=0.000001))
    wire = wiring(kit, world)
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(5)
    assert world.amounts == []


# --- waiting -------------------------------------------------------------------------------------


def test_the_event_loop_goes_on_while_humans_think_and_no_thread_is_held(kit_of, store, world):
    telling = Telling()
    kit = kit_of(telling)
    wire = wiring(kit, world)
    look = kit.safe_tool(lambda: "seen", "REVERSIBLE", name="look")

    async def run():
        async with kit.transaction():
            waiting = [asyncio.ensure_future(wire.acall(n)) for n in range(40)]
            while len(store.pending()) < 40:
                await asyncio.sleep(0.01)
            for _ in range(20):  # two threads, forty questions
                assert await look.acall() == "seen"
            for doc in store.pending():
                await asyncio.to_thread(store.approve, doc["id"], approver="ann")
            await asyncio.gather(*waiting)

    asyncio.run(run())
    assert sorted(world.amounts) == list(range(40))


def test_many_who_wait_do_not_storm_the_store(kit_of, store, world, monkeypatch):
    """Each looks when its own name rings, when the bell's file is new, and before its effect.

    What a waiter reads by itself after a while is left out: `pause` alone says how often that is.
    """
    kit = kit_of(Telling())
    wire = wiring(kit, world)
    asked = []
    real = store.state.async_get

    async def counted(key, *, timeout=None):
        asked.append(key)
        return await real(key, timeout=timeout)

    monkeypatch.setattr(store.state, "async_get", counted)
    monkeypatch.setattr(gateway, "pause", lambda looks, *, bell: 3600.0 if bell else 0.0)

    async def run():
        async with kit.transaction():
            waiting = [asyncio.ensure_future(wire.acall(n)) for n in range(50)]
            while len(store.pending()) < 50:
                await asyncio.sleep(0.01)
            for doc in store.pending():
                await asyncio.to_thread(store.approve, doc["id"], approver="ann")
            await asyncio.gather(*waiting)

    asyncio.run(run())
    assert len(world.amounts) == 50
    looks = Counter(key for key in asked if key.startswith("approval/"))
    assert len(looks) == 50
    assert max(looks.values()) <= 3


def test_levels_are_told_one_after_another(kit_of, store, world):
    def then(notice):
        if notice.level == 1:
            store.approve(notice.id, approver="head")

    telling = Telling(then)
    levels = (
        EscalationLevel(targets=("@oncall",)),
        EscalationLevel(targets=("@head-of-risk",), after_seconds=0.3),
        EscalationLevel(targets=("@never",), after_seconds=50),
    )
    kit = kit_of(telling, ApprovalPolicy(timeout=60, levels=levels))
    wire = wiring(kit, world)
    with kit.transaction():
        wire(5)
    assert [(n.level, n.targets) for n in telling.notices] == [
        (0, ("@oncall",)),
        (1, ("@head-of-risk",)),
    ]
    assert world.amounts == [5]


def test_an_asynchronous_notifier_is_awaited(kit_of, store, world):
    class Async:
        async def notify(self, notice):
            await asyncio.sleep(0)
            store.approve(notice.id, approver="ann")

    for use_loop in (False, True):
        kit = kit_of(Async())
        wire = wiring(kit, world)

        async def run(kit=kit, wire=wire):
            async with kit.transaction():
                await wire.acall(5)

        if use_loop:
            asyncio.run(run())
        else:
            with kit.transaction():
                wire(5)
    assert world.amounts == [5, 5]


# --- break-glass and standing grants -------------------------------------------------------------


def test_breaking_glass_is_recorded_apart_and_reviewed_by_somebody_else(kit_of, store, world):
    def then(notice):
        with pytest.raises(ApprovalError, match="not among"):
            store.approve(notice.id, approver="eve")
        with pytest.raises(ApprovalError, match="own request"):
            store.approve(notice.id, approver="asking", break_glass=True)
        store.approve(notice.id, approver="eve", break_glass=True, note="the plant burns")

    kit = kit_of(Telling(then), ApprovalPolicy(approvers=("ann", "ben")))
    wire = wiring(kit, world)
    with kit.transaction():
        wire(5)
    (doc,) = store.reviews()
    assert doc["decision"]["break_glass"] is True
    with pytest.raises(ApprovalError, match="took part"):
        store.review(doc["id"], by="EVE")
    store.review(doc["id"], by="ann", note="it did burn")
    assert store.reviews() == []
    with pytest.raises(ApprovalError):
        store.review(doc["id"], by="ann")
    assert world.amounts == [5]


@pytest.mark.guarantee("APPROVE-6")
def test_a_standing_grant_covers_calls_up_to_its_sum_and_count(kit_of, store, world):
    kit = kit_of(Telling(), ApprovalPolicy(timeout=0.2))
    wire = wiring(kit, world)
    store.grant("wire", approver="ann", seconds=60, arg="amount", up_to="10.5", uses=3)
    with kit.transaction():
        wire(5)
        for amount in (6, float("nan"), -1, True, "x", None):
            with pytest.raises(ApprovalDenied):
                wire(amount)
        wire("5.5")
        with pytest.raises(ApprovalDenied):
            wire(0.1)
        wire(0)
        with pytest.raises(ApprovalDenied):
            wire(0)  # three were covered
    assert world.amounts == [5, "5.5", 0]


@pytest.mark.guarantee("APPROVE-6")
def test_a_grant_by_who_asks_for_another_tool_rule_or_time_covers_nothing(kit_of, store, world):
    kit = kit_of(Telling(), ApprovalPolicy(timeout=0.1))
    wire = wiring(kit, world)
    store.grant("wire", approver="asking", seconds=60)
    store.grant("wired", approver="ann", seconds=60)
    store.grant("wire", approver="ann", seconds=60, rule="another")
    store.grant("wire", approver="ann", seconds=0.0001)
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(5)
    assert world.amounts == []


@pytest.mark.guarantee("APPROVE-6")
def test_a_call_that_did_not_start_gives_its_share_back(kit_of, store, world):
    def never(args):
        raise ValueError("nothing to prepare")

    kit = kit_of(Telling(), ApprovalPolicy(timeout=0.1))
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire", prepare=never)
    store.grant("wire", approver="ann", seconds=60, uses=1)
    with kit.transaction():
        for _ in range(3):
            with pytest.raises(ValueError, match="nothing"):
                wire(5)
    assert [grant["shares"] for grant in store.grants()] == [{}]


@pytest.mark.parametrize(
    "given",
    [
        {"seconds": 0},
        {"seconds": 60, "uses": 0},
        {"seconds": 60, "uses": 10_000},
        {"seconds": 60, "arg": "amount"},
        {"seconds": 60, "up_to": 5},
        {"seconds": 60, "arg": "amount", "up_to": float("nan")},
        {"seconds": 60, "arg": "amount", "up_to": -1},
        {"seconds": 60, "approver": " "},
    ],
)
def test_a_grant_without_bounds_or_name_is_refused(store, given):
    with pytest.raises(ApprovalError):
        store.grant("wire", **{"approver": "ann", **given})


# --- processes -----------------------------------------------------------------------------------

AGENT = """
import pathlib, sys
from agent_saga import *
log, effects = sys.argv[1], pathlib.Path(sys.argv[2])
class Told:
    def notify(self, notice):
        with pathlib.Path(sys.argv[3]).open("a") as file:
            file.write(notice.id + "\\n")
gate = PreFlightGate(approval_provider=ApprovalGateway(FileApprovalStore(log), Told()))
kit = AgentKit("agent", wal=log, gate=gate)
def wire(amount: int):
    with effects.open("a") as file:
        file.write(f"{amount}\\n")
wire = kit.safe_tool(wire, "IRREVERSIBLE", name="wire")
with kit.transaction(saga_id="order-1", resume=True):
    wire(int(sys.argv[4]))
print("done", flush=True)
"""


@pytest.fixture
def agent(log, tmp_path):
    started = []

    def start(amount):
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                AGENT,
                log,
                tmp_path / "effects",
                tmp_path / "told",
                f"{amount}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def lines(path):
    return path.read_text().split() if path.exists() else []


def until(said):
    deadline = time.monotonic() + 300
    while not said():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.guarantee("APPROVE-7")
def test_a_killed_agent_finds_its_request_answered_and_acts_once(agent, store, tmp_path):
    """Killed while it waits; approved from here; started again: asked once, done once."""
    first = agent(5)
    until(lambda: len(lines(tmp_path / "told")) == 1)
    until(lambda: store.pending() and store.pending()[0]["level"] == 0)
    first.kill()
    first.wait()
    (doc,) = store.pending()
    store.approve(doc["id"], approver="ann")
    for _ in range(2):  # the second time it only reads what was recorded
        again = agent(5)
        out, err = again.communicate(timeout=300)
        assert out == "done\n", err
    assert lines(tmp_path / "effects") == ["5"]
    assert lines(tmp_path / "told") == [doc["id"]]


@pytest.mark.guarantee("APPROVE-7")
def test_a_killed_agent_waits_on_without_asking_again(agent, store, tmp_path):
    first = agent(5)
    until(lambda: store.pending() and store.pending()[0]["level"] == 0)
    first.kill()
    first.wait()
    second = agent(5)
    time.sleep(0.5)
    (doc,) = store.pending()
    store.approve(doc["id"], approver="ann")
    assert second.communicate(timeout=300)[0] == "done\n"
    assert lines(tmp_path / "effects") == ["5"]
    assert lines(tmp_path / "told") == [doc["id"]]


@pytest.mark.guarantee("APPROVE-4")
def test_an_agent_that_comes_back_with_other_arguments_has_no_approval(agent, store, tmp_path):
    first = agent(5)
    until(lambda: store.pending() and store.pending()[0]["level"] == 0)
    first.kill()
    first.wait()
    (doc,) = store.pending()
    store.approve(doc["id"], approver="ann")
    second = agent(1_000_000)
    until(lambda: len(lines(tmp_path / "told")) == 2)
    (other,) = store.pending()
    assert other["id"] != doc["id"]
    store.deny(other["id"], approver="ann")
    assert "ApprovalDenied" in second.communicate(timeout=300)[1]
    assert lines(tmp_path / "effects") == []


def test_a_run_that_is_denied_is_undone_and_the_reason_told(kit_of, store, world):
    kit = kit_of(answering(store, approved=False, note="no budget"))
    wire = wiring(kit, world)
    with pytest.raises(SagaAborted, match="no budget") as caught, kit.transaction():
        wire(5)
    assert caught.value.report.clean

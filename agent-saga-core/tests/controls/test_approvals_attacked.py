"""Attacks on approvals: other spellings, notifiers that hang, anybody's grants, growing stores."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent_saga import (
    AgentKit,
    Approval,
    ApprovalDenied,
    ApprovalError,
    ApprovalGateway,
    ApprovalPolicy,
    EscalationLevel,
    PreFlightGate,
    RefusedError,
    Rule,
    Settings,
)
from agent_saga.controls.humans import document
from agent_saga.controls.humans.names import blank, person
from agent_saga.controls.humans.store import ApprovalStore
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.errors import StateError
from agent_saga.state.base import Change
from agent_saga.state.memory import MemoryStateStore

FAST = Settings(settle=2, settle_after=0.2, inverse_delay=0.0, cancel_grace=0.2)
DAY = 86_400 * 1_000_000


class Clock:
    """The wall clock, moved by a test."""

    def __init__(self):
        self.later = 0

    def now_us(self):
        return SYSTEM_CLOCK.now_us() + self.later

    def monotonic(self):
        return SYSTEM_CLOCK.monotonic()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def state():
    return MemoryStateStore()


@pytest.fixture
def store(state, clock):
    return ApprovalStore(state, clock=clock)


class Telling:
    """A notifier that does as it is asked."""

    def __init__(self, then):
        self.then = then

    def notify(self, notice):
        return self.then(notice)


@pytest.fixture
def asking(store, wal):
    def make(then=lambda notice: None, rules=(), name="asking", **policy):
        policy = {"timeout": 0.2, **policy}
        gateway = ApprovalGateway(store, Telling(then), policy=ApprovalPolicy(**policy))
        gate = PreFlightGate(rules, approval_provider=gateway)
        return AgentKit(name, wal=wal, gate=gate, settings=FAST)

    return make


# --- who is who ----------------------------------------------------------------------------------

AGENT = [
    *["agent", "AGENT", " agent ", "@agent", "@@agent", "<agent>", "agent.", '"agent"', "agent!"],
    *["ag\u200bent", "ag\u00adent", "ag\u3164ent", "agent\u2800", "\uffa0agent", "\u115fagent"],
    *["\u0430gent", "ag\u0435nt", "\u0391gent", "\uff21\uff27\uff25\uff2e\uff34", "ag\u0335ent"],
]


@pytest.mark.guarantee("APPROVE-2")
@pytest.mark.parametrize("by", AGENT)
def test_who_asks_does_not_answer_under_another_spelling(asking, store, world, by):
    def then(notice):
        with pytest.raises(ApprovalError, match="own request"):
            store.approve(notice.id, approver=by)
        store.deny(notice.id, approver="ann")

    kit = asking(then, name="agent", timeout=60)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction(), pytest.raises(ApprovalDenied, match="ann said no"):
        wire(5)
    assert world.amounts == []


@pytest.mark.parametrize(
    "name", ["", " ", "\u3164", "\u2800\u115f", "...", "\u202e\u200b", None, 5]
)
def test_a_name_that_shows_nothing_names_nobody(name):
    assert blank(name)


@pytest.mark.parametrize("pair", [("ann", "anna"), ("ann", "ann@corp"), ("ann b", "ann c")])
def test_people_with_other_names_are_others(pair):
    one, other = pair
    assert person(one) != person(other)


# --- notifiers -----------------------------------------------------------------------------------


@pytest.mark.guarantee("APPROVE-1")
def test_a_notifier_that_never_comes_back_is_a_no_and_keeps_nobody_waiting(
    asking, world, monkeypatch
):
    monkeypatch.setattr("agent_saga.controls.humans.gateway.TELLING", 0.1)
    never = threading.Event()
    kit = asking(lambda notice: never.wait(), timeout=60)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE")

    async def run():
        async with kit.transaction():
            with pytest.raises(ApprovalDenied, match="nobody could be told"):
                await wire.acall(5)

    asyncio.run(run())  # its end waits for the threads of its pool
    assert world.amounts == []
    never.set()


def test_an_answer_that_comes_while_a_notifier_hangs_counts(asking, store, world, monkeypatch):
    monkeypatch.setattr("agent_saga.controls.humans.gateway.TELLING", 0.3)
    never = threading.Event()

    def then(notice):
        store.approve(notice.id, approver="ann")
        never.wait()

    kit = asking(then, timeout=60)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction():
        wire(5)
    never.set()
    assert world.amounts == [5]


@pytest.mark.guarantee("APPROVE-1")
@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), OSError()])
def test_a_notifier_that_would_end_the_program_is_a_no(asking, world, error):
    def then(notice):
        raise error

    kit = asking(then, timeout=60)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction(), pytest.raises(ApprovalDenied, match="nobody could be told"):
        wire(5)
    assert world.amounts == []


def test_a_later_level_that_hangs_stops_nobody_from_answering(asking, store, world, monkeypatch):
    never = threading.Event()

    def then(notice):
        monkeypatch.setattr("agent_saga.controls.humans.gateway.TELLING", 0.2)  # for the next
        if notice.level == 1:
            threading.Timer(0.4, store.approve, (notice.id,), {"approver": "ann"}).start()
            never.wait()

    levels = (EscalationLevel("@oncall"), EscalationLevel("@head", after_seconds=0.05))
    kit = asking(then, timeout=60, levels=levels)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction():
        wire(5)
    never.set()
    assert world.amounts == [5]


@pytest.mark.parametrize("answer", [True, "yes", 5, [], {"approved": True}, Approval(True, "eve")])
def test_what_a_notifier_returns_approves_nothing(asking, world, answer):
    kit = asking(lambda notice: answer)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction(), pytest.raises(ApprovalDenied, match=r"in time|could be told"):
        wire(5)
    assert world.amounts == []


# --- standing grants -----------------------------------------------------------------------------


@pytest.mark.guarantee("APPROVE-6")
def test_a_grant_by_somebody_who_may_not_approve_covers_nothing(asking, store, world):
    kit = asking(approvers=("ann",))
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    store.grant("wire", approver="eve", seconds=60)
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(5)
    store.grant("wire", approver="@Ann", seconds=60)
    with kit.transaction():
        wire(6)
    assert world.amounts == [6]


class Stepping(Clock):
    """Both clocks, moved by a test; the wall clock also by itself."""

    def __init__(self):
        super().__init__()
        self.gone = 0.0

    def now_us(self):
        return 10**15 + self.later + int(self.gone * 1_000_000)

    def monotonic(self):
        return self.gone


@pytest.mark.guarantee("APPROVE-6")
@pytest.mark.parametrize("hours", [-30, 30])
def test_a_clock_step_makes_no_grant_longer(state, asking, world, hours):
    clock = Stepping()
    store = ApprovalStore(state, clock=clock)
    gateway = ApprovalGateway(store, policy=ApprovalPolicy(timeout=0.2))
    kit = AgentKit("steps", wal="memory:", gate=PreFlightGate((), gateway), settings=FAST)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    store.grant("wire", approver="ann", seconds=600)
    with kit.transaction():
        wire(1)
    clock.gone = 599.0
    clock.later = hours * 3600 * 1_000_000
    if hours < 0:
        with kit.transaction():
            wire(2)
    clock.gone = 601.0
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(3)
    assert world.amounts == [1, 2][: 2 if hours < 0 else 1]


@pytest.mark.guarantee("APPROVE-6")
def test_a_call_that_did_not_start_gives_every_share_back(asking, store, world):
    def never(args):
        raise ValueError("nothing to prepare")

    asks = [Rule(name, lambda call: True, "ask") for name in ("one", "two")]
    kit = asking(rules=asks)
    wire = kit.safe_tool(world.wire, "COMPENSABLE", name="wire", prepare=never)
    for rule in ("one", "two"):
        store.grant("wire", approver="ann", seconds=60, rule=rule)
    with kit.transaction(), pytest.raises(ValueError, match="nothing"):
        wire(5)
    assert [grant["shares"] for grant in store.grants()] == [{}, {}]


# --- arguments -----------------------------------------------------------------------------------


class Later:
    """Approves, and changes the order before the call starts."""

    def __init__(self, order):
        self.order = order

    def ask(self, request):
        return Approval(True, "ann")

    def consume(self, request):
        self.order["amount"] = 1_000_000


@pytest.mark.guarantee("GATE-2")
@pytest.mark.parametrize(
    ("semantics", "asks"),
    [
        ("REVERSIBLE", "a rule"),
        ("COMPENSABLE", "a rule"),
        ("COMPENSABLE", "its inverse"),
        ("IRREVERSIBLE", "itself"),
    ],
)
def test_arguments_changed_between_an_approval_and_the_call_are_refused(
    wal, world, semantics, asks
):
    rules = [Rule("people", lambda call: True, "ask")] if asks == "a rule" else []
    order = {"amount": 5}
    gate = PreFlightGate(rules, approval_provider=Later(order))
    kit = AgentKit("late", wal=wal, gate=gate, settings=FAST)
    tool = kit.safe_tool(lambda order: world.wire(order["amount"]), semantics, name="wire")
    if semantics == "COMPENSABLE":

        @tool.undo(irreversible=asks == "its inverse")
        def apologise(result):
            """Nothing was done."""

    with kit.transaction(), pytest.raises(RefusedError, match="changed"):
        tool(order)
    assert world.amounts == []


@pytest.mark.guarantee("GATE-2")
def test_arguments_changed_before_a_fallback_are_refused(gated, world):
    order = {"amount": 5}

    def first(order):
        order["amount"] = 1_000_000
        raise ConnectionRefusedError

    kit = gated(Rule("big", lambda view: view.arguments["order"]["amount"] > 1000))
    tool = kit.safe_tool(
        first,
        "COMPENSABLE",
        not_applied_on=(ConnectionRefusedError,),
        fallback_action=lambda order: world.wire(order["amount"]),
    )
    with kit.transaction(), pytest.raises(RefusedError, match="changed"):
        tool(order)
    assert world.amounts == []


# --- what the store holds ------------------------------------------------------------------------


def decided(asking, store, world, count=3):
    """Have some calls asked about and decided in each way."""
    kit = asking(lambda notice: store.approve(notice.id, approver="ann"), timeout=60)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    with kit.transaction():
        for amount in range(count):
            wire(amount)
    kit = asking(lambda notice: store.deny(notice.id, approver="ann"), timeout=60)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(count)


def test_requests_that_are_long_over_are_forgotten_and_the_others_kept(
    asking, store, state, world, clock
):
    decided(asking, store, world)
    glass = asking(
        lambda notice: store.approve(notice.id, approver="eve", break_glass=True),
        timeout=60,
        approvers=("ann",),
    )
    wire = glass.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    with glass.transaction():
        wire(99)
    store.grant("wire", approver="ann", seconds=60, rule="another")
    clock.later = document.KEPT // 2
    assert store.forget_old() == 1, "the grant that is over"
    assert len(state.scan(document.PREFIX)) == 5
    clock.later = document.KEPT + 2 * DAY
    assert store.forget_old() == 4
    (left,) = store.reviews()
    assert [key for key, _ in state.scan()] == [document.key_of(left["id"])]
    store.review(left["id"], by="ann")
    assert store.forget_old() == 1
    assert state.scan() == []


def test_whoever_asks_has_old_requests_forgotten(asking, store, state, world, clock):
    decided(asking, store, world)
    clock.later = document.KEPT + 2 * DAY
    store.forget_again = 0.0
    decided(asking, store, world, count=1)
    assert len(state.scan(document.PREFIX)) == 2


DAMAGED = [{}, {"state": "GRANTED"}, {"state": "?"}, {"grants": 5}, {"grants": [{}]}, {"a": 1}]


@pytest.mark.guarantee("APPROVE-1")
@pytest.mark.parametrize("doc", DAMAGED)
def test_a_damaged_request_or_grant_approves_nothing_and_hides_no_other(
    asking, store, state, world, doc
):
    keys = []

    def then(notice):
        keys.append(document.key_of(notice.id))
        state.transact(keys, lambda docs: Change(None, {keys[0]: doc}))

    kit = asking(then, timeout=60)
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(5)
    state.transact(["grant/x"], lambda docs: Change(None, {"grant/x": doc}))
    assert (store.pending(), store.reviews(), store.grants()) == ([], [], [])
    assert store.damaged() == [*keys, "grant/x"]
    with pytest.raises(StateError):
        store.approve(keys[0].removeprefix(document.PREFIX), approver="ann")
    assert store.forget_old() == 0
    assert world.amounts == []


def test_old_requests_that_cannot_be_forgotten_keep_nobody_from_asking(
    asking, store, world, monkeypatch, caplog
):
    def fails():
        raise StateError("no")

    monkeypatch.setattr(store, "forget_old", fails)
    decided(asking, store, world, count=1)
    assert world.amounts == [0]
    assert "could not be forgotten" in caplog.text

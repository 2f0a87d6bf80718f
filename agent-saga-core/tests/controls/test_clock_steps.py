"""Somebody moves the clock: no request waits longer, nobody goes untold, and no halt is over."""

from __future__ import annotations

import threading
import time

import pytest

from agent_saga import (
    ActionSemantics,
    AgentKit,
    ApprovalDenied,
    ApprovalError,
    ApprovalGateway,
    ApprovalPolicy,
    CallView,
    EscalationLevel,
    KillSwitch,
    PreFlightGate,
)
from agent_saga.controls.humans import document
from agent_saga.controls.humans.document import Asked, State
from agent_saga.controls.humans.store import ApprovalStore
from agent_saga.controls.humans.timing import time_of
from agent_saga.controls.limits.moments import Moment, moment
from agent_saga.controls.switch import document as switches
from agent_saga.controls.switch.store import SwitchStore
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.errors import Halted, StateError
from agent_saga.state.base import one
from agent_saga.state.memory import MemoryStateStore

DAY = 86_400.0
ABOUT = {
    "id": "r1",
    "saga": "s1",
    "step": "t1",
    "gen": 0,
    "tool": "wire",
    "rule": "irreversible",
    "reason": "it stands",
    "arguments": "{}",
    "requesters": ["agent"],
}


class Clock:
    """The clocks of a host: time goes by for both, and the wall clock is stepped as well."""

    def __init__(self):
        self.gone = 0.0
        self.step = 0.0

    def now_us(self):
        return 10**15 + int((self.gone + self.step) * 1_000_000)

    def monotonic(self):
        return 1000.0 + self.gone


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(clock):
    return ApprovalStore(MemoryStateStore(), clock=clock)


def asked(store, clock, seconds=600.0):
    """Put a request whose process then dies: only the store goes on."""
    now = moment(clock)
    wanted = Asked(ABOUT, now.wall + int(seconds * 10**6), int(DAY * 10**6), clocks=now)
    key = document.key_of("r1")
    store.state.transact([key], one(key, lambda doc: document.put(doc, wanted, now=now.wall)))


@pytest.mark.guarantee("APPROVE-1")
@pytest.mark.parametrize("step", [-DAY, -1.0, 0.0, DAY])
def test_nobody_answers_after_the_deadline_whatever_the_clock_says(store, clock, step):
    asked(store, clock)
    clock.gone, clock.step = 601.0, step
    assert store.pending() == []
    with pytest.raises(ApprovalError, match="time to answer"):
        store.approve("r1", approver="ann")


@pytest.mark.guarantee("APPROVE-5")
@pytest.mark.parametrize("step", [-DAY, 0.0])
def test_an_answer_lives_no_longer_and_is_given_in_time_whatever_the_clock_says(store, clock, step):
    asked(store, clock)
    clock.gone, clock.step = 599.0, step
    assert store.approve("r1", approver="ann")["state"] == "GRANTED"
    clock.gone = 599.0 + DAY - 1
    assert _used(store, clock) == ""
    (key,) = [key for key, _ in store.state.scan("approval/")]
    doc = {**store.state.get(key), "state": "GRANTED", "used": None}
    store.state.transact([key], one(key, lambda _: (doc, None)))
    clock.gone = 599.0 + DAY + 1
    assert "lapsed" in _used(store, clock)


def _used(store, clock):
    key, now = document.key_of("r1"), moment(clock)

    def use(doc):
        return document.consume(doc, step="t1", generation=0, now=time_of(doc, now))

    return store.state.transact([key], one(key, use))


def test_a_document_without_its_moment_goes_by_the_wall_clock():
    doc, _ = document.put(None, Asked(ABOUT, 100, 100), now=50)
    assert time_of(doc, Moment(99, 10**6, "b")) == 99
    assert time_of({**doc, "clocks": ["?"]}, Moment(99, 10**6, "b")) == 99
    assert document.expire(doc, now=99)[1] is State.PENDING


class Stepped:
    """The machine's clocks; the wall clock is put back by a day when a test says so."""

    def __init__(self):
        self.back = 0

    def now_us(self):
        return SYSTEM_CLOCK.now_us() - self.back

    def monotonic(self):
        return SYSTEM_CLOCK.monotonic()


def test_a_clock_that_is_put_back_keeps_nobody_from_being_told(world):
    clock, told = Stepped(), []
    both = threading.Event()

    class Teller:
        def notify(self, notice):
            told.append(notice.level)
            clock.back = 86_400 * 10**6
            if notice.level:
                both.set()

    levels = (EscalationLevel(), EscalationLevel(after_seconds=0.2))
    policy = ApprovalPolicy(timeout=2, levels=levels)
    gateway = ApprovalGateway(
        ApprovalStore(MemoryStateStore(), clock=clock), Teller(), None, policy
    )
    kit = AgentKit("stepped", wal="memory:", gate=PreFlightGate(approval_provider=gateway))
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    with kit.transaction(), pytest.raises(ApprovalDenied, match="in time"):
        wire(5)
    assert both.is_set()
    assert (told, world.amounts) == ([0, 1], [])


# --- halts ---------------------------------------------------------------------------------------


class Hand:
    """A wall clock that is put anywhere by hand; the other clock is the machine's own."""

    def __init__(self):
        self.step = 0.0

    def now_us(self):
        return SYSTEM_CLOCK.now_us() + int(self.step * 1_000_000)

    monotonic = staticmethod(SYSTEM_CLOCK.monotonic)


@pytest.fixture
def hand():
    return Hand()


def process(state, hand):
    """Return the kill switch of a process that starts now, and which knows nothing yet."""
    return KillSwitch(SwitchStore(state), clock=hand)


def judged(switch, **saga):
    """Say whether a switch lets a call of a saga go on."""
    call = CallView("wire", ActionSemantics.COMPENSABLE, {}, frozenset(), **saga)
    try:
        wait = switch.check(call)
        while wait is not None:
            wait = wait.then(wait.request.blocking(), None)
    except Halted:
        return False
    return True


@pytest.mark.guarantee("HALT-3")
def test_a_halt_with_an_end_outlives_a_clock_step_also_for_who_starts_later(hand):
    state = MemoryStateStore()
    process(state, hand).halt("tool:wire", reason="r", by="ann", ttl=60)
    hand.step = DAY
    assert not judged(process(state, hand))
    process(state, hand).halt("tool:mail", reason="r", by="ann")  # takes out what is over
    assert not judged(process(state, hand))
    assert len(process(state, hand).switches().halts) == 2
    assert process(state, hand).lift("tool:wire", by="ann").entries
    assert judged(process(state, hand))


@pytest.mark.guarantee("HALT-3")
def test_a_halt_with_an_end_is_over_when_both_clocks_say_so(hand):
    state = MemoryStateStore()
    process(state, hand).halt("tool:wire", reason="r", by="ann", ttl=0.05)
    hand.step = DAY
    time.sleep(0.06)
    assert judged(process(state, hand))


@pytest.mark.guarantee("HALT-3")
def test_what_begins_after_a_drain_is_stopped_whatever_the_clock_says(hand):
    state = MemoryStateStore()
    before = {"began": hand.now_us(), "opened": time.monotonic()}
    process(state, hand).halt("*", reason="r", by="ann", drain=True)
    hand.step = -DAY
    after = {"began": hand.now_us(), "opened": time.monotonic()}
    started = process(state, hand)
    assert judged(started, **before)
    assert not judged(started, **after)


@pytest.mark.parametrize("here", [[], [1.0], ["x", "b"], [1.0, 5], [1.0, "b", 2], 5, "ab"])
def test_an_entry_of_a_damaged_moment_is_damage(here):
    doc, _ = switches.add_halt(
        None, floor=0, scope="*", mode="halt", reason="r", by="b", at=0, until=5, here=(1.0, "b")
    )
    switches.read(doc)
    doc["halts"][0]["here"] = here
    with pytest.raises(StateError, match="cannot be understood"):
        switches.read(doc)

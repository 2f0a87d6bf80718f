"""Leases of shared limits: quick, and never more than the cap, whoever has them and dies."""

from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_saga import BudgetLimit, LimitStore, RateLimit
from agent_saga.controls.control import CallView
from agent_saga.controls.limits.leases import FEWEST, LONGEST, MOST, SHARE
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import StateError, StateUnavailable
from agent_saga.state.memory import MemoryStateStore
from agent_saga_testing.clock import FakeClock

WINDOW = 86_400.0
_names = itertools.count()


class Process:
    """What one process has of the limits: a store of its own on the shared state."""

    def __init__(self, state, clock, limits, pauses=40):
        self.store = LimitStore(state, clock=clock)
        self.store._pauses = pauses
        self.limits = limits
        self.leases = self.store._leases
        self.leases._watch = lambda at_least=0.0: None  # no timer: the test says when leases end
        self.name = f"saga{next(_names)}"
        self.made = 0
        self.transactions = 0

    def call(self, amount):
        """Take an amount of every limit; return the call and what it took, or None."""
        self.made += 1
        call = CallView("pay", ActionSemantics.COMPENSABLE, {}, frozenset())
        call.saga, call.step = self.name, str(self.made)
        wants = [(one, "", 1 if one.arg is None else amount) for one in self.limits]
        leased = self.store.from_leases(call, wants)
        if leased:
            return call, leased
        self.transactions += 1
        taken, overs = self.store.taking(call, wants).blocking()
        assert bool(taken) is not bool(overs)
        return (call, taken) if taken else None

    def give_back(self, call, taken):
        use = self.store.giving_back(call, taken)
        if use is not None:
            use.blocking()

    def settle(self, call, taken):
        self.store.settle(call, taken)


def budget(most, window=WINDOW):
    return BudgetLimit("spend", "amount", most, window)


def used(state, clock):
    return {one.limit: one.used for one in LimitStore(state, clock=clock).usage()}


def busy(process, calls, amount=1):
    for _ in range(calls):
        process.settle(*process.call(amount))


def test_a_busy_process_asks_the_store_once_for_many_calls():
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6), RateLimit("calls", 10**6, WINDOW)])
    busy(process, 500)
    assert process.transactions < 20
    assert 500 < used(state, clock)["spend"] <= 500 + MOST
    process.leases.end()
    assert used(state, clock) == {"spend": 500, "calls": 500}


@pytest.mark.guarantee("LIMIT-7")
def test_a_lease_is_a_small_part_of_the_lower_half_of_its_limit():
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(1000)])
    for number in range(1, 1001):
        process.settle(*process.call(1))
        assert (
            number <= used(state, clock)["spend"] <= max(number, min(500, number + 1000 // SHARE))
        )
    assert process.call(1) is None
    small = Process(MemoryStateStore(), clock, [budget(SHARE)])
    busy(small, SHARE)
    assert small.transactions == SHARE


@pytest.mark.guarantee("LIMIT-7")
def test_nothing_is_spent_of_a_lease_after_its_end():
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6)])
    busy(process, 3)
    before = process.transactions
    clock.advance(LONGEST)
    process.call(1)
    assert process.transactions == before + 1


@pytest.mark.guarantee("LIMIT-7")
def test_nothing_leaves_the_window_before_its_time():
    """What is spent at the end of a lease counts for the whole window from then on."""
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6)])
    busy(process, 2)
    clock.advance(LONGEST * 0.99)
    transactions = process.transactions
    process.call(1)
    assert process.transactions == transactions
    process.leases.end()
    clock.advance(WINDOW - LONGEST * 0.5)
    assert used(state, clock)["spend"] >= 1


@pytest.mark.guarantee("LIMIT-7")
def test_a_forked_child_has_no_lease():
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6)])
    busy(process, 3)
    left = process.leases
    process.store.restart_in_child()
    before = process.transactions
    process.call(1)
    assert process.transactions == before + 1
    left._fork -= 1  # as the fork leaves it: the parent's, which ends them itself
    left.end()
    assert used(state, clock)["spend"] == 3 + 1 + FEWEST - 1


@pytest.mark.guarantee("LIMIT-7")
def test_a_process_that_died_has_used_its_leases_up():
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6)])
    busy(process, 3)
    del process
    assert used(state, clock)["spend"] > 3


@pytest.mark.guarantee("LIMIT-3")
@pytest.mark.parametrize("ended", [False, True])
def test_a_call_that_took_of_a_lease_is_handed_back_once(ended):
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6), RateLimit("calls", 10**6, WINDOW)])
    busy(process, 3)
    held = process.call(5)
    if ended:
        process.leases.end()
        assert used(state, clock) == {"spend": 8, "calls": 4}
    process.give_back(*held)
    process.give_back(*held)
    process.leases.end()
    assert used(state, clock) == {"spend": 3, "calls": 3}


@pytest.mark.guarantee("LIMIT-3")
def test_a_call_that_a_lease_has_no_room_for_takes_of_no_lease():
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(1000), RateLimit("calls", 10**6, WINDOW)])
    busy(process, 3)
    assert process.call(998) is None
    process.leases.end()
    assert used(state, clock) == {"spend": 3, "calls": 3}


def held_names(state):
    return {name for _, doc in state.scan("limit/") for name in doc["held"]}


def test_a_call_whose_announcement_is_out_after_its_lease_ended_loses_its_name():
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6), RateLimit("calls", 10**6, WINDOW)])
    busy(process, 3)
    call, taken = process.call(2)
    process.leases.end()
    assert f"{call.saga}:{call.step}:0" in held_names(state)
    process.settle(call, taken)
    clock.advance(2 * LONGEST)
    process.give_back(*process.call(1))  # it brings the store up to date, and leases nothing
    assert held_names(state) == set()
    assert used(state, clock) == {"spend": 5, "calls": 4}


def test_what_calls_took_is_kept_no_longer_than_the_lease():
    """A call may end without a word to its limits; the store has its name from then on."""
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6), RateLimit("calls", 10**6, WINDOW)])
    busy(process, 3)
    silent = [process.call(1) for _ in range(3)]
    assert len(process.leases._calls) == 3
    process.leases.end()
    assert (process.leases._calls, process.leases._at) == ({}, {})
    assert {f"{call.saga}:{call.step}:0" for call, _ in silent} <= held_names(state)
    for one in silent:
        process.give_back(*one)
    assert used(state, clock) == {"spend": 3, "calls": 3}


def test_a_lease_that_ends_alone_leaves_the_others_of_its_calls():
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6), RateLimit("calls", 10**6, WINDOW)])
    busy(process, 3)
    kept, given = process.call(1), process.call(1)
    for lease in process.leases._of.values():  # the test may be slow
        lease.began += -LONGEST if lease.place[0] == "calls" else 3600
    process.leases.end(every=False)
    assert [place[0] for place in process.leases._at] == ["spend"]
    process.settle(*kept)
    process.give_back(*given)
    process.leases.end()
    assert used(state, clock) == {"spend": 4, "calls": 4}


def test_a_call_takes_of_one_count_once():
    """Also if two limits share it; and so does a call that asks again under its name."""
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6), budget(10**6)])
    busy(process, 3)
    process.call(2)
    process.made -= 1
    process.call(2)
    process.leases.end()
    assert used(state, clock) == {"spend": 5}


def test_a_call_that_is_over_because_of_a_lease_is_judged_again_when_that_has_ended():
    state, clock = MemoryStateStore(), FakeClock()
    holder = LimitStore(state, clock=clock)
    process = Process(state, clock, [budget(1000)])
    busy(process, 3)
    other = Process(state, clock, [budget(1000)])
    ending = threading.Timer(0.1, process.leases.end)
    ending.start()
    assert other.call(997) is not None
    ending.join()
    assert {one.limit: one.used for one in holder.usage()} == {"spend": 1000}


def test_the_lease_of_a_dead_process_is_waited_for_once():
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(1000)])
    busy(process, 3)
    other = Process(state, clock, [budget(1000)], pauses=2)
    transact, asked = state.transact, []

    def counted(*args, **kwargs):
        asked.append(args)
        return transact(*args, **kwargs)

    state.transact = counted
    assert other.call(997) is None
    waited = len(asked)
    assert other.call(997) is None
    assert len(asked) == waited + 1


def test_leases_end_by_themselves():
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6)])
    del process.leases._watch  # with its timer
    busy(process, 3)
    ended = threading.Event()
    for _ in range(2000):
        if used(state, clock)["spend"] == 3:
            break
        ended.wait(0.01)
    assert used(state, clock)["spend"] == 3


@pytest.mark.parametrize("error", [StateError, StateUnavailable])
def test_a_store_that_fails_is_not_asked_in_a_loop(error):
    """A closed one is left alone until a call comes; one that is busy is asked now and then."""
    state, clock = MemoryStateStore(), FakeClock()
    process = Process(state, clock, [budget(10**6)])
    busy(process, 3)
    transact, pauses = state.transact, []

    def fails(*args, **kwargs):
        raise error("it cannot be used")

    state.transact = fails
    process.leases._watch = lambda at_least=0.0: pauses.append(at_least)
    for lease in process.leases._of.values():
        lease.began -= LONGEST
    process.leases._tick()
    assert pauses == ([LONGEST] if error is StateUnavailable else [])
    state.transact = transact
    process.leases._tick()
    assert used(state, clock)["spend"] == 3


what = st.sampled_from(["call"] * 6 + ["keep", "back", "wait", "end", "die"])
step = st.tuples(what, st.integers(0, 2), st.integers(0, 9), st.floats(0.0, 20.0))


@pytest.mark.property
@pytest.mark.guarantee("LIMIT-1")
@pytest.mark.guarantee("LIMIT-7")
@given(st.lists(step, max_size=120), st.sampled_from([128, 200, 1000]))
@settings(max_examples=150, deadline=None)
def test_processes_with_leases_never_let_through_too_much(steps, cap):
    window = 32.0
    state, clock = MemoryStateStore(), FakeClock()
    limits = [budget(cap, window)]
    processes = [Process(state, clock, limits, pauses=0) for _ in range(3)]
    through, held = [], []
    for kind, who, amount, pause in steps:
        process = processes[who]
        if kind in ("call", "keep"):
            for _ in range(8):
                found = process.call(amount)
                if found is None:
                    break
                at = clock.monotonic()
                assert sum(a for t, a in through if t + window > at) + amount <= cap
                through.append((at, amount))
                if kind == "call":
                    process.settle(*found)
                else:
                    held.append((process, found, through[-1]))
        elif kind == "back" and held:
            owner, found, entry = held.pop()
            if owner in processes:
                owner.give_back(*found)
                through.remove(entry)
        elif kind == "wait":
            clock.advance(pause if amount else LONGEST / 3)
        elif kind == "end":
            process.leases.end()
        elif kind == "die":
            processes[who] = Process(state, clock, limits, pauses=0)
    at = clock.monotonic()
    told = used(state, clock).get("spend", 0)
    assert told >= sum(a for t, a in through if t + window > at)

"""A lease that began while nobody heard of it is spent by nobody, and is handed back."""

from __future__ import annotations

import asyncio

import pytest

from agent_saga import BudgetLimit, LimitStore
from agent_saga.controls.control import CallView
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import StateUnavailable
from agent_saga.state.memory import MemoryStateStore
from agent_saga_testing.clock import FakeClock

LIMIT = BudgetLimit("spend", "amount", 10**6, 86_400.0)


class CutOff(MemoryStateStore):
    """Stores a change, and then does not answer, as often as it is told."""

    def __init__(self):
        super().__init__()
        self.trouble = []

    def transact(self, *args, **options):
        answer = super().transact(*args, **options)
        if self.trouble:
            raise self.trouble.pop()
        return answer

    async def async_transact(self, *args, **options):
        answer = await super().async_transact(*args, **options)
        if self.trouble:
            raise self.trouble.pop()
        return answer


class Process:
    """One process that counts calls of 1."""

    def __init__(self, state, clock):
        self.store = LimitStore(state, clock=clock)
        self.leases = self.store._leases
        self.leases._watch = lambda at_least=0.0: None  # no timer: the test says when leases end
        self.made = 0

    def new(self):
        self.made += 1
        call = CallView("pay", ActionSemantics.COMPENSABLE, {}, frozenset())
        call.saga, call.step = "saga", str(self.made)
        return call

    def takes(self, use_of):
        """Take 1 by a lease, or by what the store answers."""
        call, wants = self.new(), [(LIMIT, "", 1)]
        taken = self.store.from_leases(call, wants)
        if not taken:
            taken, overs = use_of(self.store.taking(call, wants))
            assert not overs
        self.store.settle(call, taken)


def plainly(use):
    return use.blocking()


def used(state, clock):
    return sum(one.used for one in LimitStore(state, clock=clock).usage())


def awaiting_again(use):
    """Use it on a loop, and once more if it is cancelled, as the engine does."""

    async def twice():
        try:
            return await use.awaiting()
        except asyncio.CancelledError:
            return await use.awaiting()

    return asyncio.run(twice())


def blocking_again(use):
    try:
        return use.blocking()
    except KeyboardInterrupt:
        return use.blocking()


@pytest.fixture
def state():
    return CutOff()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.mark.guarantee("LIMIT-7")
@pytest.mark.parametrize(
    ("trouble", "use_of"),
    [(asyncio.CancelledError(), awaiting_again), (KeyboardInterrupt(), blocking_again)],
)
def test_a_lease_of_a_call_that_was_cut_off_is_handed_back(state, clock, trouble, use_of):
    process = Process(state, clock)
    for number in range(5):
        process.leases.end()
        state.trouble = [trouble] if number > 1 else []
        process.takes(use_of)
    process.leases.end()
    assert used(state, clock) == process.made
    for _ in range(60):
        process.takes(plainly)
    process.leases.end()
    assert used(state, clock) == process.made


@pytest.mark.guarantee("LIMIT-7")
def test_nor_does_one_stay_of_a_call_that_got_no_answer(state, clock):
    process = Process(state, clock)
    for _ in range(2):
        process.takes(plainly)
    process.leases.end()
    state.trouble = [StateUnavailable("no answer")]
    call = process.new()
    with pytest.raises(StateUnavailable):
        process.store.taking(call, [(LIMIT, "", 1)]).blocking()
    process.store.giving_back(call, call.held["limits"]).blocking()
    process.leases.end()
    assert used(state, clock) == process.made - 1
    assert process.leases._unheard == []
    process.takes(plainly)
    process.leases.end()
    assert used(state, clock) == process.made - 1


@pytest.mark.guarantee("LIMIT-7")
def test_the_next_call_that_goes_to_the_store_hands_it_back_as_well(state, clock):
    process = Process(state, clock)
    for _ in range(2):
        process.takes(plainly)
    process.leases.end()
    state.trouble = [asyncio.CancelledError()]
    call = process.new()
    with pytest.raises(asyncio.CancelledError):
        process.store.taking(call, [(LIMIT, "", 1)]).blocking()
    assert used(state, clock) > process.made
    process.takes(plainly)
    process.leases.end()
    assert used(state, clock) == process.made

"""The counting itself: random traffic against a list that forgets nothing."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_saga.controls.amounts import Number, add, amount_of, number_of, text_of
from agent_saga.controls.limits.count import Count
from agent_saga.controls.limits.limit import BudgetLimit
from agent_saga.controls.limits.memory import MemoryLimitStore, Taken
from agent_saga.controls.limits.moments import Axis, Moment
from agent_saga.controls.limits.window import MERGED, Window
from agent_saga.state.document import decode, encode

LENGTH = 60.0
amounts = st.one_of(st.integers(0, 50), st.decimals(0, 50, places=3))
traffic = st.lists(st.tuples(st.floats(0, 30), amounts, st.booleans()), max_size=120)


def most_in_any_window(taken):
    """The largest sum of amounts that lie within one window, each counted from its own time."""
    sums = [sum(Decimal(a) for t, a in taken if start <= t < start + LENGTH) for start, _ in taken]
    return max(sums, default=Decimal(0))


@pytest.mark.guarantee("LIMIT-4")
@given(traffic, st.integers(1, 200))
@settings(max_examples=150, deadline=None)
def test_no_window_holds_more_than_the_cap(calls, cap):
    """P9 of one count: whatever comes, no window of the list ever holds more than the cap."""
    window, now, taken = Window(), 0.0, []
    for gap, amount, hand_back in calls:
        now += gap
        window.prune(LENGTH, now)
        number = amount_of(amount)
        if add(window.total, number) > cap:
            continue
        entry = window.take(number, LENGTH, now)
        if hand_back:
            window.give_back(entry, number)
        else:
            taken.append((now, number))
        assert len(window.ends) <= 2 * MERGED + 1
    assert most_in_any_window(taken) <= cap


close = st.lists(st.tuples(st.floats(0, 2), amounts, st.booleans()), max_size=150)


@pytest.mark.guarantee("LIMIT-4")
@given(st.one_of(traffic, close), st.integers(1, 200), st.integers(1, 200))
@settings(max_examples=150, deadline=None)
def test_limits_in_memory_let_through_all_or_nothing_and_never_too_much(calls, cap, other):
    """Two limits judge each call: what is over one of them counts in neither."""
    now, taken = 0.0, []
    store = MemoryLimitStore(monotonic=lambda: now)
    wide = BudgetLimit("wide", "amount", cap, LENGTH)
    narrow = BudgetLimit("narrow", "amount", other, LENGTH / 4)
    windows = {"wide": Window(), "narrow": Window()}
    for gap, amount, hand_back in calls:
        now += gap
        number = amount_of(amount)
        for limit in (wide, narrow):
            windows[limit.name].prune(limit.window, now)
        fits = all(add(windows[limit.name].total, number) <= limit.most for limit in (wide, narrow))
        held, overs = store.take([(wide, "", number), (narrow, "", number)], frozenset())
        assert bool(overs) is not fits
        if overs:
            continue
        entries = {
            limit.name: windows[limit.name].take(number, limit.window, now)
            for limit in (wide, narrow)
        }
        if hand_back:
            store.give_back(held)
            for name, entry in entries.items():
                windows[name].give_back(entry, number)
        else:
            taken.append((now, number))
    counted = {one.limit: one.used for one in store.usage()}
    assert counted == ({name: window.total for name, window in windows.items()} if calls else {})
    assert most_in_any_window(taken) <= cap


@pytest.mark.guarantee("LIMIT-4")
@pytest.mark.parametrize("seed", range(20))
def test_a_busy_count_forgets_nothing_early_and_little_late(seed):
    """Of a count that much joins, some of which is handed back long after."""
    now, chance = 0.0, random.Random(seed)
    held: list[tuple[float, Number, list[Taken]]] = []
    store = MemoryLimitStore(monotonic=lambda: now)
    limit = BudgetLimit("spend", "amount", 400, LENGTH)
    for number in range(400):
        now += chance.choice([0, 0.1, 1, LENGTH / 20, LENGTH if number % 90 == 89 else 0.5])
        amount = chance.choice([0, 1, 2, 30, Decimal("0.5") if seed % 2 and number > 200 else 7])
        taken, overs = store.take([(limit, "", amount)], frozenset())
        held += [] if overs else [(now, amount, taken)]
        if overs or chance.random() < 0.05:
            used = overs[0].used if overs else sum(one.used for one in store.usage())
            within, late = (
                sum(Decimal(amount) for at, amount, _ in held if at + length > now)
                for length in (LENGTH, LENGTH * (1 + 1 / MERGED))
            )
            assert within <= used <= late
        if held and chance.random() < 0.2:  # some call of before did not start
            store.give_back(held.pop(chance.randrange(len(held)))[2])
    assert most_in_any_window([(at, amount) for at, amount, _ in held]) <= 400


@given(traffic)
@settings(max_examples=100, deadline=None)
def test_a_window_forgets_in_time(calls):
    """What is counted left at most a sixteenth of the window late."""
    window, now, taken = Window(), 0.0, []
    for gap, amount, _ in calls:
        now += gap
        window.prune(LENGTH, now)
        number = amount_of(amount)
        window.take(number, LENGTH, now)
        taken.append((now, number))
    late = LENGTH * (1 + 1 / MERGED)
    at_most = sum(Decimal(a) for t, a in taken if t + late > now)
    at_least = sum(Decimal(a) for t, a in taken if t + LENGTH > now)
    assert at_least <= Decimal(window.total) <= at_most


@given(traffic, st.lists(st.booleans(), min_size=120, max_size=120))
@settings(max_examples=80, deadline=None)
def test_a_stored_count_counts_like_one_in_memory(calls, settle):
    window, now, doc = Window(), 0.0, None
    for number, (gap, amount, hand_back) in enumerate(calls):
        now += gap
        value = amount_of(amount)
        window.prune(LENGTH, now)
        entry = window.take(value, LENGTH, now)
        count = Count(doc, Moment(0, now, "boot"), LENGTH)
        count.take(str(number), value, "w", stays=False)
        count.take(str(number), value, "w", stays=False)  # a repetition takes nothing
        if hand_back:
            window.give_back(entry, value)
            count.give_back(str(number))
            count.give_back(str(number))
        elif settle[number]:
            count.settle(str(number))
        doc = count.document()
        doc = None if doc is None else decode(encode(doc), where="test")
    found = Count(doc, Moment(0, now, "boot"), LENGTH)
    assert number_of(found.window.total) == window.total


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(-(10**9), 10**9)), max_size=30))
def test_a_step_of_the_wall_clock_moves_no_window(steps):
    axis, gone = Axis(0.0, 0, 0.0, "boot"), 0.0
    for gap, wall in steps:
        gone += gap
        axis = axis.advanced(Moment(wall * 1_000_000, gone, "boot"))
    assert axis.now == pytest.approx(gone)


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.sampled_from(["a", "b", "c"])),
        max_size=40,
    )
)
def test_hosts_whose_clocks_differ_do_not_refill_a_window(steps):
    """Between hosts the axis advances no further than the clock that is the most ahead."""
    skew = {"a": 0.0, "b": 300.0, "c": -300.0}
    real, axis = 1000.0, Axis(0.0, int(1000.0 * 1e6), 1000.0, "a")
    for gap, host in steps:
        real += gap
        wall = int((real + skew[host]) * 1_000_000)
        axis = axis.advanced(Moment(wall, real + 7 * skew[host], host))
    assert axis.now <= real - 1000.0 + 300.0 + 1e-3


@pytest.mark.parametrize("boot", ["", "same"])
def test_a_clock_that_stands_still_or_goes_back_frees_nothing(boot):
    axis = Axis(50.0, 1_000_000_000, 500.0, boot)
    assert axis.advanced(Moment(0, 500.0, boot)).now == 50.0
    assert axis.advanced(Moment(0, 400.0, boot)).now == 50.0
    assert axis.advanced(Moment(10**15, 500.0, boot)).now == 50.0


@given(st.one_of(st.integers(-(10**39), 10**39), st.decimals(allow_nan=False, places=10)))
def test_a_number_is_read_back_as_it_was_written(value):
    try:
        number = number_of(value)
    except ValueError:
        return
    assert number_of(text_of(number)) == number == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_counts_as_the_shortest_decimal_that_stands_for_it(value):
    try:
        number = number_of(value)
    except ValueError:
        return
    assert Decimal(number) == Decimal(repr(value))


def test_who_asks_again_holds_what_was_taken():
    """A call that another process goes on with must not be handed back when the first one dies."""
    count = Count(None, Moment(0, 1.0, "boot"), LENGTH)
    count.take("call", 5, "first", stays=False)
    count.take("call", 5, "second", stays=False)
    assert (count.window.total, count.held["call"][2]) == (5, "second")

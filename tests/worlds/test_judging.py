"""The judge of the worlds sees every difference, and nothing but what was declared is excused."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.worlds.judging import differences, undeclared
from bench.worlds.measures import Share
from bench.worlds.standing import laid_over
from bench.worlds.traces import added, beside, changed, grew, if_there, removed, reordered

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xy", max_size=2), inner),
    max_leaves=12,
)


def paths(before, now):
    return sorted(str(item) for item in differences(before, now))


@given(PLAIN, PLAIN)
def test_two_states_differ_exactly_when_a_difference_is_found(before, now):
    assert bool(paths(before, now)) is (before != now)


@given(PLAIN)
def test_a_copy_does_not_differ(state):
    assert paths(state, copy.deepcopy(state)) == []


def test_what_was_added_removed_and_changed_is_named():
    before = {"a": {"x": 1, "gone": 2}, "list": [1, 2]}
    now = {"a": {"x": 9, "new": 3}, "list": [1, 2, 3]}
    assert paths(before, now) == ["a/+/new", "a/-/gone", "a/x", "list/+/2"]


def test_the_last_bit_of_a_sum_is_no_difference():
    assert paths({"balance": 0.3}, {"balance": 0.1 + 0.2}) == []
    assert paths({"balance": 0.3}, {"balance": 0.31}) == ["balance"]


def test_only_what_was_declared_is_excused():
    found = list(differences({"orders": {}, "n": 1}, {"orders": {"7": {"status": "Open"}}, "n": 2}))
    n = changed("n")
    assert undeclared(found, [n, added("orders/7")]) == []
    assert undeclared(found, [n, added("orders/7", status="Open")]) == []
    assert undeclared(found, [n, added("orders/7", {"status": "Open"})]) == []
    assert undeclared(found, [n, added("orders/7", status="Cancelled")]) == ["orders/+/7"]
    assert undeclared(found, [n, added("orders/8")]) == ["orders/+/7"]
    assert undeclared(found, [n, removed("orders/7"), changed("orders/7")]) == ["orders/+/7"]
    assert undeclared(found, [changed("n", 3), added("orders/*")]) == ["n"]


def test_a_trace_excuses_one_thing_and_not_two():
    found = list(differences({"orders": {}}, {"orders": {"7": {"of": 1}, "8": {"of": 1}}}))
    assert len(undeclared(found, [added("orders/*", of=1)])) == 1
    assert undeclared(found, [added("orders/*"), added("orders/*", of=1)]) == []


def test_a_trace_that_has_to_be_left_is_missed():
    trace = added("orders/7", must=True)
    assert undeclared([], [trace]) == ["orders/+/7 is not there"]
    found = list(differences({"orders": {}}, {"orders": {"7": {}}}))
    assert undeclared(found, [trace]) == []


def test_what_stands_in_for_a_thing_is_left_only_where_that_was_there():
    held, gone = {"7": {"is": "open"}}, {"7": {"is": "over"}, "8": {"is": "open"}}
    over = changed("orders/7/is", "over")
    again = beside("orders/7/is", added("orders/*", **{"is": "open"}))
    traces = [over, *if_there("orders/7", again)]
    start = {"orders": held}
    found = list(differences(start, {"orders": gone}))
    assert undeclared(found, traces, start) == []
    alone = list(differences({"orders": {}}, {"orders": {"8": {"is": "open"}}}))
    assert undeclared(alone, traces, {"orders": {}}) == ["orders/+/8"]
    only_over = list(differences(start, {"orders": {"7": {"is": "over"}}}))
    assert undeclared(only_over, traces, start) == ["orders/+/* is not there"]
    assert undeclared([], traces, start) == []


@pytest.mark.parametrize(
    ("now", "left"), [(3, []), (2, ["n"]), (4, ["n"]), (1, ["n did not grow"])]
)
def test_a_number_grows_by_what_all_steps_say_together(now, left):
    found = list(differences({"n": 1}, {"n": now}))
    assert undeclared(found, [grew("n"), grew("n")]) == left


def test_what_is_in_a_list_goes_by_its_number():
    before = {"lines": [{"line_id": "a", "on": 1}, {"line_id": "b", "on": 1}]}
    now = {"lines": [{"line_id": "b", "on": 2}, {"line_id": "c", "on": 1}]}
    assert paths(before, now) == ["lines/+/c", "lines/-/a", "lines/b/on"]


def test_another_order_of_a_list_is_a_difference():
    assert paths({"inbox": ["x", "y"]}, {"inbox": ["y", "x"]}) == ["inbox/~"]
    assert paths({"inbox": ["x", "y", "z"]}, {"inbox": ["x", "z"]}) == ["inbox/-/1"]
    swapped = [{"id": 1}, {"id": 2}]
    assert paths({"inbox": swapped}, {"inbox": swapped[::-1]}) == ["inbox/~"]
    found = list(differences({"inbox": ["x", "y"]}, {"inbox": ["y", "x"]}))
    assert undeclared(found, [reordered("inbox")]) == []


@given(PLAIN, PLAIN)
def test_what_was_changed_can_be_laid_over_the_same_start(before, now):
    before, now = {"it": before}, {"it": now}
    assert paths(laid_over(before, differences(before, now)), now) in ([], ["it/~"])


def test_what_an_undone_call_had_made_is_no_place_for_a_change():
    booked = {"bookings": {"7": {"insured": False}}, "balance": 50}
    insured = {"bookings": {"7": {"insured": True}}, "balance": 40}
    changes = list(differences(booked, insured))
    assert laid_over({"bookings": {}, "balance": 90}, changes) == {"bookings": {}, "balance": 80}


def test_an_interval_grows_narrow_with_the_number_of_runs():
    few, many = Share(0, 10).interval, Share(0, 3000).interval
    assert few[0] == many[0] == 0.0
    assert many[1] < 0.2 < few[1]
    assert str(Share(3, 4)).startswith("75.0 % (")

"""The judge of the worlds sees every difference, and nothing but what was declared is excused."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from bench.worlds.judging import differences, undeclared
from bench.worlds.measures import Share

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
    assert undeclared(found, ["n", "orders/+/7"]) == []
    assert undeclared(found, ["n", "orders/+/7?status=Cancelled"]) == ["orders/+/7"]
    assert undeclared(found, ["n", "orders/+/8"]) == ["orders/+/7"]
    assert undeclared(found, ["n", "orders/7/**", "orders/-/7", "orders"]) == ["orders/+/7"]
    assert undeclared(found, ["**"]) == []


def test_an_interval_grows_narrow_with_the_number_of_runs():
    few, many = Share(0, 10).interval, Share(0, 3000).interval
    assert few[0] == many[0] == 0.0
    assert many[1] < 0.2 < few[1]
    assert str(Share(3, 4)).startswith("75.0 % (")

"""Limits in memory: where a tool's calls are counted is looked up once, and counts as ever."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_saga import BudgetLimit, MemoryLimitStore, RateLimit, by_arg, by_tool, combine
from agent_saga.controls.control import CallView
from agent_saga.controls.limits.control import MemoryLimits, wanted_of, wants
from agent_saga.controls.limits.limit import Limit
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import RefusedError

LIMITS: tuple[Limit, ...] = (
    BudgetLimit("all", "amount", 400, 100),
    BudgetLimit("customer", "amount", 150, 50, by_arg("customer")),
    RateLimit("velocity", 60, 10, combine(by_tool, by_arg("customer"))),
)
customers = st.sampled_from(["a", "7", 7, "b c", 7.0, True, None, ["a"]])
amounts = st.one_of(st.integers(0, 40), st.sampled_from([Decimal("0.5"), "3", -1, True, None]))
calls = st.lists(
    st.tuples(st.sampled_from([0, 0.01, 1, 30]), st.sampled_from("tu"), customers, amounts),
    max_size=120,
)


def view(tool, **arguments):
    return CallView(tool, ActionSemantics.COMPENSABLE, arguments, frozenset())


def judged(judge, call):
    """What comes of a call: what it was let through with, or why not."""
    try:
        judge(call)
    except RefusedError as refusal:
        return str(refusal)
    return [(entry, amount) for _, entry, amount in (call.held or {}).get("limits", ())]


@pytest.mark.guarantee("LIMIT-4")
@given(calls)
@settings(max_examples=150, deadline=None)
def test_a_call_is_counted_as_if_nothing_were_known(calls):
    now = 0.0
    known, plain = (MemoryLimitStore(monotonic=lambda: now) for _ in range(2))
    control = MemoryLimits(LIMITS, known)
    plans = {tool: control.planned(view(tool)) for tool in "tu"}

    def anew(call):
        taken, overs = plain.take(wants(wanted_of(LIMITS, call), call), call.approved)
        call.hold("limits", taken)
        if overs:
            raise RefusedError("over", rule=overs[0].limit.name, reason=overs[0].reason)

    for gap, tool, customer, amount in calls:
        now += gap
        made = {"amount": amount, "customer": customer}
        first = judged(plans[tool], view(tool, **made))
        second = judged(anew, view(tool, **made))
        assert isinstance(first, str) is isinstance(second, str)
        assert isinstance(first, str) or first == second
    assert known.usage() == plain.usage()


def test_a_count_that_was_dropped_serves_again():
    """Where a customer is counted is known still when the empty count was swept away."""
    now = 0.0
    store = MemoryLimitStore(monotonic=lambda: now)
    judge = MemoryLimits([RateLimit("calls", 2, 10, by_arg("customer"))], store).planned(view("t"))
    judge(view("t", customer="ada"))
    now = 100.0
    for number in range(1100):
        judge(view("t", customer=f"c{number}"))
    assert "customer=ada" not in {one.scope for one in store.usage()}
    judge(view("t", customer="ada"))
    judge(view("u", customer="ada"))
    with pytest.raises(RefusedError):
        judge(view("t", customer="ada"))
    assert {one.used for one in store.usage() if one.scope == "customer=ada"} == {2}


def test_a_count_that_came_in_the_place_of_a_dropped_one_is_the_only_one():
    now = 0.0
    store = MemoryLimitStore(monotonic=lambda: now)
    limit = RateLimit("calls", 2, 10, by_arg("customer"))
    places = store.places([(limit, "customer=ada", 1)])
    for number in range(1100):
        store.take([(limit, f"customer={number}", 1)], frozenset())
    store.take([(limit, "customer=ada", 1)], frozenset())
    assert store.take_at(places, 0, frozenset())[0]
    assert store.take_at(places, 0, frozenset())[1], "two of two were counted, in one place"


def test_what_is_known_is_bounded():
    """Whoever makes up customers fills no memory."""
    store = MemoryLimitStore()
    judge = MemoryLimits([RateLimit("calls", 2, 10, by_arg("customer"))], store).planned(view("t"))
    for number in range(5000):
        judge(view("t", customer=number))
    assert len(judge.args[0].places) <= 1024


def test_a_scope_of_the_user_is_asked_at_every_call():
    """Nobody knows by what it tells calls apart."""
    seen = []

    def scope(call):
        seen.append(call.arguments["amount"])
        return "odd" if call.arguments["amount"] % 2 else "even"

    store = MemoryLimitStore()
    limits = [BudgetLimit("spend", "amount", 100, 10, combine(by_tool, scope))]
    judge = MemoryLimits(limits, store).planned(view("t"))
    for amount in (1, 2, 3, 4):
        judge(view("t", amount=amount))
    assert seen == [1, 2, 3, 4]
    assert {one.scope: one.used for one in store.usage()} == {"tool=t, odd": 4, "tool=t, even": 6}

"""No argument hides another one from rules, limits and approvals."""

from __future__ import annotations

import inspect

import pytest

from agent_saga import BudgetLimit, SagaAborted
from agent_saga.engine.forms import Form


def positional(amount, /, **more):
    return amount, more


def by_default(amount=1_000_000, /, **more):
    return amount, more


def any_number(*amounts, **more):
    return amounts, more


@pytest.mark.guarantee("GATE-3")
@pytest.mark.parametrize(("function", "args"), [(positional, (1_000_000,)), (by_default, ())])
def test_a_name_among_the_others_hides_no_amount_from_a_limit(gated, world, function, args):
    limit = BudgetLimit("spend", arg="amount", max_total=100, window=86_400)
    kit = gated(limits=[limit])

    def pay(*args, **more):
        return world.wire(function(*args, **more)[0])

    pay.__signature__ = inspect.signature(function)
    tool = kit.safe_tool(pay, "COMPENSABLE", name="pay")
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        tool(*args, amount=1)
    assert caught.value.cause.rule == "spend"
    assert world.amounts == []


@pytest.mark.parametrize(
    ("function", "one", "other"),
    [
        (positional, ((1,), {"amount": 2}), ((9,), {"amount": 2})),
        (positional, ((1,), {"amount": 2}), ((1,), {"amount": 3})),
        (by_default, ((), {"amount": 2}), ((2,), {})),
        (any_number, ((1,), {"*": [2]}), ((2,), {"*": [2]})),
        (any_number, ((), {"*": [2]}), ((2,), {})),
        (any_number, ((), {"**": {"*": [2]}}), ((), {"*": [2]})),
    ],
)
def test_different_calls_are_recorded_differently(function, one, other):
    assert function(*one[0], **one[1]) != function(*other[0], **other[1])
    form = Form(function)
    assert form.named(*one) != form.named(*other)


def test_names_that_hide_nothing_are_recorded_as_they_stand():
    assert Form(positional).named((1,), {"to": "ada"}) == {"amount": 1, "to": "ada"}

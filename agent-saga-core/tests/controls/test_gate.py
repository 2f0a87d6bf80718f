"""The gate before every effect: every verdict is enforced, and what cannot be judged refuses."""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal

import pytest

from agent_saga import (
    ActionSemantics,
    Approval,
    ApprovalRequired,
    CallView,
    ConfigurationError,
    PreFlightGate,
    RefusedError,
    Rule,
    SagaAborted,
    arg_exceeds,
    semantics_is,
    tool_is,
)
from agent_saga.controls.control import Control, Evaluate, Wait
from agent_saga.controls.gate import IRREVERSIBLE_RULE, Gate


def view(tool="wire", semantics="COMPENSABLE", named=True, **arguments):
    return CallView(
        tool, ActionSemantics.parse(semantics), arguments, frozenset({"money"}), named=named
    )


class Yes:
    def __init__(self):
        self.asked = []

    def ask(self, request):
        self.asked.append(request)
        return Approval(True, "ann")


# --- rules ----------------------------------------------------------------------------------------


@pytest.mark.guarantee("REFUSE-1")
@pytest.mark.parametrize("semantics", ["REVERSIBLE", "COMPENSABLE", "IRREVERSIBLE"])
def test_a_refused_call_has_no_effect_and_its_caller_learns_why(gated, world, wal, semantics):
    kit = gated(Rule("no-wires", tool_is("wire"), reason="not today"), provider=Yes())
    tool = kit.safe_tool(world.wire, semantics, name="wire")
    with kit.transaction() as saga, pytest.raises(RefusedError) as caught:
        tool(5)
    assert world.amounts == []
    assert (caught.value.rule, caught.value.reason) == ("no-wires", "not today")
    assert saga.report.clean
    assert [r.event for r in wal.read_all() if r.step] == ["STEP_REFUSED"]


@pytest.mark.guarantee("REFUSE-1")
@pytest.mark.parametrize("answer", [None, 1, "yes", 0, "", ValueError("down"), StopIteration()])
def test_a_rule_that_cannot_be_evaluated_refuses(gated, world, answer):
    def predicate(view):
        if isinstance(answer, Exception):
            raise answer
        return answer

    kit = gated(Rule("broken", predicate))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction(), pytest.raises(RefusedError, match="could not be evaluated"):
        tool(5)
    assert world.amounts == []


def test_the_most_severe_verdict_wins_in_any_order(gated, world):
    rules = [
        Rule("allow", lambda view: True, "allow"),
        Rule("ask", lambda view: True, "ask"),
        Rule("refuse", lambda view: True, "refuse"),
    ]
    for order in (rules, rules[::-1]):
        kit = gated(*order, provider=Yes())
        tool = kit.safe_tool(world.wire, "COMPENSABLE")
        with kit.transaction(), pytest.raises(RefusedError) as caught:
            tool(5)
        assert caught.value.rule == "refuse"
    kit = gated(*rules[:2], provider=(yes := Yes()))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction():
        tool(5)
    assert len(yes.asked) == 1
    assert world.amounts == [5]


def test_a_rule_that_does_not_hold_lets_the_call_through(gated, world):
    kit = gated(Rule("big", arg_exceeds("amount", 1000)))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction():
        tool(1000)
    with kit.transaction(), pytest.raises(RefusedError):
        tool(1001)
    assert world.amounts == [1000]


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, True, None, "many", b"5", [5], object(), "NaN", "Infinity"]
)
def test_an_amount_that_is_none_refuses(gated, world, value):
    kit = gated(Rule("big", arg_exceeds("amount", 1000)))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction(), pytest.raises(RefusedError):
        tool(value)
    assert world.amounts == []


@pytest.mark.parametrize("value", [1001, 1000.5, "1001", " 1001 ", Decimal("1000.01"), 10**30])
def test_an_amount_in_any_form_is_counted(value):
    assert arg_exceeds("amount", 1000)(view(amount=value)) is True


@pytest.mark.parametrize("limit", [math.nan, math.inf, "many", None, True])
def test_a_limit_that_is_none_is_refused_when_it_is_written(limit):
    with pytest.raises(ConfigurationError):
        arg_exceeds("amount", limit)


@pytest.mark.guarantee("REFUSE-2")
def test_a_limit_sees_the_default_that_a_call_leaves_out(gated, world):
    def wire(to, amount=5000):
        return world.wire(amount)

    kit = gated(Rule("big", arg_exceeds("amount", 1000)))
    tool = kit.safe_tool(wire, "COMPENSABLE")
    with kit.transaction():
        for arguments in ({"to": "me"}, {"to": "me", "amount": 5000}):
            with pytest.raises(RefusedError):
                tool(**arguments)
        with pytest.raises(RefusedError):
            tool("me")
        tool("me", 10)
    assert world.amounts == [10]


@pytest.mark.guarantee("REFUSE-2")
def test_a_limit_is_not_passed_by_an_argument_without_a_name(gated, world):
    def wire(*args, **kwargs):
        return world.wire(*args, **kwargs)

    kit = gated(Rule("big", arg_exceeds("amount", 1000)))
    tool = kit.safe_tool(wire, "COMPENSABLE")
    with kit.transaction() as saga:
        with pytest.raises(RefusedError):
            tool(1_000_000)
        with pytest.raises(RefusedError):
            saga.execute(tool="w", forward=lambda: world.wire(10**6), semantics="COMPENSABLE")
        tool(amount=10)
        saga.execute(
            tool="w",
            forward=lambda: world.wire(20),
            semantics="COMPENSABLE",
            arguments={"amount": 20},
        )
    assert world.amounts == [10, 20]


def test_predicates():
    assert tool_is("wire")(view("wire"))
    assert not tool_is("wire")(view("wires"))
    assert tool_is("bank.*")(view("bank.wire"))
    assert not tool_is("bank.*")(view("bank"))
    assert semantics_is("COMPENSABLE")(view())
    assert not semantics_is("IRREVERSIBLE")(view())
    with pytest.raises(ConfigurationError):
        semantics_is("MAYBE")


def test_a_rule_cannot_change_the_arguments_by_name(gated):
    with pytest.raises(TypeError):
        view(amount=5).arguments["amount"] = 6


def _generator(view):
    yield True


@pytest.mark.parametrize(
    ("name", "when", "then", "timeout"),
    [
        ("bad", 5, "refuse", None),
        ("bad", _generator, "refuse", None),
        ("bad", tool_is("x"), "maybe", None),
        ("", tool_is("x"), "refuse", None),
        (None, tool_is("x"), "refuse", None),
        ("bad", tool_is("x"), "refuse", 0),
        ("bad", tool_is("x"), "refuse", math.nan),
    ],
)
def test_a_rule_that_cannot_work_is_refused_when_it_is_written(name, when, then, timeout):
    with pytest.raises(ConfigurationError):
        Rule(name, when, then, timeout=timeout)


@pytest.mark.parametrize("name", ["twice", IRREVERSIBLE_RULE])
def test_two_rules_of_one_name_are_refused(name):
    rules = [Rule(name, tool_is("a"), "ask"), Rule(name, tool_is("b"), "ask")]
    with pytest.raises(ConfigurationError, match=name):
        PreFlightGate(rules)


def test_a_gate_takes_rules_and_a_provider_that_can_ask():
    with pytest.raises(ConfigurationError):
        PreFlightGate([lambda view: True])
    with pytest.raises(ConfigurationError):
        PreFlightGate(approval_provider=object())


def test_a_gate_with_more_rules_keeps_its_provider_and_checks_the_names():
    yes = Yes()
    gate = PreFlightGate([Rule("a", tool_is("x"))], yes, 7.0)
    more = gate.with_rules([Rule("b", tool_is("y"))])
    assert gate.with_rules([]) is gate
    assert [rule.name for rule in more.rules] == ["a", "b"]
    assert more.approval_provider is yes
    assert more.approval_timeout == 7.0
    with pytest.raises(ConfigurationError):
        gate.with_rules([Rule("a", tool_is("y"))])


def test_a_gate_without_rules_asks_nothing_of_a_call():
    gate = PreFlightGate().composed()
    assert (gate.checks, gate.rechecks, gate.releases, gate.endings) == ((), (), (), ())
    assert len(PreFlightGate([Rule("a", tool_is("x"))]).composed().checks) == 1


# --- who is judged, and when ----------------------------------------------------------------------


@pytest.mark.guarantee("GATE-1")
def test_an_irreversible_call_without_anybody_to_ask_is_refused_naming_the_setting(gated, world):
    kit = gated()
    tool = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction(), pytest.raises(ApprovalRequired, match="approval_provider"):
        tool(5)
    assert world.amounts == []


def test_a_call_is_judged_again_before_a_further_attempt(gated, world):
    from agent_saga import NotApplied, RetryPolicy

    allowed = [True]

    def flaky(amount):
        allowed[0] = False
        world.amounts.append(amount)
        raise NotApplied("busy")

    kit = gated(Rule("closed", lambda view: not allowed[0]))
    tool = kit.safe_tool(flaky, "COMPENSABLE", retry=RetryPolicy(3, base_delay=0))
    with kit.transaction() as saga, pytest.raises(RefusedError):
        tool(5)
    assert world.amounts == [5]
    assert saga.report.clean


@pytest.mark.guarantee("GATE-2")
@pytest.mark.parametrize("is_async", [False, True])
def test_arguments_that_change_after_the_verdict_are_not_used(gated, world, is_async):
    kit = gated(Rule("big", lambda view: view.arguments["order"]["amount"] > 1000))
    order = {"amount": 5}

    def wire(order):
        return world.wire(order["amount"])

    def swap(args):
        order["amount"] = 1_000_000

    if is_async:

        async def wire_async(order):
            return wire(order)

        tool = kit.safe_tool(wire_async, "COMPENSABLE", prepare=swap)

        async def main():
            with pytest.raises(SagaAborted) as caught:
                async with kit.transaction():
                    await tool(order)
            return caught.value

        error = asyncio.run(main())
    else:
        tool = kit.safe_tool(wire, "COMPENSABLE", prepare=swap)
        with pytest.raises(SagaAborted) as caught, kit.transaction():
            tool(order)
        error = caught.value
    assert isinstance(error.cause, RefusedError)
    assert error.report.clean
    assert world.amounts == []


def test_an_argument_without_a_state_may_pass_rules(gated, world):
    kit = gated(Rule("big", lambda view: False))
    tool = kit.safe_tool(lambda connection: world.wire(1), "COMPENSABLE")
    with kit.transaction():
        tool(object())
    assert world.amounts == [1]


class Twice(Control):
    """Waits at each of its places."""

    name = "twice"

    def check(self, call):
        return Wait(Evaluate(bool, (), False, None, "nothing"), lambda answer, error: None)


def test_a_control_that_stands_in_two_places_waits_in_both():
    control = Twice()
    gate = Gate((control, control))
    call = CallView("wire", ActionSemantics.REVERSIBLE, {}, frozenset())
    places = []
    wait = gate.judge(call)
    while wait is not None:
        places.append(wait.at)
        wait = gate.judge(call, wait.at + 1)
    assert places == [0, 1]

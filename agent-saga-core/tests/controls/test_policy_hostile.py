"""Policy files that somebody misspelt: what a person reads in them holds, or they are refused."""

from __future__ import annotations

import copy
from decimal import Decimal

import pytest

from agent_saga import PreFlightGate
from agent_saga.controls.policy.policy import Policy
from agent_saga.errors import ConfigurationError

WHOLE = {
    "version": 1,
    "mode": "enforce",
    "undeclared": "allow",
    "tools": {
        "pay": {
            "semantics": "COMPENSABLE",
            "compensate": {"handler": "refund", "kwargs": {"id": "$.id"}},
            "policy_args": {"amount": "$.payment.amount"},
            "tags": ["money"],
        },
        "look": {"semantics": "READ_ONLY"},
    },
    "rules": [
        {"name": "a", "tool": ["pay", "look"], "arg": "amount", "exceeds": "10", "reason": "much"},
        {"name": "b", "tag": "money", "arg": "to", "matches": "a+", "one_of": ["x", 1]},
        {"name": "c", "tool": "*", "breaks_schema": {"type": "object"}},
    ],
    "limits": [
        {
            "name": "d",
            "window": "24h",
            "arg": "amount",
            "max_total": "10.5",
            "scope": ["by_tool", {"by_arg": "to"}],
            "tools": ["pay*"],
            "escalate_to_human": True,
        },
        {"name": "e", "window": 60, "max_calls": 5},
    ],
}
ODD = [
    *[None, True, -1, 10**30, float("nan"), float("inf"), "", " ", "\u200b", "*", "a*b", "$", "$."],
    *["(a+)+$", "[", [], [None], [[]], {}, {"by_arg": ""}, "1e999", "0s", "-5s", "\udc80", b"x"],
    *["x" * 5000, {"$ref": "#/a"}, {"pattern": "(a+)+"}, (), {1: 2}, object(), "tool:pay", "..*"],
]


def _places(value, place=()):
    yield place
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield from _places(inner, (*place, key))


def _with(place, value):
    made = copy.deepcopy(WHOLE)
    if not place:
        return value
    at = made
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return made


@pytest.mark.guarantee("POLICY-1")
@pytest.mark.parametrize("place", list(_places(WHOLE)), ids=str)
def test_whatever_stands_in_a_policy_is_taken_or_refused_by_an_error_of_ours(place):
    for odd in ODD:
        try:
            PreFlightGate(policy=Policy(_with(place, odd)))
        except ConfigurationError:
            continue
        except Exception as error:
            raise AssertionError(f"{place}: {odd!r:.40}") from error


@pytest.mark.parametrize(
    ("place", "odd"),
    [
        (("tools", "pay", "tags", 0), " "),
        (("tools", "pay", "tags", 0), "\u200b"),
        (("tools", "pay", "policy_args", "amount"), "$.payment..amount"),
        (("tools", "pay", "policy_args", "amount"), "$."),
        (("limits", 0, "tools", 0), "p*y"),
        (("limits", 0, "tools", 0), "tag:"),
        (("limits", 0, "tools", 0), "tag:mon*"),
        (("limits", 0, "tools", 0), "tool:pay"),
        (("rules", 0, "tool", 0), "tool:pay"),
        (("rules", 0, "tool", 0), "pay*"),
    ],
)
def test_what_would_hold_for_nothing_is_refused(place, odd):
    Policy(WHOLE)
    with pytest.raises(ConfigurationError):
        Policy(_with(place, odd))


LIMIT = "limits:\n- {name: a, arg: amount, "


@pytest.mark.parametrize(
    ("text", "most"),
    [("010", 10), ("10", 10), ("1e3", 1000), ("1.5e3", 1500), ("0.10", Decimal("0.1"))],
)
def test_a_number_in_yaml_is_what_a_person_reads(tmp_path, text, most):
    path = tmp_path / "policy.yaml"
    path.write_text(f"{LIMIT}max_total: {text}, window: 60}}\n")
    (limit,) = Policy.load(path).limits
    assert limit.most == most


@pytest.mark.parametrize(
    "fields",
    [
        "max_total: 190:20:30, window: 60",
        "max_total: 1_000, window: 60",
        "max_total: 0x10, window: 60",
        "max_total: .inf, window: 60",
        "max_total: 5, window: 1:30",
        "max_total: 5, window: 0o17",
        "max_total: trueish, window: 60",
    ],
)
def test_a_number_that_only_yaml_would_read_is_refused(tmp_path, fields):
    path = tmp_path / "policy.yaml"
    path.write_text(f"{LIMIT}{fields}}}\n")
    with pytest.raises(ConfigurationError):
        Policy.load(path)

"""Absurd values for every parameter of every control: taken, or refused by an error of ours."""

from __future__ import annotations

from decimal import Decimal

import pytest

import agent_saga as a
from agent_saga.controls import predicates as p
from agent_saga.controls.decisions import DecisionRule
from agent_saga.controls.limits.scopes import by_arg, by_tool, combine
from agent_saga.errors import AgentSagaError, ConfigurationError

ABSURD = [
    *[None, True, False, 0, -1, 1, 2**70, 1.5, float("nan"), float("inf"), -float("inf"), 1e-300],
    *[Decimal("NaN"), Decimal("1e999"), 3 + 4j, b"x", b"", object(), int, Exception],
    *["", " ", "x" * 5000, "a\x00b", "\ud800", "\u202e", "\u3164", "x", "false"],
    *[[], ["x"], [None], (), {}, {"a": 1}, set()],
]
TAG = p.tag_is("x")


def _made(log):
    store, switch = a.FileApprovalStore(log), a.KillSwitch(a.FileSwitchStore(log))
    kit = a.AgentKit("given", wal="memory:")
    ann = {"ann": b"\1" * 32}
    people = {"store": None, "notifier": None, "wal": None, "policy": None, "requester": ""}
    limit = {"name": "n", "window": 5, "scope": None, "tools": None, "escalate_to_human": False}
    decided = {"request": "r", "approver": "ann", "note": ""}
    offer = {"tool": "t", "approver": "ann", "seconds": 5, "uses": 1, "rule": "r"}
    halt = {"scope": "*", "reason": "r", "by": "b", "drain": False, "ttl": None}
    hook = {"secret": None, "kind": None, "timeout": 1, "attempts": 1, "headers": None}
    trips = {"failure_threshold": 5, "failure_rate": None, "min_volume": 1, "window": 1}
    trips |= {"cool_down": 1, "probes": 1, "success_threshold": 1, "ignore": ()}
    gate = {"rules": (), "approval_provider": None, "approval_timeout": None, "limits": ()}
    policy = {"timeout": 5, "levels": (), "valid_for": 5, "approvers": ()}
    return {
        "BudgetLimit": (a.BudgetLimit, {**limit, "arg": "x", "max_total": 5}),
        "RateLimit": (a.RateLimit, {**limit, "max_calls": 5}),
        "Rule": (a.Rule, {"name": "n", "when": TAG, "then": "ask", "reason": "", "timeout": None}),
        "PreFlightGate": (a.PreFlightGate, {**gate, "kill_switch": None, "policy": None}),
        "BreakerPolicy": (a.BreakerPolicy, trips),
        "CircuitBreaker": (a.CircuitBreaker, {"policy": None, "wal": None}),
        "KillSwitch": (a.KillSwitch, {"store": None, "grace": 3}),
        "ApprovalPolicy": (a.ApprovalPolicy, policy),
        "EscalationLevel": (a.EscalationLevel, {"targets": (), "after_seconds": 0}),
        "ApprovalGateway": (a.ApprovalGateway, people),
        "HardwareApprovalProvider": (
            a.HardwareApprovalProvider,
            {**people, "keys": ann, "required": 1},
        ),
        "WebhookNotifier": (a.WebhookNotifier, {**hook, "url": "https://x"}),
        "FileLimitStore": (a.FileLimitStore, {"path": str(log)}),
        "set_breaker": (a.set_breaker, {"breaker": None}),
        "set_limit_store": (a.set_limit_store, {"store": None}),
        "arg_exceeds": (p.arg_exceeds, {"arg": "x", "limit": 1}),
        "tool_is": (p.tool_is, {"name": "x"}),
        "tag_is": (p.tag_is, {"tag": "x"}),
        "semantics_is": (p.semantics_is, {"semantics": "COMPENSABLE"}),
        "arg_in": (p.arg_in, {"arg": "x", "values": [1]}),
        "arg_matches": (p.arg_matches, {"arg": "x", "pattern": "a"}),
        "not_": (p.not_, {"predicate": TAG}),
        "all_of": (lambda one: p.all_of(TAG, one), {"one": TAG}),
        "any_of": (lambda one: p.any_of(TAG, one), {"one": TAG}),
        "by_arg": (by_arg, {"arg": "x"}),
        "combine": (lambda one: combine(one, by_tool), {"one": by_tool}),
        "Policy": (a.Policy, {"content": {}}),
        "Policy.load": (a.Policy.load, {"path": "x.toml"}),
        "DecisionRule": (DecisionRule, {"name": "n", "decide": TAG, "timeout": 1}),
        "safe_tool": (lambda tags: kit.safe_tool(int, "REVERSIBLE", tags=tags), {"tags": ()}),
        "halt": (switch.halt, halt),
        "lift": (switch.lift, {"scope": "*", "by": "b"}),
        "quarantine": (switch.quarantine, {"saga": "s", "reason": "r", "by": "b"}),
        "release_saga": (switch.release_saga, {"saga": "s", "by": "b"}),
        "approve": (store.approve, {**decided, "break_glass": False}),
        "deny": (store.deny, decided),
        "sign": (store.sign, {**decided, "signature": "x"}),
        "review": (store.review, {"request": "r", "by": "ann", "note": ""}),
        "challenge": (store.challenge, {"request": "r"}),
        "revoke": (store.revoke, {"wanted": "r", "approver": "ann", "note": ""}),
        "grant": (store.grant, {**offer, "arg": "x", "up_to": 5, "note": ""}),
    }


@pytest.fixture(autouse=True)
def nothing_installed():
    yield
    a.set_breaker(None)
    a.set_limit_store(None)


@pytest.mark.parametrize("name", sorted(_made("x")))
def test_an_absurd_value_is_taken_or_refused_by_an_error_of_ours(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made, usual = _made(tmp_path / "log")[name]
    for parameter in usual:
        for value in ABSURD:
            try:
                made(**{**usual, parameter: value})
            except AgentSagaError:
                continue
            except Exception as error:
                raise AssertionError(f"{name}({parameter}={value!r:.40})") from error


@pytest.mark.parametrize(
    "given",
    [
        lambda: p.arg_in("region", "eu"),
        lambda: p.arg_in("region", []),
        lambda: p.arg_in("amount", [float("nan")]),
        p.all_of,
        p.any_of,
        lambda: p.any_of(None),
        lambda: p.not_(_asynchronous),
        lambda: p.arg_matches("to", b"x"),
        lambda: a.BudgetLimit("b", "amount", 5, 5, escalate_to_human="false"),
        lambda: a.BudgetLimit("\u3164", "amount", 5, 5),
        lambda: a.RateLimit("r", 5, 1e-9),
        lambda: a.RateLimit("r", 5, 60, tools=["pay*x"]),
        lambda: a.RateLimit("r", 5, 60, tools=["pay", "*.send"]),
        lambda: a.RateLimit("r", 5, 60, tools=["\u200b"]),
        lambda: a.RateLimit("r", 5, 60, tools=["tag:"]),
        lambda: a.RateLimit("r", 5, 60, tools=["tag:pay*"]),
        lambda: a.RateLimit("r", 5, 60, tools=["tool:pay"]),
        lambda: p.tool_is("pay*"),
        lambda: p.tool_is("*"),
        lambda: p.tool_is("*.send"),
        lambda: p.tool_is("tool:pay"),
        lambda: a.WebhookNotifier("https://x", secret=""),
        lambda: a.WebhookNotifier("https://x", headers={"X-Y": "a\nB: c"}),
        lambda: a.WebhookNotifier("https://x", headers={"X Y": "a"}),
        lambda: a.WebhookNotifier("https://bücher.example"),
        lambda: a.ApprovalPolicy(approvers=["ann", "\u2800"]),
    ],
)
def test_what_would_hold_for_nothing_is_refused_when_it_is_written(given):
    with pytest.raises(ConfigurationError):
        given()


async def _asynchronous(call):
    return True


def test_one_tag_is_no_list_of_letters():
    kit = a.AgentKit("tags", wal="memory:")
    assert kit.safe_tool(int, "REVERSIBLE", tags="payments").tool.tags == {"payments"}


@pytest.mark.parametrize("blank", ["", "  ", "\u200b", "\u2800\u3164"])
def test_a_reason_in_which_nothing_can_be_seen_is_none(tmp_path, blank):
    switch = a.KillSwitch(a.FileSwitchStore(tmp_path / "log"))
    with pytest.raises(ConfigurationError, match="reason="):
        switch.halt(reason=blank, by="ann")
    assert switch.switches().halts == ()

"""A line break hides nothing from a pattern, and no yes stands beside a no."""

from __future__ import annotations

import pytest

from agent_saga import Compensation, RefusedError, Rule
from agent_saga.controls.decisions import DecisionRule
from agent_saga.controls.patterns import Pattern
from agent_saga.controls.policy.policy import Policy
from agent_saga.controls.predicates import arg_matches, breaks_schema, not_


def nothing(result):
    return Compensation.none("nothing stands")


@pytest.fixture
def query(gated, world):
    def make(*rules, policy=None):
        def query(sql):
            world.mail(sql)

        kit = gated(*rules, policy=policy)
        tool = kit.safe_tool(query, "COMPENSABLE", nothing)

        def one(sql):
            with kit.transaction():
                tool(sql)

        return one

    return make


FORBIDDEN = r"(?i).*\b(drop|delete)\b.*"


@pytest.mark.guarantee("RULE-2")
@pytest.mark.parametrize(
    "sql", ["drop table x", "select 1;\ndrop table x", "drop\ntable x", "\ndrop table x\n"]
)
def test_a_line_break_hides_nothing_from_a_pattern(query, world, sql):
    once = query(Rule("sql", arg_matches("sql", FORBIDDEN)))
    with pytest.raises(Exception, match="sql") as refused:
        once(sql)
    assert isinstance(refused.value.__cause__ or refused.value, RefusedError)
    assert world.amounts == []
    once("select 1;\nselect 2")
    assert world.amounts == ["select 1;\nselect 2"]


@pytest.mark.guarantee("RULE-2")
def test_nor_lets_it_anything_through_that_has_to_match(query, world):
    once = query(Rule("path", not_(arg_matches("sql", "/srv/.*"))))
    with pytest.raises(Exception, match="path"):
        once("/srv/a\n/etc/passwd")
    once("/srv/a")
    assert world.amounts == ["/srv/a"]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"(?s).*drop.*", "a\ndrop", True),
        (r"(?s)a.*", "b\na", False),
        (r"(?-s:.*)drop(?-s:.*)", "a\ndrop", False),
        (r"[^x]*", "a\nb", True),
        (r"a\nb", "a\nb", True),
        (r"a", "a\n", False),
        (r"\S+", "a\nb", False),
    ],
)
def test_a_pattern_that_says_what_it_does_with_lines_is_taken_at_its_word(pattern, text, matches):
    assert Pattern(pattern).matches(text) is matches


@pytest.mark.guarantee("RULE-2")
@pytest.mark.parametrize("pattern", ["^acme-[0-9]+$", "acme-[0-9]$"])
def test_the_end_in_a_json_schema_is_the_end(query, world, pattern):
    schema = {"properties": {"sql": {"pattern": pattern}}}
    once = query(Rule("ours", breaks_schema(schema)))
    with pytest.raises(Exception, match="ours"):
        once("acme-1\n")
    once("acme-1")
    assert world.amounts == ["acme-1"]


def test_a_line_break_that_a_json_schema_takes_is_none_too_many(query, world):
    once = query(Rule("ours", breaks_schema({"properties": {"sql": {"pattern": "^[a-z\n]+"}}})))
    once("a\nb\n")
    assert world.amounts == ["a\nb\n"]


@pytest.mark.guarantee("RULE-2")
def test_the_same_holds_in_a_policy_file(query, world):
    rule = {"name": "sql", "arg": "sql", "matches": FORBIDDEN}
    once = query(policy=Policy({"rules": [rule]}))
    with pytest.raises(Exception, match="sql"):
        once("select 1;\ndrop table x")
    assert world.amounts == []


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        ({"allow": True, "deny": ["too much"]}, False),
        ({"result": {"allow": True, "deny": {"why": 1}}}, False),
        ({"decision": "allow", "forbid": True}, False),
        ({"allow": True, "deny": []}, True),
        ({"allow": True, "forbid": False}, True),
    ],
)
def test_a_yes_beside_a_no_is_no_clear_answer(query, world, answer, goes_on):
    once = query(DecisionRule("engine", lambda document: answer))
    if goes_on:
        once("x")
    else:
        with pytest.raises(Exception, match="no decision"):
            once("x")
    assert world.amounts == (["x"] if goes_on else [])

"""Patterns that could stall the gate are refused when given, or at a text that is too long."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_saga import ConfigurationError, Policy, RefusedError, Rule
from agent_saga.controls.control import CallView
from agent_saga.controls.patterns import SHORTEST, Pattern
from agent_saga.controls.predicates import arg_matches, breaks_schema
from agent_saga.domain.semantics import ActionSemantics

ENDLESS = [
    r"(a+)+",
    r"(a+)+$",
    r"(a|a)*b",
    r"(a|aa)+",
    r"(.*a){20}",
    r"(\w+\s?)*",
    r"(x+x+)+y",
    r".*.*.*.*.*=",
    r"(a*)*",
    r"(a?){64}a{64}",
    r"(?:a{0,100}){0,100}",
    r"(?i:(k|kK))+x",
    r"((a{1,9}){1,9}){1,9}",
    r"([a-zA-Z]+)*",
    r"(?:.*=(?=.*;))*.*.*.*",
    r"(.+)\1+.*.*.*x",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
]
ORDINARY = [
    (r"[A-Z]{2}\d{2}[A-Z0-9]{1,30}", "DE89370400440532013000", "de89"),
    (r"[\w.+-]+@corp\.com", "ann.b+c@corp.com", "ann@corp.org"),
    (r"\w+(\.\w+)*@example\.com", "a.b.c@example.com", "a..b@example.com"),
    (r"\w+(?:,\s*\w+)*", "a, b,c", "a,,b"),
    (r"(?i).*\b(drop|delete)\b.*", "please DROP it", "dropped"),
    (r"https?://[^/]+/.*", "https://a/b", "ftp://a/b"),
    (r"(?:\d{1,3}\.){3}\d{1,3}", "10.0.0.1", "10.0.1"),
    (r"(\d{3},)*\d{3}", "123,456", "123,45"),
    (r"(a++b?)++", "aabab", "b"),
    (r"(?>a+)+x", "aax", "aa"),
    (r"/srv/data/.*", "/srv/data/x", "/etc/passwd"),
    (r"é+|ß*", "éé", "e"),
    (r"a|b|", "", "c"),
]
KINDS = ["pattern", "patternProperties", "struct"]


def view(**arguments):
    return CallView("pay", ActionSemantics.COMPENSABLE, arguments, frozenset())


@pytest.mark.guarantee("RULE-1")
@pytest.mark.parametrize("pattern", ENDLESS)
def test_a_pattern_that_may_go_too_many_ways_is_refused(pattern):
    with pytest.raises(ConfigurationError, match="may take too long") as refused:
        arg_matches("to", pattern)
    assert "a++" in refused.value.fix
    rule = {"name": "r", "arg": "to", "matches": pattern}
    with pytest.raises(ConfigurationError, match=r"rules: 'r': The pattern"):
        Policy({"rules": [rule]})


@pytest.mark.parametrize(("pattern", "fits", "other"), ORDINARY)
def test_an_ordinary_pattern_is_matched(pattern, fits, other):
    test = arg_matches("to", pattern)
    assert test(view(to=fits))
    assert not test(view(to=other))


@pytest.mark.guarantee("RULE-1")
@pytest.mark.parametrize("pattern", [r".*password.*", r"[a-z]*[a-z]*x", r".+"])
def test_a_text_that_is_too_long_for_its_pattern_refuses_the_call(gated, world, pattern):
    kit = gated(Rule("secret", arg_matches("to", pattern)))
    mail = kit.safe_tool(world.mail, "REVERSIBLE")
    with kit.transaction(), pytest.raises(RefusedError, match="too long for its pattern"):
        mail("a" * 300_000)
    assert world.amounts == []


@pytest.mark.guarantee("RULE-1")
@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_cannot_stall_the_gate_either(kind):
    class Wire(msgspec.Struct):
        to: Annotated[str, msgspec.Meta(pattern="(a+)+$")]

    schemas = {
        "pattern": {"properties": {"to": {"type": "string", "pattern": "(a+)+$"}}},
        "patternProperties": {"allOf": [{"patternProperties": {"(a+)+$": {}}}]},
        "struct": Wire,
    }
    with pytest.raises(ConfigurationError, match="may take too long"):
        breaks_schema(schemas[kind])


@pytest.mark.guarantee("RULE-1")
@pytest.mark.parametrize("arguments", [{"to": "a" * 300_000}, {"a" * 300_000: 1}])
def test_a_text_that_is_too_long_for_a_schema_is_not_judged(arguments):
    test = breaks_schema({"properties": {"to": {"pattern": "^acme-[0-9]+$"}}})
    assert not test(view(to="acme-1"))
    assert test(view(to="other"))
    with pytest.raises(ValueError, match="too long for its pattern"):
        test(view(**arguments))


@pytest.mark.guarantee("RULE-1")
def test_arguments_that_take_too_many_ways_through_a_schema_are_not_judged():
    """Each level of the list doubles the ways, since both of them are tried before it fails."""
    either = {"type": "array", "items": {"$ref": "#/$defs/a"}}
    schema = {"$defs": {"a": {"anyOf": [either, either]}}, "properties": {"a": either}}
    nested = "no list"
    for _ in range(60):
        nested = [nested]
    with pytest.raises(ValueError, match="steps to be checked"):
        breaks_schema(schema)(view(a=nested))
    assert not breaks_schema(schema)(view(a=[[]]))


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([{"k": n} for n in range(20_000)], True),
        ([{"k": n} for n in range(20_000)] + [{"k": 5}], False),
        ([1, True, "1", None, 0, False], True),
        ([1, 1.0], False),
        ([[1, {"a": 2}], [1, {"a": 2.0}]], False),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
    ],
)
def test_whether_items_are_unique_is_seen_at_one_look(items, unique):
    test = breaks_schema({"properties": {"a": {"uniqueItems": True}}})
    assert test(view(a=items)) is not unique


def test_a_schema_without_a_pattern_takes_long_texts():
    assert not breaks_schema({"properties": {"to": {"type": "string"}}})(view(to="a" * 300_000))


PARTS = st.sampled_from(["a", "b", "[ab]", ".", "[^a]", r"\w", "ab", r"\d", "é", r"\W", "(?i:K)"])
REPEATS = st.sampled_from(["", "*", "+", "?", "{0,3}", "*?", "++", "{2}", "{1,40}"])


def composed(inner):
    return st.one_of(
        st.builds("(?:{}){}".format, inner, REPEATS),
        st.builds("(?:{}|{}){}".format, inner, inner, REPEATS),
        st.builds("{}{}".format, inner, inner),
        st.builds("(?>{}){}".format, inner, REPEATS),
        st.builds("(?={})".format, inner),
    )


@settings(deadline=None, max_examples=150)
@given(st.recursive(st.builds("{}{}".format, PARTS, REPEATS), composed, max_leaves=5))
def test_what_is_accepted_comes_to_an_end(pattern):
    """Each text makes repeats go all their ways; one without an end takes its test's time."""
    try:
        accepted = Pattern(pattern)
    except ConfigurationError:
        return
    for part in ("a", "ab", "aab", "b", " ", "é"):
        for length in (SHORTEST, accepted.bound.longest):
            accepted.matches((part * length)[: length - 1] + "!")

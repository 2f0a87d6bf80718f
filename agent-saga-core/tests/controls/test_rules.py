"""Predicates of rules, schemas, and asking a policy engine: what cannot tell, refuses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal

import msgspec
import pydantic
import pytest

from agent_saga import (
    ActionSemantics,
    Approval,
    ApprovalRequired,
    CallView,
    Compensation,
    ConfigurationError,
    DecisionRule,
    DuplicateName,
    PreFlightGate,
    RefusedError,
    Rule,
    all_of,
    any_of,
    arg_exceeds,
    arg_in,
    arg_matches,
    breaks_schema,
    compensator,
    hookimpl,
    not_,
    tag_is,
    tool_is,
)
from agent_saga.plugins.manager import PluginManager


def view(tool="wire", named=True, tags=("money",), **arguments):
    return CallView(tool, ActionSemantics.COMPENSABLE, arguments, frozenset(tags), named=named)


def test_predicates_on_tags_and_arguments():
    assert tag_is("money")(view())
    assert not tag_is("mon")(view())
    assert arg_in("region", ["eu", 5])(view(region="eu"))
    assert arg_in("region", ["eu", 5])(view(region=5.0))
    assert not arg_in("region", ["eu", 5])(view(region="5"))
    assert not arg_in("region", [1])(view(region=True))
    assert not arg_in("region", [True])(view(region=1))
    assert not arg_in("region", ["eu"])(view())
    assert arg_matches("to", r"acme-\d+")(view(to="acme-12"))
    assert not arg_matches("to", r"acme-\d+")(view(to="acme-12 and more"))
    assert not arg_matches("to", r"acme")(view())


@pytest.mark.guarantee("REFUSE-1")
@pytest.mark.parametrize(
    "predicate",
    [
        arg_in("to", ["acme"]),
        arg_matches("to", "acme"),
        arg_exceeds("to", 5),
        all_of(tool_is("wire"), lambda view: None),
        any_of(tool_is("other"), lambda view: 0),
        not_(lambda view: None),
    ],
)
def test_a_predicate_that_cannot_tell_refuses(gated, world, predicate):
    kit = gated(Rule("r", predicate))
    with kit.transaction() as saga, pytest.raises(RefusedError, match="could not be evaluated"):
        saga.execute(tool="wire", forward=lambda: world.wire(1), semantics="COMPENSABLE")
    assert world.amounts == []


def test_a_pattern_over_no_text_and_no_pattern_at_all():
    with pytest.raises(TypeError):
        arg_matches("to", "a")(view(to=5))
    for wrong in ("(", None):
        with pytest.raises(ConfigurationError):
            arg_matches("to", wrong)


@pytest.mark.parametrize(
    ("value", "over"),
    [(1000, False), (1000.01, True), ("1000.0000001", True), (Decimal(1001), True), (-5, False)],
)
def test_a_limit_on_an_argument_is_exact(value, over):
    assert arg_exceeds("amount", 1000)(view(amount=value)) is over


# --- schemas --------------------------------------------------------------------------------------


class Struct(msgspec.Struct, forbid_unknown_fields=True):
    amount: int
    to: str = "acme"


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    amount: int
    to: str = "acme"


@dataclass
class Data:
    amount: int
    to: str = "acme"


JSON = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}},
    "required": ["amount"],
    "additionalProperties": False,
}
SCHEMAS = [Struct, Model, JSON]


@pytest.mark.parametrize("schema", [*SCHEMAS, Data], ids=lambda s: getattr(s, "__name__", "json"))
def test_a_schema_says_what_arguments_must_be(gated, world, schema):
    kit = gated(Rule("form", breaks_schema(schema), reason="the arguments do not fit"))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction() as saga:
        tool(5)
        for wrong in ({"amount": "five"}, {"amount": 5, "to": 7}, {"amount": None}):
            with pytest.raises(RefusedError, match="do not fit"):
                tool(**wrong)
        with pytest.raises(RefusedError):
            saga.execute(tool="w", forward=lambda: world.wire(1), semantics="COMPENSABLE")
    assert world.amounts == [5]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: getattr(s, "__name__", "json"))
def test_what_a_schema_does_not_know_breaks_it_where_it_says_so(schema):
    assert breaks_schema(schema)(view(amount=5, more=1))
    assert breaks_schema(schema)(view(to="acme"))
    assert not breaks_schema(schema)(view(amount=5))


@pytest.mark.parametrize("wrong", [5, "text", object(), {"type": "nonsense"}, None])
def test_what_is_no_schema_is_refused_when_it_is_written(wrong):
    if wrong is None:
        return  # None is a type that msgspec checks: nothing fits it
    with pytest.raises(ConfigurationError):
        breaks_schema(wrong)


def test_a_schema_fetches_nothing(gated, world):
    kit = gated(Rule("remote", breaks_schema({"$ref": "http://127.0.0.1:9/schema.json"})))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction(), pytest.raises(RefusedError, match="could not be evaluated"):
        tool(5)
    assert world.amounts == []


@pytest.mark.parametrize(
    ("hidden", "code", "said"),
    [
        ("jsonschema", "breaks_schema({'type': 'object'})", "agent-saga-core[schema]"),
        ("yaml", "Policy.load('p.yaml')", "agent-saga-core[yaml]"),
    ],
)
def test_an_extra_that_is_missing_is_named(tmp_path, hidden, code, said):
    (tmp_path / "p.yaml").write_text("rules: []\n")
    program = (
        f"import sys; sys.modules[{hidden!r}] = None\n"
        f"from agent_saga import ConfigurationError, Policy, breaks_schema\n"
        f"try:\n    {code}\nexcept ConfigurationError as error:\n    sys.stdout.write(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said in done.stdout


# --- policy engines -------------------------------------------------------------------------------


class Yes:
    def ask(self, request):
        return Approval(True, "ann")


def decided(gated, world, decide, provider=None):
    """Whether the call ran under an engine's answer."""
    kit = gated(DecisionRule("engine", decide, timeout=5), provider=provider)
    tool = kit.safe_tool(world.wire, "COMPENSABLE", name="wire", tags=["money"])

    async def main():
        async with kit.transaction():
            try:
                await tool(5)
            except RefusedError as refusal:
                return refusal
        return None

    return asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [True, "allow", "Permit", {"result": True}, {"allow": True}, {"decision": {"allow": True}}],
)
def test_an_engine_that_says_yes_lets_a_call_go_on(gated, world, answer):
    assert decided(gated, world, lambda document: answer) is None
    assert world.amounts == [5]


@pytest.mark.guarantee("REFUSE-1")
@pytest.mark.parametrize(
    "answer",
    [
        False,
        "deny",
        "Deny",
        "forbid",
        {"result": False},
        {"result": {"allow": False, "reason": "not today"}},
        None,
        {},
        {"result": None},
        {"result": {}},
        [],
        "maybe",
        "",
        1,
        {"allow": "true"},
        {"allow": True, "decision": "deny"},
        ConnectionError("refused"),
        TimeoutError("slow"),
    ],
    ids=repr,
)
def test_an_engine_that_does_not_say_yes_refuses(gated, world, answer):
    def decide(document):
        if isinstance(answer, Exception):
            raise answer
        return answer

    refusal = decided(gated, world, decide)
    assert refusal.rule == "engine"
    assert world.amounts == []
    if isinstance(answer, dict) and isinstance(answer.get("result"), dict) and answer["result"]:
        assert refusal.reason == "not today"


def test_an_engine_may_have_a_human_asked_and_may_be_asynchronous(gated, world):
    async def decide(document):
        await asyncio.sleep(0)
        return {"decision": "ask", "reason": "it is a lot"}

    assert decided(gated, world, decide, Yes()) is None
    assert isinstance(decided(gated, world, decide), ApprovalRequired)
    assert world.amounts == [5]


def test_an_engine_is_told_of_the_call_without_secrets(gated, world):
    seen = []

    def decide(document):
        seen.append(document)
        return True

    kit = gated(DecisionRule("engine", decide))
    tool = kit.safe_tool(
        lambda amount, token: world.wire(amount), "COMPENSABLE", name="pay", tags=["money"]
    )
    with kit.transaction() as saga:
        tool(5, "sk_live_" + "a1b2c3d4e5f6g7h8")
        assert seen[0]["saga"] == saga.id
    assert (seen[0]["tool"], seen[0]["semantics"], seen[0]["tags"]) == (
        "pay",
        "COMPENSABLE",
        ["money"],
    )
    assert seen[0]["arguments"]["amount"] == 5
    assert "a1b2c3d4" not in str(seen[0])


def test_a_plugin_s_engine_holds_for_every_gate(gated, world, monkeypatch):
    class Plugin:
        @staticmethod
        @hookimpl
        def saga_gate_rules(settings):
            return [DecisionRule("company", lambda document: document["arguments"]["amount"] < 10)]

    manager = PluginManager(environ={"AGENT_SAGA_DISABLE_PLUGINS": "*"})
    manager.register(Plugin(), "company-policy")
    monkeypatch.setattr("agent_saga.runtime.composition.process_plugins", lambda: manager)
    kit = gated(Rule("allow", lambda view: True, "allow"))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction():
        tool(9)
        with pytest.raises(RefusedError) as caught:
            tool(10)
    assert caught.value.rule == "company"
    assert world.amounts == [9]


# --- an inverse that nothing can undo -------------------------------------------------------------


@pytest.mark.guarantee("GATE-1")
@pytest.mark.parametrize("short", [False, True])
def test_a_call_whose_inverse_is_irreversible_needs_a_human(gated, world, short):
    letters = []
    kits = {"nobody": gated(), "ann": gated(provider=Yes())}
    for who, kit in kits.items():
        if short:
            tool = kit.safe_tool(world.wire, "COMPENSABLE", name=f"wire-{who}")

            @tool.undo(irreversible=True)
            def apologise(result):
                letters.append(result["amount"])
        else:

            @compensator(f"letters.{who}", irreversible=True)
            def letter(amount):
                letters.append(amount)

            tool = kit.safe_tool(world.wire, compensate=letter.using(amount="$.amount"))
        if who == "nobody":
            with kit.transaction(), pytest.raises(ApprovalRequired, match="approval"):
                tool(5)
            assert world.amounts == []
        else:
            with pytest.raises(Exception, match="undone"), kit.transaction():
                tool(6)
                raise ValueError
    assert (world.amounts, letters) == ([6], [6])


def test_two_registrations_that_promise_different_things_are_two():
    def undo():
        pass

    compensator("one.name")(undo)
    with pytest.raises(DuplicateName):
        compensator("one.name", irreversible=True)(undo)


def test_an_inverse_without_effect_asks_nobody(gated, world):
    kit = gated()
    tool = kit.safe_tool(world.wire, compensate=lambda r: Compensation.none("nothing to undo"))
    with kit.transaction():
        tool(5)
    assert world.amounts == [5]


# --- what is laid out once for each tool ----------------------------------------------------------


def test_a_rule_that_cannot_hold_for_a_tool_is_not_asked_at_its_calls():
    asked = []

    def seen(call):
        asked.append(call.tool)
        return True

    gate = PreFlightGate([Rule("wires", all_of(tool_is("wire.*"), seen))]).composed()
    for _ in range(2):
        gate.judge(view(tool="look"))
        with pytest.raises(RefusedError):
            gate.judge(view(tool="wire.send"))
    assert asked == ["wire.send"] * 2


@pytest.mark.parametrize("rule", [tag_is("money"), all_of(tag_is("money"), tool_is("wire"))])
def test_what_is_laid_out_for_a_tool_goes_by_its_tags_too(rule):
    gate = PreFlightGate([Rule("no money", rule)]).composed()
    for _ in range(2):
        gate.judge(view(tags=()))
        with pytest.raises(RefusedError):
            gate.judge(view(tags=("money",)))


@pytest.mark.parametrize("rule", [not_(tool_is("wire")), any_of(tool_is("wire"), tag_is("money"))])
def test_rules_of_other_forms_are_asked_at_every_call(rule):
    gate = PreFlightGate([Rule("held", rule)]).composed()
    for tool, refused in (("look", True), ("wire", rule(view(tool="wire")))):
        for _ in range(2):
            if refused:
                with pytest.raises(RefusedError):
                    gate.judge(view(tool=tool))
            else:
                gate.judge(view(tool=tool))


def test_who_makes_up_names_of_tools_fills_no_memory():
    gate = PreFlightGate([Rule("wires", tool_is("wire"))]).composed()
    for number in range(10_000):
        gate.judge(view(tool=f"made up {number}"))
    assert len(gate._plans) < 5_000
    with pytest.raises(RefusedError):
        gate.judge(view(tool="wire"))

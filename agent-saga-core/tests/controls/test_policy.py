"""The policy file: what a security team writes holds, or is refused with the place named."""

from __future__ import annotations

import json
import os

import pytest

from agent_saga import (
    AgentKit,
    Approval,
    ApprovalRequired,
    ConfigurationError,
    LimitExceeded,
    MemoryWAL,
    Policy,
    PreFlightGate,
    RefusedError,
    Rule,
    UndeclaredSemantics,
    compensator,
    tool,
)
from agent_saga.controls import gate as gate_module

SURFACE = {
    "mode": "enforce",
    "tools": {
        "stripe__create_charge": {
            "semantics": "COMPENSABLE",
            "compensate": {"tool": "stripe__create_refund", "args": {"charge": "$.id"}},
            "policy_args": {"amount": "$.amount"},
        },
        "search_docs": {"semantics": "REVERSIBLE"},
    },
}

TOML = """
version = 1
undeclared = "refuse"

[tools.pay]
semantics = "COMPENSABLE"
compensate = { handler = "acme.give_back", kwargs = { amount = "$args.cents" } }
policy_args = { amount = "$args.cents" }
tags = ["money"]

[tools.look]
semantics = "READ_ONLY"

[tools.wire]
semantics = "IRREVERSIBLE"

[[rules]]
name = "big"
tag = "money"
arg = "amount"
exceeds = "1000.50"
then = "ask"
reason = "it is a lot"

[[rules]]
name = "regions"
tool = ["pay", "wire"]
arg = "region"
not_one_of = ["eu", "uk"]
reason = "not there"

[[limits]]
name = "daily"
arg = "amount"
max_total = "5000"
window = "24h"
scope = ["by_tool", { by_arg = "region" }]
tools = ["pay"]

[[limits]]
name = "often"
max_calls = 3
window = 60
"""

YAML = """
tools:
  pay: {semantics: COMPENSABLE}
rules:
  - {name: no, tool: pay, reason: "not today"}
"""


class Yes:
    def ask(self, request):
        return Approval(True, "ann")


@pytest.fixture
def write(tmp_path):
    def put(text, name="policy.toml"):
        path = tmp_path / name
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    return put


def kit_with(policy, provider=None):
    return AgentKit("k", wal=MemoryWAL(), gate=PreFlightGate((), provider, policy=policy))


def test_a_policy_in_toml_declares_tools_rules_and_limits(write, world):
    given = []

    @compensator("acme.give_back")
    def give_back(amount):
        given.append(amount)

    kit = kit_with(write(TOML), Yes())
    pay = kit.safe_tool(lambda cents, region="eu": world.wire(cents), name="pay")
    look = kit.safe_tool(lambda: world.wire("look"), name="look")
    other = kit.safe_tool(lambda: world.wire("other"), "REVERSIBLE", name="other")
    assert pay.tool.semantics.value == "COMPENSABLE"
    with pytest.raises(Exception, match="undone"), kit.transaction():
        pay(1000)
        with pytest.raises(RefusedError, match="not there"):
            pay(10, "us")
        with pytest.raises(RefusedError, match="does not name this tool"):
            other()
        look()
        with pytest.raises(LimitExceeded, match="daily"):
            pay(4001)
        pay(4000, "uk")
        with pytest.raises(LimitExceeded, match="often"):
            look()
        raise ValueError
    assert world.amounts == [1000, "look", 4000]
    assert given == [4000, 1000]


def test_an_argument_is_read_from_where_the_policy_says_or_not_at_all(write, world):
    content = {
        "tools": {
            "pay": {"semantics": "COMPENSABLE", "policy_args": {"amount": "$args.order.total"}}
        },
        "limits": [{"name": "l", "arg": "amount", "max_total": 100, "window": 60}],
    }
    kit = kit_with(Policy(content))
    pay = kit.safe_tool(lambda order=None, amount=0: world.wire(order), name="pay")
    with kit.transaction():
        pay({"total": 60}, amount=1)
        for order in ({"total": 41}, {"total": "60"}):
            with pytest.raises(LimitExceeded):
                pay(order, amount=1)
        for order in (None, {}, {"total": None}, {"TOTAL": 5}, "text", [1]):
            with pytest.raises(RefusedError, match="amount"):
                pay(order, amount=1)
    assert world.amounts == [{"total": 60}]


def test_the_form_of_the_mcp_proxy_is_a_policy(write, world):
    @compensator("stripe__create_refund")
    def refund(charge):
        world.wire(f"refund {charge}")

    policy = Policy.load(write(SURFACE, "saga-policy.json"))
    assert policy.tools["stripe__create_charge"].policy_args == {"amount": "$.amount"}
    kit = kit_with(policy)
    charge = kit.safe_tool(lambda amount: {"id": "ch_1"}, name="stripe__create_charge")
    search = kit.safe_tool(lambda q: [], name="search_docs")
    assert search.tool.reversible
    with pytest.raises(Exception, match="undone"), kit.transaction():
        charge(5)
        raise ValueError
    assert world.amounts == ["refund ch_1"]


def test_a_policy_in_yaml(write, world):
    kit = kit_with(write(YAML, "policy.yaml"))
    pay = kit.safe_tool(world.wire, name="pay")
    with kit.transaction(), pytest.raises(RefusedError, match="not today"):
        pay(5)


def test_a_tool_that_policy_and_code_declare_differently_is_refused(world):
    policy = Policy({"tools": {"pay": {"semantics": "IRREVERSIBLE"}}})
    kit = kit_with(policy, Yes())
    with pytest.raises(ConfigurationError, match="policy as IRREVERSIBLE"):
        kit.safe_tool(world.wire, "REVERSIBLE", name="pay")
    assert kit.safe_tool(world.wire, name="pay").tool.irreversible
    with pytest.raises(UndeclaredSemantics):
        kit.safe_tool(world.wire, name="other")
    bare = tool("REVERSIBLE", name="pay")(world.wire)
    with kit.transaction() as saga:
        with pytest.raises(RefusedError, match="different semantics"):
            bare(5)
        with pytest.raises(RefusedError, match="different semantics"):
            saga.execute(tool="pay", forward=lambda: world.wire(1), semantics="COMPENSABLE")
    assert world.amounts == []


def test_an_inverse_that_is_itself_irreversible_needs_a_human(world):
    @compensator("send_letter")
    def send_letter(to):
        world.wire(f"letter {to}")

    content = {
        "tools": {
            "book": {
                "semantics": "COMPENSABLE",
                "compensate": {"tool": "send_letter", "args": {"to": "$args.to"}},
            },
            "send_letter": {"semantics": "IRREVERSIBLE"},
        }
    }
    kit = kit_with(Policy(content))
    book = kit.safe_tool(lambda to: world.wire(to), name="book")  # noqa: PLW0108
    with kit.transaction(), pytest.raises(ApprovalRequired, match="human"):
        book("acme")
    kit = kit_with(Policy(content), Yes())
    book = kit.safe_tool(lambda to: world.wire(to), name="book")  # noqa: PLW0108
    with kit.transaction():
        book("acme")
    assert world.amounts == ["acme"]


@pytest.mark.guarantee("POLICY-1")
def test_loading_again_replaces_everything_or_nothing(write, world):
    path = write('[[rules]]\nname = "no"\ntool = "pay"\n')
    policy = Policy.load(path)
    kit = kit_with(policy)
    pay = kit.safe_tool(world.wire, "COMPENSABLE", name="pay")
    with kit.transaction(), pytest.raises(RefusedError):
        pay(1)
    write('[[rules]]\nname = "no"\ntool = "other"\n')
    with kit.transaction(), pytest.raises(RefusedError):
        pay(2)  # not before it is asked for
    policy.reload()
    with kit.transaction():
        pay(3)
    write('[[rules]]\nname = "no"\ntol = "pay"\n')
    with pytest.raises(ConfigurationError, match="tol"):
        policy.reload()
    path.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        policy.reload()
    assert [rule.name for rule in policy.rules] == ["no"]
    with kit.transaction():
        pay(4)
    assert world.amounts == [3, 4]


@pytest.mark.guarantee("POLICY-1")
def test_a_gate_is_of_one_policy_also_when_it_is_loaded_again_meanwhile(write, monkeypatch):
    def text(word):
        return (
            f'[[rules]]\nname = "rule-{word}"\ntool = "x"\n'
            f'[[limits]]\nname = "limit-{word}"\nmax_calls = 1\nwindow = 5\n'
            f'[tools.{word}]\nsemantics = "COMPENSABLE"\n'
        )

    policy = Policy.load(write(text("old")))
    gate = PreFlightGate(policy=policy)
    made = gate_module.limits_control

    def loads_again(limits, store):
        write(text("new"))
        policy.reload()
        return made(limits, store)

    monkeypatch.setattr(gate_module, "limits_control", loads_again)
    composed = gate.composed()
    assert set(composed.declared) == {"old"}
    assert [limit.name for limit in composed.controls[0].limits] == ["limit-old"]
    assert set(gate.composed().declared) == {"new"}


def test_what_is_left_of_a_file_that_is_being_written_is_no_policy(write, world):
    path = write('[[rules]]\nname = "no"\ntool = "pay"\n')
    policy = Policy.load(path)
    for half in ("", " \n", "\n\n"):
        write(half)
        with pytest.raises(ConfigurationError, match="is empty"):
            policy.reload()
    kit = kit_with(policy)
    pay = kit.safe_tool(world.wire, "COMPENSABLE", name="pay")
    with kit.transaction(), pytest.raises(RefusedError):
        pay(1)
    assert world.amounts == []


def test_a_file_that_changes_while_it_is_read_is_no_policy(write, monkeypatch):
    path = write("version = 1\n")
    fstat = os.fstat

    def changes(descriptor):
        found = fstat(descriptor)
        if found.st_ino == path.stat().st_ino:
            path.write_text("version = 1  # more\n")
        return found

    monkeypatch.setattr("agent_saga.controls.policy.reading.os.fstat", changes)
    with pytest.raises(ConfigurationError, match="while it was read"):
        Policy.load(path)


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")  # reading it would wait for ever
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "huge.json").write_bytes(b"")
    os.truncate(tmp_path / "huge.json", 1 << 40)
    for name in ("pipe.toml", "folder.toml", "huge.json", "a\x00b.toml"):
        with pytest.raises(ConfigurationError):
            Policy.load(tmp_path / name)


DEEP = "[" * 100_000
WRONG = [
    (DEEP, "policy.json", "cannot be read"),
    ('{"rules": ' + "[" * 900 + "]" * 900 + "}", "policy.json", "has an error"),
    ('{"limits": [{"name": "l", "window": NaN}]}', "policy.json", "no number"),
    ('[[rules]]\nname = "r"\narg = "a"\none_of = [nan]\n', "policy.toml", "list of values"),
    ('[[rules]]\nname = "r"\narg = "a"\nequals = nan\n', "policy.toml", "list of values"),
    ('[[rules]]\nname = "r"\narg = "a"\none_of = []\n', "policy.toml", "list of values"),
    ('[[rules]]\nname = "r"\narg = "a"\nexceeds = inf\n', "policy.toml", "no finite number"),
    ('[[limits]]\nname = "l"\nwindow = inf\nmax_calls = 1\n', "policy.toml", "seconds"),
    ('[[rules]]\nname = "\u3164"\ntool = "x"\n', "policy.toml", "no visible character"),
    ("a = ", "policy.toml", "cannot be read"),
    ("[[rules]]\n", "policy.toml", r"rules"),
    ('[[rules]]\nname = "r"\n', "policy.toml", "no condition"),
    ('[[rules]]\nname = "r"\ntol = "x"\n', "policy.toml", "tol"),
    ('[[rules]]\nname = "r"\ntool = "a*b"\n', "policy.toml", "no tool"),
    ('[[rules]]\nname = "r"\ntool = []\n', "policy.toml", "never holds"),
    ('[[rules]]\nname = "r"\ntool = "x"\nthen = "maybe"\n', "policy.toml", "then"),
    ('[[rules]]\nname = "r"\nexceeds = 5\n', "policy.toml", "names none"),
    ('[[rules]]\nname = "r"\narg = "a"\n', "policy.toml", "no condition on it"),
    ('[[rules]]\nname = "r"\narg = "a"\nexceeds = "x"\n', "policy.toml", "no finite number"),
    ('[[rules]]\nname = "r"\narg = "a"\nmatches = "("\n', "policy.toml", "regular expression"),
    ('[[rules]]\nname = "r"\nsemantics = "MAYBE"\n', "policy.toml", "MAYBE"),
    ('[[rules]]\nname = "r"\ntool = "x"\n' * 2, "policy.toml", "two rules"),
    ('[[limits]]\nname = "l"\nwindow = 5\n', "policy.toml", "neither a budget nor a rate"),
    ('[[limits]]\nname = "l"\nwindow = "5 weeks"\nmax_calls = 1\n', "policy.toml", "no time"),
    ('[[limits]]\nname = "l"\nwindow = 5\nmax_calls = 1.5\n', "policy.toml", "int"),
    (
        '[[limits]]\nname = "l"\nwindow = 5\nmax_calls = 1\nscope = "tool"\n',
        "policy.toml",
        "scope",
    ),
    ('[[limits]]\nname="l"\nwindow=5\narg="a"\nmax_total=nan\n', "policy.toml", "no amount"),
    ('[tools.x]\nsemantics = "SOME"\n', "policy.toml", "tools: 'x'"),
    ("[tools.x]\n", "policy.toml", "semantics"),
    (
        '[tools.x]\nsemantics = "COMPENSABLE"\ncompensate = {}\n',
        "policy.toml",
        "neither a handler",
    ),
    (
        (
            '[tools.x]\nsemantics = "COMPENSABLE"\n'
            'compensate = { handler = "h", kwargs = { a = "$x" } }\n'
        ),
        "policy.toml",
        "starts with none",
    ),
    (
        '[tools.x]\nsemantics = "COMPENSABLE"\npolicy_args = { a = "$prepared.a" }\n',
        "policy.toml",
        "no path",
    ),
    (
        '[tools.x]\nsemantics = "COMPENSABLE"\npolicy_args = { a = "amount" }\n',
        "policy.toml",
        "no path",
    ),
    (
        '[tools.x]\nsemantics = "IRREVERSIBLE"\ncompensate = { handler = "h" }\n',
        "policy.toml",
        "cannot be both",
    ),
    ("version = 2\n", "policy.toml", "version 2"),
    ('mode = "watch"\n', "policy.toml", "mode"),
    ('{"mode": "enforce", "mode": "observe"}', "policy.json", "stands twice"),
    ('{"limits": [{"name": "l", "window": NaN, "max_calls": 1}]}', "policy.json", "no number"),
    (r'{"tools": {"x": {"tags": "\ud800"}}}', "policy.json", "half a character"),
    ("[1, 2]", "policy.json", "has an error"),
    ("{", "policy.json", "cannot be read"),
    ("tools: {}\ntools: {}\n", "policy.yaml", "stands twice"),
    ("a: &a [1]\nb: *a\n", "policy.yaml", "aliases"),
    ("- !!python/object:os.system x\n", "policy.yaml", "cannot be read"),
    ("version: 1", "policy.ini", "no known kind"),
]


@pytest.mark.guarantee("POLICY-1")
@pytest.mark.parametrize(("text", "name", "said"), WRONG, ids=range(len(WRONG)))
def test_an_error_in_a_policy_names_its_place(write, text, name, said):
    path = write(text, name)
    with pytest.raises(ConfigurationError, match=said) as caught:
        Policy.load(path)
    assert path.name in str(caught.value) or "policy" in str(caught.value)


def test_what_is_no_text_and_what_is_not_there(tmp_path):
    path = tmp_path / "policy.json"
    path.write_bytes(b'{"mode": "\xff"}')
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        Policy.load(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Policy.load(tmp_path / "no.json")
    with pytest.raises(ConfigurationError, match="came from no file"):
        Policy({}).reload()


def test_a_gate_takes_only_a_policy_that_enforces(write):
    with pytest.raises(ConfigurationError, match="observes"):
        PreFlightGate(policy=Policy({"mode": "observe"}))
    with pytest.raises(ConfigurationError, match="policy="):
        PreFlightGate(policy=5)
    with pytest.raises(ConfigurationError, match="named 'r'"):
        PreFlightGate(
            [Rule("r", lambda view: False)], policy=Policy({"rules": [{"name": "r", "tool": "*"}]})
        )


def test_a_rule_by_json_schema(write, world):
    schema = {"type": "object", "properties": {"amount": {"maximum": 10}}}
    kit = kit_with(Policy({"rules": [{"name": "s", "breaks_schema": schema}]}))
    pay = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction():
        pay(10)
        with pytest.raises(RefusedError):
            pay(11)
    assert world.amounts == [10]


FREEZE = """
[[rules]]
name = "code freeze"
tag = "destructive"
reason = "nothing is deleted during the freeze"

[[rules]]
name = "backups are out of reach"
tag = "backups"
tool = ["volumes.delete", "volumes.delete_backups"]
reason = "no agent deletes backups"
"""


@pytest.mark.guarantee("REFUSE-1")
def test_a_freeze_stops_what_destroys_and_backups_stay_out_of_reach_after_it(write, world):
    """A call that nothing can take back is refused before its effect; backups apart from data."""
    path = write(FREEZE)
    policy = Policy.load(path)
    kit = kit_with(policy, Yes())
    delete = kit.safe_tool(world.mail, "IRREVERSIBLE", name="volumes.delete", tags=["destructive"])
    backups = kit.safe_tool(
        world.mail,
        "IRREVERSIBLE",
        name="volumes.delete_backups",
        tags=["destructive", "backups"],
    )
    look = kit.safe_tool(world.mail, "REVERSIBLE", name="volumes.list")
    with kit.transaction():
        look("all")
        for tool_of_doom in (delete, backups):
            with pytest.raises(RefusedError, match="freeze"):
                tool_of_doom("production")
    write(FREEZE[FREEZE.index("[[rules]]", 5) :])  # the freeze is over
    policy.reload()
    with kit.transaction():
        delete("scratch")
        with pytest.raises(RefusedError, match="backups"):
            backups("production")
    assert world.amounts == ["all", "scratch"]

"""A policy holds as it is written, or not at all: its numbers, its names, and what is reloaded."""

from __future__ import annotations

import json

import pytest

from agent_saga import AgentKit, Compensation, ConfigurationError, PreFlightGate, RateLimit, Rule
from agent_saga.controls.policy.policy import Policy
from agent_saga.controls.predicates import tool_is


def nothing(result):
    return Compensation.none("nothing stands")


TOML = '[[limits]]\nname = "a"\narg = "amount"\nwindow = 60\nmax_total = {}\n'
YAML = "limits:\n- {{name: a, arg: amount, window: 60, max_total: {}}}\n"
JSON = '{{"limits": [{{"name": "a", "arg": "amount", "window": 60, "max_total": {}}}]}}'
FORMS = pytest.mark.parametrize(
    ("ending", "form"), [("toml", TOML), ("yaml", YAML), ("json", JSON)]
)


@FORMS
@pytest.mark.parametrize("number", ["9007199254740993.0", "0.1000000000000000055", "1.5e400"])
def test_a_number_that_would_be_rounded_is_refused(tmp_path, ending, form, number):
    path = tmp_path / f"policy.{ending}"
    path.write_text(form.format(number))
    with pytest.raises(ConfigurationError):
        Policy.load(path)


@FORMS
@pytest.mark.parametrize("number", ["10.50", "1e3", "0.1", "9007199254740993"])
def test_a_number_that_is_carried_whole_holds_as_written(tmp_path, ending, form, number):
    path = tmp_path / f"policy.{ending}"
    path.write_text(form.format(number))
    asked = tmp_path / f"text.{ending}"
    asked.write_text(form.format(f'"{number}"'))
    assert Policy.load(path).limits[0].most == Policy.load(asked).limits[0].most


@FORMS
def test_a_byte_order_mark_before_it_says_nothing(tmp_path, ending, form):
    path = tmp_path / f"policy.{ending}"
    path.write_bytes(b"\xef\xbb\xbf" + form.format(5).replace("\n", "\r\n").encode())
    assert Policy.load(path).limits[0].most == 5


@pytest.mark.parametrize("name", ["", " ", " wire", "wire\t", "wire.*", "*", "a\nb", "x" * 301])
def test_what_is_declared_of_a_name_that_no_one_tool_has_is_refused(name):
    with pytest.raises(ConfigurationError):
        Policy({"tools": {name: {"semantics": "REVERSIBLE"}}})


def test_a_tag_in_the_place_of_a_tool_is_refused():
    with pytest.raises(ConfigurationError, match="tag"):
        Policy({"rules": [{"name": "pay", "tool": "tag:money"}]})
    with pytest.raises(ConfigurationError, match="tag"):
        tool_is("tag:money")
    Policy({"limits": [{"name": "pay", "tools": ["tag:money"], "max_calls": 1, "window": 1}]})


def test_an_argument_without_a_name_is_refused():
    arguments = {"": "$.amount"}
    with pytest.raises(ConfigurationError):
        Policy({"tools": {"pay": {"semantics": "REVERSIBLE", "policy_args": arguments}}})


# --- loaded again --------------------------------------------------------------------------------

BAD = [
    {"rules": [{"name": "own", "tool": "*"}]},
    {"rules": [{"name": "calls", "tool": "*"}]},
    {"limits": [{"name": "calls", "max_calls": 9, "window": 60}]},
    {"rules": [{"name": "irreversible", "tool": "*"}]},
    {"mode": "observe"},
]


@pytest.mark.parametrize("content", BAD)
def test_a_new_policy_that_a_gate_cannot_use_leaves_the_old_one_in_force(tmp_path, wal, content):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"rules": [{"name": "none", "tool": "wire"}]}))
    policy = Policy.load(path)
    gate = PreFlightGate(
        [Rule("own", lambda call: False)], limits=[RateLimit("calls", 9, 60)], policy=policy
    )
    kit = AgentKit("reloading", wal=wal, gate=gate)
    done = []
    look = kit.safe_tool(done.append, "COMPENSABLE", nothing, name="look")
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigurationError, match=str(path)):
        policy.reload()
    assert [rule.name for rule in policy.rules] == ["none"]
    with kit.transaction():
        look(1)
    assert done == [1]


def test_a_gate_that_is_gone_keeps_nobody_from_reloading(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text("{}")
    policy = Policy.load(path)
    PreFlightGate([Rule("own", lambda call: False)], policy=policy)
    path.write_text(json.dumps({"rules": [{"name": "own", "tool": "*"}]}))
    policy.reload()
    assert [rule.name for rule in policy.rules] == ["own"]

"""Semantics, compensations, templates, answers and reports as values."""

from __future__ import annotations

import pytest

from agent_saga.domain.compensation import Compensation, from_answer
from agent_saga.domain.outcomes import (
    Applied,
    CannotTell,
    NotApplied,
    Observation,
    read_observation,
    read_probe,
)
from agent_saga.domain.report import OUTCOMES, RollbackReport, StepLine
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.domain.templates import Template, template_from
from agent_saga.errors import CompensationError, ConfigurationError

# --- semantics ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["REVERSIBLE", "compensable", " IRREVERSIBLE ", "read_only"])
def test_semantics_are_named_in_any_case(name):
    assert ActionSemantics.parse(name) in ActionSemantics


def test_read_only_is_reversible():
    assert ActionSemantics.READ_ONLY is ActionSemantics.REVERSIBLE


@pytest.mark.parametrize("value", ["", "MAYBE", None, 5, b"REVERSIBLE", object()])
def test_other_words_are_no_semantics(value):
    with pytest.raises(ConfigurationError, match="COMPENSABLE"):
        ActionSemantics.parse(value)


# --- compensations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [{}, {"fn": None}, {"handler": ""}, {"fn": 5}, {"handler": 5, "fn": None}]
)
def test_a_compensation_needs_a_handler_or_a_function(arguments):
    with pytest.raises(CompensationError):
        Compensation(**arguments)


def test_a_compensation_has_its_own_arguments():
    kwargs = {"id": 1}
    inverse = Compensation(handler="refund", kwargs=kwargs, description="give it back")
    kwargs["id"] = 2
    assert inverse.kwargs == {"id": 1}
    assert inverse.label == "give it back"
    assert "refund" in repr(inverse)
    assert Compensation(fn=len).label == "len"


def test_nothing_to_undo_is_said_with_a_reason():
    assert Compensation.none("a draft").nothing == "a draft"
    assert Compensation.none("").nothing
    assert "a draft" in repr(Compensation.none("a draft"))


def test_what_a_factory_may_answer():
    nothing = Compensation.none("a draft")
    assert from_answer(nothing) is nothing
    inverse = Compensation(handler="refund", kwargs={"id": 1})
    own = from_answer(inverse)
    inverse.kwargs["id"] = 2  # for the next step
    assert (own.handler, own.kwargs) == ("refund", {"id": 1})
    answer = from_answer({"handler": "refund", "kwargs": {"id": 1}, "description": "d"})
    assert (answer.handler, answer.kwargs, answer.description) == ("refund", {"id": 1}, "d")


@pytest.mark.parametrize(
    "answer", [None, "refund", 5, {}, {"kwargs": {}}, {"handler": "x", "colour": 1}, ["refund"]]
)
def test_any_other_answer_is_no_compensation(answer):
    with pytest.raises(CompensationError):
        from_answer(answer)


# --- templates ------------------------------------------------------------------------------------


class Result:
    id = "ch1"
    _secret = "x"
    items = ({"sku": "a"}, {"sku": "b"})


SOURCES = {
    "result": {"id": "ch1", "lines": [{"sku": "a"}, {"sku": "b"}], "n": None},
    "args": {"amount": 5, "who": {"name": "ann"}},
    "prepared": {"row": [1, 2]},
}


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("$.id", "ch1"),
        ("$", SOURCES["result"]),
        ("$.lines.1.sku", "b"),
        ("$.lines.-1.sku", "b"),
        ("$.n", None),
        ("$args.amount", 5),
        ("$args", SOURCES["args"]),
        ("$args.who.name", "ann"),
        ("$prepared.row.0", 1),
        ("$$.id", "$.id"),
        ("$$", "$"),
        ("plain", "plain"),
        (5, 5),
        (None, None),
        (["$.id", {"x": "$args.amount"}], ["ch1", {"x": 5}]),
        (("$.id",), ["ch1"]),
        ({"$.id": "$.id"}, {"$.id": "ch1"}),
    ],
)
def test_a_template_reads_what_it_names(value, filled):
    assert Template("refund", {"x": value}).fill(SOURCES).kwargs == {"x": filled}


@pytest.mark.parametrize(
    "path", ["$.nope", "$.lines.9", "$.lines.x", "$.id.x", "$args.nope", "$prepared.row.-9", "$."]
)
def test_a_path_that_leads_nowhere_leaves_the_step_without_an_inverse(path):
    with pytest.raises(CompensationError, match="finds no"):
        Template("refund", {"x": path}).fill(SOURCES)


def test_a_template_reads_attributes_but_no_private_ones():
    sources = {"result": Result()}
    assert Template("refund", {"x": "$.id"}).fill(sources).kwargs == {"x": "ch1"}
    assert Template("refund", {"x": "$.items.1.sku"}).fill(sources).kwargs == {"x": "b"}
    for path in ("$._secret", "$.__class__", "$.id.__class__"):
        with pytest.raises(CompensationError):
            Template("refund", {"x": path}).fill(sources)


@pytest.mark.parametrize("path", ["$foo.x", "$result.id", "$ARGS.x", "$-"])
def test_a_path_with_an_unknown_root_is_refused_when_it_is_written(path):
    with pytest.raises(ConfigurationError):
        Template("refund", {"x": [path]})


@pytest.mark.parametrize(
    ("kwargs", "needs"),
    [
        ({"x": "$.id"}, True),
        ({"x": ["$args.a", {"y": "$.id"}]}, True),
        ({"x": "$args.a", "y": "$prepared.b", "z": "$$.id"}, False),
        ({}, False),
    ],
)
def test_a_template_knows_whether_it_needs_the_result(kwargs, needs):
    assert Template("refund", kwargs).needs_result is needs


@pytest.mark.parametrize("handler", ["", None, 5])
def test_a_template_names_its_handler(handler):
    with pytest.raises(ConfigurationError):
        Template(handler, {})


@pytest.mark.parametrize("value", [{}, {"kwargs": {}}, {"handler": "x", "fn": len}])
def test_a_mapping_of_another_form_is_no_template(value):
    with pytest.raises(ConfigurationError):
        template_from(value)


# --- answers --------------------------------------------------------------------------------------


def test_what_a_prober_may_answer():
    for answer in (Applied(1), NotApplied("x"), CannotTell("y")):
        assert read_probe(answer) is answer
    assert isinstance(read_probe(Applied), Applied)
    assert isinstance(read_probe(NotApplied), NotApplied)


@pytest.mark.parametrize("answer", [None, True, False, "applied", 5, {}, CannotTell, object()])
def test_any_other_answer_of_a_prober_cannot_tell(answer):
    assert isinstance(read_probe(answer), CannotTell)


@pytest.mark.parametrize("final", ["no", 1, None, 0.0])
def test_what_only_counts_as_true_is_no_final_answer(final):
    with pytest.raises(TypeError, match="is True or False"):
        NotApplied("x", final=final)


def test_what_a_reconciler_may_answer():
    seen = Observation(reversed_=True)
    assert read_observation(seen) is seen
    assert read_observation({"reversed_": True}).reversed_ is True


@pytest.mark.parametrize("answer", [None, True, "reversed", {"reversed_": "yes"}, {"reversed_": 1}])
def test_any_other_answer_of_a_reconciler_saw_nothing(answer):
    assert read_observation(answer).reversed_ is None


@pytest.mark.parametrize("value", [1, 0, "True", "no", []])
def test_an_observation_is_tri_state(value):
    with pytest.raises(TypeError):
        Observation(reversed_=value)
    with pytest.raises(TypeError):
        Observation(exists=value)


# --- reports --------------------------------------------------------------------------------------

LISTS = ["failed", "orphaned", "unresolved", "unsettled", "kept"]


@pytest.mark.guarantee("CLEAN-1")
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_report_with_anything_standing_is_never_clean(name, outcome):
    report = RollbackReport("s")
    report.outcome = outcome
    getattr(report, name).append(StepLine("x" * 22, "pay"))
    assert not report.clean
    assert "NOT clean" in report.summary()
    assert "agent-saga show s" in report.summary()


@pytest.mark.guarantee("CLEAN-1")
@pytest.mark.parametrize("outcome", [*OUTCOMES, "", "SOMETHING"])
def test_only_a_finished_boundary_is_clean(outcome):
    report = RollbackReport("s")
    report.outcome = outcome
    for name in ("compensated", "left", "not_applied"):
        getattr(report, name).append(StepLine("x" * 22, "pay"))
    assert report.clean is (outcome in ("ROLLED_BACK", "COMMITTED"))


@pytest.mark.parametrize(
    ("lists", "verdict"),
    [
        ([], "ROLLED_BACK"),
        (["compensated", "left", "not_applied"], "ROLLED_BACK"),
        (["orphaned"], "PARTIAL"),
        (["kept"], "PARTIAL"),
        (["failed"], "STUCK"),
        (["unresolved", "orphaned", "kept"], "STUCK"),
    ],
)
def test_the_verdict_follows_from_the_steps(lists, verdict):
    report = RollbackReport("s")
    for name in lists:
        getattr(report, name).append(StepLine("x" * 22, "pay"))
    assert report.verdict() == verdict


def test_a_report_names_the_log_in_its_next_command():
    assert "--wal-path /a/log" in RollbackReport("s", wal="file:/a/log").next_command()
    assert "--wal-path" not in RollbackReport("s", wal="memory:").next_command()


def test_a_line_tells_tool_detail_and_error():
    line = StepLine("abcdefghijk", "pay", "it failed", "refund", "ValueError: no")
    for part in ("pay", "abcdefgh", "refund", "it failed", "ValueError: no"):
        assert part in str(line)

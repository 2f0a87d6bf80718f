"""What a program gives for a text, an answer or a class of its own never hides what happened."""

from __future__ import annotations

import pytest

from agent_saga import (
    Applied,
    CannotTell,
    CommittedUnsettled,
    Compensation,
    NotApplied,
    Observation,
    SagaAborted,
)
from agent_saga.errors import AgentSagaError, text_of


class Shy:
    """It can neither be shown nor be tested."""

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __bool__ = __str__


class Silent(NotApplied):
    """Its author did not call the class that it comes from."""

    def __init__(self, code):
        self.code = code


GIVEN = [404, {"code": 404}, b"gone", ["a"], None, ValueError("it was declined"), Shy()]


@pytest.mark.parametrize("given", GIVEN, ids=lambda value: type(value).__name__)
def test_a_call_without_an_effect_may_give_anything_as_its_reason(kit, given):
    @kit.tool("COMPENSABLE")
    def charge(amount):
        raise NotApplied(given)

    charge.undo(lambda result: None)
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        charge(1)
    assert failed.value.report.clean
    assert [line.tool for line in failed.value.report.not_applied] == ["charge"]


@pytest.mark.parametrize("given", GIVEN, ids=lambda value: type(value).__name__)
def test_an_inverse_may_give_anything_as_its_reason(kit, world, given):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="charge")

    @tool.undo
    def refund(result):
        raise NotApplied(given)

    with pytest.raises(SagaAborted) as failed, kit.transaction():
        tool(1)
        raise RuntimeError("the run fails")
    assert failed.value.report.outcome == "STUCK"


def lost(kit, world, answer):
    def charge(amount):
        world.charge(amount)
        raise ConnectionError("the answer was lost")

    tool = kit.safe_tool(charge, "COMPENSABLE", name="charge")
    tool.undo(lambda result: world.refund(result["id"]))
    tool.probe(lambda args: answer())
    return tool


@pytest.mark.parametrize("given", GIVEN, ids=lambda value: type(value).__name__)
def test_a_prober_may_give_anything_as_its_reason(kit, world, given):
    tool = lost(kit, world, lambda: CannotTell(given))
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        tool(1)
    assert failed.value.report.outcome == "PARTIAL"


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def test_a_prober_whose_error_cannot_be_shown_cannot_tell(kit, world):
    def fail():
        raise Mute

    tool = lost(kit, world, fail)
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        tool(1)
    assert failed.value.report.outcome == "PARTIAL"
    with pytest.raises(CommittedUnsettled), kit.transaction(), pytest.raises(ConnectionError):
        tool(2)


def test_a_class_that_does_not_call_the_one_it_comes_from_is_an_answer(kit):
    @kit.tool("COMPENSABLE")
    def charge(amount):
        raise Silent(404)

    charge.undo(lambda result: None)
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        charge(1)
    assert [line.tool for line in failed.value.report.not_applied] == ["charge"]
    assert "SAGA-304" in str(Silent(404))


@pytest.mark.guarantee("ANSWER-2")
@pytest.mark.parametrize(
    "answer",
    [
        CannotTell,
        CannotTell("no"),
        Observation(),
        Observation(exists=True),
        Observation(reversed_=False),
        NotApplied,
        Silent,
        NotApplied("no"),
    ],
    ids=repr,
)
def test_an_inverse_that_does_not_say_that_it_holds_is_no_success(kit, world, answer):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="charge")

    @tool.undo
    def refund(result):
        return answer

    with pytest.raises(SagaAborted) as failed, kit.transaction():
        tool(1)
        raise RuntimeError("the run fails")
    assert not failed.value.report.clean
    assert [line.tool for line in failed.value.report.failed] == ["charge"]


@pytest.mark.parametrize("answer", [None, True, {"id": 1}, Applied, Observation(reversed_=True)])
def test_any_other_answer_of_an_inverse_is_its_success(kit, world, answer):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="charge")
    tool.undo(lambda result: answer)
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        tool(1)
        raise RuntimeError("the run fails")
    assert failed.value.report.clean


def test_texts() -> None:
    assert [text_of(value) for value in (None, "a", 404)] == ["", "a", "404"]
    assert text_of(Shy()) == "(it cannot be shown)"
    assert AgentSagaError(404).message == "404"


SECRET = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"


def test_a_report_shows_no_secret_of_what_was_raised(kit, world):
    @kit.tool("COMPENSABLE")
    def charge(amount):
        raise ConnectionError(f"POST /charges with {SECRET}")

    charge.undo(lambda result: None)
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        charge(1)
    report = failed.value.report
    assert "POST /charges" in report.summary()
    assert SECRET not in report.summary() + str(failed.value) + report.orphaned[0].error


FORGED = "no\n  Undone:\n    - everything [12345678]\x1b[31m"


def test_no_text_of_a_prober_or_an_inverse_looks_like_a_line_of_the_report(kit, world):
    def named(result):
        return Compensation(fn=lambda: None, description=FORGED)

    paid = kit.safe_tool(world.charge, "COMPENSABLE", compensate=named, name="paid")
    tool = lost(kit, world, lambda: CannotTell(FORGED))
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        paid(1)
        with pytest.raises(ConnectionError):
            tool(1)
        raise RuntimeError(FORGED)
    told = failed.value.report.summary().splitlines()
    assert [line.strip() for line in told].count("Undone:") == 1
    assert not any(line.strip().startswith("- everything") for line in told)
    assert "\x1b" not in str(failed.value)

"""Cases of runs that ask a human: the gate's questions, and tool failures under "ask"."""

# ruff: noqa: D102, S101 - a case is a test, and its name is its sentence

from __future__ import annotations

import pytest

from agent_saga import ConfigurationError, SagaAborted
from agent_saga_testing.integration.bench import Bench, IntegrationCases
from agent_saga_testing.integration.driver import Call, Turn
from agent_saga_testing.integration.elsewhere import book, run_elsewhere

__all__ = ["QuestionCases"]

SEAT = Call("book", {"item": "seat"}, "book_1")
WIRE = Call("wire", {"item": "money"}, "wire_1")
ASKS: list[Turn] = [[SEAT], [WIRE]]
FAILS: list[Turn] = [[SEAT], [Call("look_up", {"item": "nothing"}, "look_1")]]


class QuestionCases(IntegrationCases):
    """What every framework package must do when a human is asked and the run waits."""

    def test_a_run_waits_for_an_approval_and_the_granted_call_runs_once(self, bench: Bench) -> None:
        agent = bench.resumable([*ASKS, book("room"), "done"])
        assert bench.run(agent).waits
        bench.world.assert_applied_once("seat")
        assert bench.decide(agent, approved=True) == ("done", False)
        bench.world.assert_applied_once("seat", "money", "room")

    def test_a_denied_call_does_not_run_and_the_model_goes_on(self, bench: Bench) -> None:
        agent = bench.resumable([*ASKS, book("room"), "done"])
        assert bench.run(agent).waits
        assert bench.decide(agent, approved=False) == ("done", False)
        bench.world.assert_applied_once("seat", "room")

    def test_calls_beside_a_question_are_not_repeated(self, bench: Bench) -> None:
        agent = bench.resumable([[SEAT, WIRE, *book("room")], "done"])
        assert bench.run(agent).waits
        assert bench.decide(agent, approved=True).text == "done"
        bench.world.assert_applied_once("seat", "room", "money")

    def test_an_approval_counts_in_another_process(self, bench: Bench) -> None:
        assert run_elsewhere(self.driver, bench.folder, ASKS).waits
        assert bench.decide(bench.resumable(["done"]), approved=True).text == "done"
        bench.world.assert_applied_once("seat", "money")

    def test_a_question_that_nobody_answered_is_asked_again(self, bench: Bench) -> None:
        agent = bench.resumable([*ASKS, "done"])
        assert bench.run(agent).waits
        assert bench.resume(agent, None).waits
        bench.world.assert_applied_once("seat")
        assert bench.decide(agent, approved=True).text == "done"
        bench.world.assert_applied_once("seat", "money")

    def test_what_was_approved_stands_when_the_run_fails(self, bench: Bench) -> None:
        agent = bench.resumable([*ASKS, ValueError("the model is down")])
        assert bench.run(agent).waits
        with pytest.raises(SagaAborted) as failed:
            bench.decide(agent, approved=True)
        assert [line.tool for line in failed.value.report.kept] == ["wire"]
        bench.world.assert_stands("money")

    def test_a_run_goes_on_after_a_tool_failure_if_a_human_says_so(self, bench: Bench) -> None:
        agent = bench.resumable(
            [*FAILS, book("room"), "done"], shows_errors=True, on_tool_failure="ask"
        )
        assert bench.run(agent).waits
        assert bench.decide(agent, approved=True).text == "done"
        bench.world.assert_applied_once("seat", "room")

    def test_a_run_is_undone_after_a_tool_failure_if_a_human_says_no(self, bench: Bench) -> None:
        agent = bench.resumable(
            [*FAILS, book("room"), "done"], shows_errors=True, on_tool_failure="ask"
        )
        assert bench.run(agent).waits
        bench.world.assert_applied_once("seat")
        with pytest.raises(SagaAborted):
            bench.decide(agent, approved=False)
        bench.world.assert_restored()

    def test_a_human_decides_about_a_tool_failure_in_another_process(self, bench: Bench) -> None:
        how = {"shows_errors": True, "on_tool_failure": "ask"}
        assert run_elsewhere(self.driver, bench.folder, FAILS, **how).waits
        with pytest.raises(SagaAborted):
            bench.decide(bench.resumable(["done"], **how), approved=False)
        bench.world.assert_restored()

    def test_to_ask_about_tool_failures_needs_somebody_to_ask(self, bench: Bench) -> None:
        with pytest.raises(ConfigurationError, match="ask"):
            bench.run(bench.agent([book("seat"), "done"], on_tool_failure="ask"))
        bench.world.assert_untouched()

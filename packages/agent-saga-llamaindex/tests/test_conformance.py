"""Every way to put agent-saga into LlamaIndex passes the kit.

A function agent passes all of it but what is named here; the other ways differ from it in how one
run goes, and pass that part.
"""

from __future__ import annotations

from typing import ClassVar

import drivers
import pytest

from agent_saga_testing.integration.conformance import IntegrationConformance
from agent_saga_testing.integration.elsewhere import book, run_and_die
from agent_saga_testing.integration.questions import QuestionCases
from agent_saga_testing.integration.resumes import DIES, SEAT, ResumeCases
from agent_saga_testing.integration.runs import RunCases

NEVER_WAITS = "a run of this package asks whoever answers at once, and never waits suspended"
ASKS_AGAIN = "a run that died is begun again under its key: the model is asked from the beginning"
_STAY = {
    "test_recovery_undoes_what_a_killed_run_did",
    "test_a_killed_run_is_gone_on_with_and_repeats_no_effect",
    "test_a_call_that_was_cut_short_by_a_kill_is_never_made_twice",
    "test_to_ask_about_tool_failures_needs_somebody_to_ask",
}
WAITS = sorted({n for n in (*vars(ResumeCases), *vars(QuestionCases)) if "test_" in n} - _STAY)


class TestFunctionAgent(IntegrationConformance):
    driver = drivers.FunctionAgentDriver
    deviations: ClassVar = {
        **dict.fromkeys(WAITS, NEVER_WAITS),
        "test_a_killed_run_is_gone_on_with_and_repeats_no_effect": ASKS_AGAIN,
    }
    locals().update(dict.fromkeys(WAITS))

    @pytest.mark.crash
    def test_a_killed_run_is_gone_on_with_and_repeats_no_effect(self, bench):
        run_and_die(self.driver, bench.folder, [[SEAT], DIES, "done"])
        bench.world.assert_applied_once("seat")
        assert bench.run(bench.resumable([[SEAT], DIES, *[book("room")], "done"])).text == "done"
        bench.world.assert_applied_once("seat", "room")
        bench.recover()
        bench.world.assert_applied_once("seat", "room")

    def test_what_a_killed_run_did_and_the_model_no_longer_does_is_undone(self, bench):
        run_and_die(self.driver, bench.folder, [[SEAT], DIES, "done"])
        with pytest.raises(Exception, match="took another way"):
            bench.run(bench.resumable(["done"]))
        bench.world.assert_restored()


class TestAgentWorkflow(RunCases):
    driver = drivers.OwnToolsDriver


class TestReActAgent(RunCases):
    """A model that calls tools by text makes one call at a time; LlamaIndex gives each an id."""

    driver = drivers.ReActDriver
    deviations: ClassVar = {
        "test_a_call_that_stands_twice_in_one_turn_is_one": "calls by text stand in no turn twice",
    }
    test_a_call_that_stands_twice_in_one_turn_is_one = None


class TestWorkflow(RunCases):
    driver = drivers.WorkflowDriver

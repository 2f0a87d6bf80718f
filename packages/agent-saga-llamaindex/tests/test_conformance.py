"""Every way to put agent-saga into LlamaIndex passes the kit.

A function agent passes all of it but what is named here; the other ways differ from it in how one
run goes, and pass that part.
"""

from __future__ import annotations

from typing import ClassVar

import drivers
import pytest

from agent_saga import SagaAborted
from agent_saga_testing.integration.conformance import IntegrationConformance
from agent_saga_testing.integration.driver import Call
from agent_saga_testing.integration.elsewhere import book, run_and_die
from agent_saga_testing.integration.resumes import DIES, SEAT
from agent_saga_testing.integration.runs import RunCases


class TestFunctionAgent(IntegrationConformance):
    driver = drivers.FunctionAgentDriver
    deviations: ClassVar = {
        "test_a_run_that_waits_is_neither_kept_nor_undone": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_resumed_run_repeats_no_effect": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_resumed_run_that_fails_undoes_what_it_did_before": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_run_can_wait_twice": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_run_is_gone_on_with_in_another_process": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_what_another_process_did_is_undone_when_the_run_fails": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_finished_run_that_is_resumed_again_does_nothing": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_run_that_was_undone_is_not_gone_on_with": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_run_waits_for_an_approval_and_the_granted_call_runs_once": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_denied_call_does_not_run_and_the_model_goes_on": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_calls_beside_a_question_are_not_repeated": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_an_approval_counts_in_another_process": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_question_that_nobody_answered_is_asked_again": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_what_was_approved_stands_when_the_run_fails": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_run_goes_on_after_a_tool_failure_if_a_human_says_so": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_run_is_undone_after_a_tool_failure_if_a_human_says_no": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_human_decides_about_a_tool_failure_in_another_process": (
            "a run of this package does not wait: what needs a later answer is refused, by its rule"
        ),
        "test_a_killed_run_is_gone_on_with_and_repeats_no_effect": (
            "its model is asked from the beginning; a model that takes another way undoes it"
        ),
    }
    test_a_run_that_waits_is_neither_kept_nor_undone = None
    test_a_resumed_run_repeats_no_effect = None
    test_a_resumed_run_that_fails_undoes_what_it_did_before = None
    test_a_run_can_wait_twice = None
    test_a_run_is_gone_on_with_in_another_process = None
    test_what_another_process_did_is_undone_when_the_run_fails = None
    test_a_finished_run_that_is_resumed_again_does_nothing = None
    test_a_run_that_was_undone_is_not_gone_on_with = None
    test_a_denied_call_does_not_run_and_the_model_goes_on = None
    test_calls_beside_a_question_are_not_repeated = None
    test_an_approval_counts_in_another_process = None
    test_a_question_that_nobody_answered_is_asked_again = None
    test_what_was_approved_stands_when_the_run_fails = None
    test_a_run_goes_on_after_a_tool_failure_if_a_human_says_so = None
    test_a_human_decides_about_a_tool_failure_in_another_process = None

    def test_a_run_waits_for_an_approval_and_the_granted_call_runs_once(self, bench):
        agent = bench.resumable([book("seat"), [Call("wire", {"item": "money"})], "done"])
        assert bench.run(agent) == ("done", False)
        bench.world.assert_applied_once("seat")

    def test_a_run_is_undone_after_a_tool_failure_if_a_human_says_no(self, bench):
        fails = [Call("look_up", {"item": "nothing"})]
        how = {"shows_errors": True, "on_tool_failure": "ask"}
        with pytest.raises(SagaAborted, match="nothing cannot be looked up"):
            bench.run(bench.resumable([book("seat"), fails, "done"], **how))
        bench.world.assert_restored()

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

"""Every way to put agent-saga into AutoGen passes the kit.

An assistant passes all of it but what is named here; the other ways differ from it in how one
run goes, and pass that part.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import drivers
import pytest

from agent_saga import NotApplied, SagaAborted
from agent_saga_autogen import WorkbenchToolFailed, last_report
from agent_saga_testing.integration.conformance import IntegrationConformance
from agent_saga_testing.integration.driver import Call
from agent_saga_testing.integration.elsewhere import book, run_and_die
from agent_saga_testing.integration.resumes import DIES, SEAT
from agent_saga_testing.integration.runs import FAILS, RunCases
from agent_saga_testing.waiting import until


class TestAssistant(IntegrationConformance):
    driver = drivers.AssistantDriver
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


class TestOwnTools(RunCases):
    driver = drivers.OwnToolsDriver


class TestTeam(RunCases):
    driver = drivers.TeamDriver


class TestTeamInARuntimeOfOthers(RunCases):
    """The runtime was started in another context: what is called there sees no boundary."""

    driver = drivers.ForeignRuntimeDriver


class TestWorkbench(RunCases):
    driver = drivers.WorkbenchDriver
    deviations: ClassVar = {
        "test_a_tool_error_undoes_the_run_where_that_is_asked_for": (
            "a workbench tells of an error in words; the cause is WorkbenchToolFailed"
        ),
        "test_a_synchronous_tool_in_flight_is_waited_for_and_undone": (
            "what a workbench was told to do and does not answer any more has an unknown outcome"
        ),
        "test_a_framework_that_runs_a_tool_again_repeats_no_effect": (
            "a workbench does not say whether a call that failed changed something"
        ),
        "test_tools_in_threads_are_in_the_saga_of_their_run": (
            "what a workbench calls is its own; the call of the workbench is the step"
        ),
    }
    test_tools_in_threads_are_in_the_saga_of_their_run = None

    def test_a_tool_error_undoes_the_run_where_that_is_asked_for(self, bench):
        how = {"shows_errors": True, "on_tool_failure": "rollback"}
        with pytest.raises(SagaAborted, match="nothing cannot be looked up") as failed:
            bench.run(bench.agent([book("seat"), FAILS, book("room"), "done"], **how))
        assert isinstance(failed.value.cause, WorkbenchToolFailed)
        bench.world.assert_restored()

    def test_a_synchronous_tool_in_flight_is_waited_for_and_undone(self, bench):
        tool = bench.tools.held_book()
        calls = [book("room"), [Call(tool.name, {"item": "seat"})], "done"]
        agent = bench.agent(calls, bench.tools.book(), tool)

        async def reported():
            try:
                await bench.driver.run(agent)
            finally:
                reports.append(last_report())

        async def case():
            task = asyncio.ensure_future(reported())
            await asyncio.to_thread(until, bench.tools.reached.is_set)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            bench.tools.released.set()

        reports = []
        asyncio.run(case())
        assert [report.clean for report in reports] == [False]
        assert bench.world.undone() == ["room"]

    def test_a_framework_that_runs_a_tool_again_repeats_no_effect(self, bench):
        bench.world.fail_before(1, error=NotApplied)
        with pytest.raises(SagaAborted) as failed:
            bench.run(bench.agent([book("seat"), book("room"), "done"], tool_retries=2))
        assert not failed.value.report.clean
        assert bench.world.attempts() == 1

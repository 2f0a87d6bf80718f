"""Every way to put agent-saga into AutoGen passes the kit.

Assistants and teams pass all of it but what is named here; the other ways differ from these in how
one run goes, and pass that part.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import ClassVar

import drivers
import pytest

from agent_saga import NotApplied, SagaAborted
from agent_saga_autogen import WorkbenchToolFailed, last_report
from agent_saga_testing.integration.conformance import IntegrationConformance
from agent_saga_testing.integration.driver import Call
from agent_saga_testing.integration.elsewhere import book, run_and_die
from agent_saga_testing.integration.questions import WIRE
from agent_saga_testing.integration.resumes import DIES, SEAT
from agent_saga_testing.integration.runs import FAILS, RunCases
from agent_saga_testing.kits.processes import Process
from agent_saga_testing.waiting import until


class InAutoGen(IntegrationConformance):
    __test__ = False
    deviations: ClassVar = {
        "test_a_killed_run_is_gone_on_with_and_repeats_no_effect": (
            "its model is asked from the beginning; a model that takes another way undoes it"
        ),
    }

    @pytest.mark.crash
    def test_a_killed_run_is_gone_on_with_and_repeats_no_effect(self, bench):
        run_and_die(self.driver, bench.folder, [[SEAT], DIES, "done"])
        bench.world.assert_applied_once("seat")
        assert bench.run(bench.resumable([[SEAT], DIES, *[book("room")], "done"])).text == "done"
        bench.world.assert_applied_once("seat", "room")
        bench.recover()
        bench.world.assert_applied_once("seat", "room")

    @pytest.mark.crash
    def test_what_a_killed_run_did_and_the_model_no_longer_does_is_undone(self, bench):
        run_and_die(self.driver, bench.folder, [[SEAT], DIES, "done"])
        with pytest.raises(Exception, match="took another way"):
            bench.run(bench.resumable(["done"]))
        bench.world.assert_restored()

    @pytest.mark.crash
    def test_a_run_that_dies_while_it_is_gone_on_with_can_be_gone_on_with_again(
        self, bench, monkeypatch
    ):
        beside = [str(Path(drivers.__file__).parent), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(beside))
        assert bench.run(bench.resumable([[SEAT, WIRE]])).waits
        script = [DIES, "never"]
        with (
            Process(drivers.approve_in, bench.folder, self.driver.__name__, script) as process,
            pytest.raises(ChildProcessError),
        ):
            process.answer()
        bench.world.assert_applied_once("seat", "money")
        assert bench.decide(bench.resumable([DIES, "done"]), approved=True).text == "done"
        bench.world.assert_applied_once("seat", "money")


class TestAssistant(InAutoGen):
    __test__ = True
    driver = drivers.AssistantDriver


class TestTeam(InAutoGen):
    __test__ = True
    driver = drivers.TeamDriver


class TestTeamInARuntimeOfOthers(InAutoGen):
    """The runtime was started in another context: what is called there sees no boundary."""

    __test__ = True
    driver = drivers.ForeignRuntimeDriver


class TestOwnTools(RunCases):
    driver = drivers.OwnToolsDriver


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
        "test_a_tool_that_ends_the_program_undoes_the_run_first": (
            "a workbench calls its tools in tasks of its own, and there it ends the event loop"
        ),
    }
    test_a_tool_that_ends_the_program_undoes_the_run_first = None
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

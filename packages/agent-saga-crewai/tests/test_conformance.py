"""Every way to put agent-saga into CrewAI passes the kit.

A crew passes all of it; the other ways differ from it in how one run goes, and pass that part.
"""

from __future__ import annotations

from typing import ClassVar

import drivers

from agent_saga_testing.integration.conformance import IntegrationConformance
from agent_saga_testing.integration.elsewhere import book
from agent_saga_testing.integration.runs import RunCases


class TestCrew(IntegrationConformance):
    driver = drivers.CrewDriver


class TestCrewInAThread(RunCases):
    driver = drivers.ThreadDriver


class TestCrewByText(RunCases):
    """CrewAI by itself answers a call by text that equals the one before it, without running it."""

    driver = drivers.TextDriver
    deviations: ClassVar[dict[str, str]] = {
        "test_equal_calls_that_both_succeed_are_two": "CrewAI does not run the second one",
        "test_a_call_id_that_is_used_in_two_turns_means_two_calls": "calls by text have no ids",
    }
    test_equal_calls_that_both_succeed_are_two = None
    test_a_call_id_that_is_used_in_two_turns_means_two_calls = None

    def test_an_equal_call_right_after_it_is_answered_by_the_framework(self, bench):
        assert bench.run(bench.agent([book("seat"), book("seat"), "done"])).text == "done"
        bench.world.assert_applied_once("seat")


class TestFlow(RunCases):
    driver = drivers.FlowDriver

"""Every way to put agent-saga into the OpenAI Agents SDK passes the kit."""

from __future__ import annotations

from importlib import metadata
from typing import ClassVar

import drivers
import pytest

from agent_saga import NotApplied, SagaAborted
from agent_saga_testing.integration.conformance import IntegrationConformance
from agent_saga_testing.integration.driver import Call
from agent_saga_testing.integration.elsewhere import book, run_and_die

ONCE_SINCE = (0, 20)
"""The first version that answers a call id of an earlier turn without calling the tool."""


def version():
    return tuple(int(part) for part in metadata.version("openai-agents").split(".")[:2])


class InTheSDK(IntegrationConformance):
    __test__ = False
    deviations: ClassVar = {
        "test_a_framework_that_runs_a_tool_again_repeats_no_effect": (
            "the SDK never runs a tool again; its model does, when it reads of the failure"
        ),
        "test_a_call_id_that_is_used_in_two_turns_means_two_calls": (
            "since 0.20 the SDK itself answers an id that it has seen without calling the tool"
        ),
        "test_a_call_that_was_cut_short_by_a_kill_is_never_made_twice": (
            "the SDK does not make the calls of a killed turn again, but asks its model anew; the "
            "run ends well only if none of them had begun"
        ),
    }

    def test_a_framework_that_runs_a_tool_again_repeats_no_effect(self, bench):
        bench.world.fail_before(1, error=NotApplied)
        agent = bench.agent([book("seat"), book("seat"), book("room"), "done"], shows_errors=True)
        assert bench.run(agent).text == "done"
        bench.world.assert_applied_once("seat", "room")

    def test_a_call_id_that_is_used_in_two_turns_means_two_calls(self, bench):
        call = Call("book", {"item": "seat"}, "call_0")
        assert bench.run(bench.agent([[call], [call], "done"])).text == "done"
        stands = ["seat"] if version() >= ONCE_SINCE else ["seat", "seat"]
        bench.world.assert_stands(*stands)

    @pytest.mark.crash
    def test_a_call_that_was_cut_short_by_a_kill_is_never_made_twice(self, bench):
        room, dies = Call("book", {"item": "room"}), Call("dies_once", {"item": "now"})
        run_and_die(self.driver, bench.folder, [book("seat"), [room, dies], "done"])
        try:
            bench.resume(bench.resumable(["done"]), None)
        except SagaAborted as failed:
            if failed.report.clean:
                bench.world.assert_restored()
        else:
            bench.world.assert_applied_once("seat")
        bench.world.assert_never_twice()
        assert bench.world.applications(name="seat") == 1
        assert bench.world.applications(name="room") <= 1


class TestOneLine(InTheSDK):
    __test__ = True
    driver = drivers.OneLineDriver


class TestOwnTools(InTheSDK):
    __test__ = True
    driver = drivers.OwnToolsDriver

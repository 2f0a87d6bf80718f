"""Every way to put agent-saga into the OpenAI Agents SDK passes the kit."""

from __future__ import annotations

from importlib import metadata
from typing import ClassVar

import drivers

from agent_saga import NotApplied
from agent_saga_testing.integration.conformance import IntegrationConformance
from agent_saga_testing.integration.driver import Call
from agent_saga_testing.integration.elsewhere import book

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


class TestOneLine(InTheSDK):
    __test__ = True
    driver = drivers.OneLineDriver


class TestOwnTools(InTheSDK):
    __test__ = True
    driver = drivers.OwnToolsDriver

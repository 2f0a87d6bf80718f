"""Every way to put agent-saga into LlamaIndex passes the kit.

A function agent passes all of it but what is named here; the other ways differ from it in how one
run goes, and pass that part.
"""

from __future__ import annotations

from typing import ClassVar

import drivers
import pytest

from agent_saga_testing.integration.conformance import IntegrationConformance
from agent_saga_testing.integration.elsewhere import run_and_die
from agent_saga_testing.integration.resumes import DIES, SEAT
from agent_saga_testing.integration.runs import RunCases


class TestFunctionAgent(IntegrationConformance):
    driver = drivers.FunctionAgentDriver

    @pytest.mark.guarantee("LLAMAINDEX-3")
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

"""Tools of one name in two agents: whose call a recorded one is, and whose it is not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import twins
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from scripted import Scripted, call
from twins import DIES, SEAT, Twins

from agent_saga import SagaAborted
from agent_saga.errors import ReplayConflict
from agent_saga.plugins.registry import process_handlers
from agent_saga_autogen import saga_agent, saga_run
from agent_saga_testing.kits.processes import Process


@pytest.fixture
def two(tmp_path, monkeypatch):
    beside = [str(Path(twins.__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(beside))
    with process_handlers().isolated():
        yield Twins(tmp_path)


def die(two, one, other, *, own=False, kind=""):
    with (
        Process(twins.run, two.world.path.parent, one, other, own, kind) as process,
        pytest.raises(ChildProcessError),
    ):
        process.answer()


def answers(result):
    events = [m for m in result.messages if m.type == "ToolCallExecutionEvent"]
    return [one.content for event in events for one in event.content]


@pytest.mark.crash
@pytest.mark.parametrize("own", [False, True], ids=["models", "own"])
class TestACallThatAnotherAgentMadeBeforeACrash:
    def test_is_neither_answered_nor_repeated(self, two, own):
        die(two, [SEAT, DIES], [], own=own)
        with pytest.raises(SagaAborted) as aborted:
            asyncio.run(two.run(["so"], [SEAT, "done"], own=own))
        assert isinstance(aborted.value.cause, ReplayConflict)
        assert "A called book" in str(aborted.value.cause)
        assert "this call of B" in str(aborted.value.cause)
        assert [c.name for c in two.world.calls("forward")] == ["hotel seat"]
        two.world.assert_restored()

    def test_is_the_own_one_of_the_agent_that_repeats_it(self, two, own):
        die(two, [SEAT, DIES], [], own=own)
        again = [[call("book", "c9", item="seat")], "so"]
        asyncio.run(two.run(again, [SEAT, "so"], own=own))
        two.world.assert_applied_once("hotel seat", "flight seat")

    def test_is_one_of_two_where_both_had_made_theirs(self, two, own):
        die(two, [SEAT, "so"], [SEAT, DIES], own=own)
        asyncio.run(two.run([SEAT, "so"], [SEAT, "so"], own=own))
        two.world.assert_applied_once("hotel seat", "flight seat")


class TestACallOfAnotherAgentWhoseAnswerWasLost:
    def test_is_not_taken_for_one_of_another_function(self, two):
        two.world.lose_answers(1)
        team = two.team([SEAT, "so"], [SEAT, "done"])
        result = asyncio.run(saga_run(team, "go on"))
        told = answers(result)[-1]
        assert "A called book" in told
        assert "it was not made" in told
        assert two.world.attempts() == 1

    def test_is_that_call_where_both_call_one_function(self, two):
        book, _ = two.tools("hotel")
        members = [
            AssistantAgent(name, Scripted(SEAT, "so"), tools=[book], max_tool_iterations=9)
            for name in "AB"
        ]
        two.world.lose_answers(1)
        team = saga_agent(RoundRobinGroupChat(members, max_turns=2), two.kit)
        result = asyncio.run(saga_run(team, "go on"))
        assert "without a known outcome" in answers(result)[-1]
        assert two.world.attempts() == 1


@pytest.mark.parametrize("kind", ["function", "class"])
class TestACallOfATool:
    """Which two agents have."""

    @pytest.mark.crash
    def test_that_one_made_before_a_crash_is_given_to_the_other(self, two, kind):
        die(two, [SEAT, DIES], [], kind=kind)
        assert asyncio.run(two.run(["so"], [SEAT, "done"], kind=kind)) == "done"
        assert two.world.attempts() == 1
        two.world.assert_stands("seat")

    @pytest.mark.crash
    @pytest.mark.parametrize("ids", [("c8", "c9"), ("c1", "c1")])
    def test_that_both_make_is_made_once_more_than_before_the_crash(self, two, kind, ids):
        die(two, [SEAT, DIES], [], kind=kind)
        one, other = ([[call("book", each, item="seat")], "so"] for each in ids)
        asyncio.run(two.run(one, other, kind=kind))
        two.world.assert_stands("seat", "seat")

    @pytest.mark.crash
    def test_that_was_given_to_the_other_is_one_more_where_the_first_makes_it_later(
        self, two, kind
    ):
        die(two, [SEAT, DIES], [], kind=kind)
        asyncio.run(two.run(["so", SEAT, "so"], [SEAT, "so"], kind=kind, turns=3))
        two.world.assert_stands("seat", "seat")

    def test_whose_answer_was_lost_is_not_made_by_the_other(self, two, kind):
        two.world.lose_answers(1)
        team = two.alike(kind, [SEAT, "so"], [SEAT, "done"])
        result = asyncio.run(saga_run(team, "go on"))
        assert "without a known outcome" in answers(result)[-1]
        assert two.world.attempts() == 1


def test_what_the_program_called_itself_and_lost_is_not_made_again_by_an_agent(two):
    book, _ = two.tools("hotel")
    agent = AssistantAgent("A", Scripted(SEAT, "so"), tools=[book], max_tool_iterations=9)
    two.world.lose_answers(1)

    async def case():
        async with two.kit.transaction(on_unsettled="warn"):
            with pytest.raises(ConnectionError):
                await book.saga_effect.tool.acall(item="seat")
            return await saga_run(agent, "go on", kit=two.kit)

    result = asyncio.run(case())
    assert "without a known outcome" in answers(result)[-1]
    assert two.world.attempts() == 1

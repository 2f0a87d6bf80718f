"""Runs that wait for a human: what they keep, what they repeat, and what is refused."""

from __future__ import annotations

import asyncio

import pytest
from autogen_agentchat.agents import SocietyOfMindAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from desk import DOWN, PAY, Desk, book, last
from scripted import Scripted, call

from agent_saga import ConfigurationError, SagaAborted
from agent_saga.errors import SagaClosed
from agent_saga_autogen import (
    Waiting,
    approve,
    compensable,
    deny,
    saga_agent,
    saga_run,
    saga_stream,
)


@pytest.fixture
def desk(shop):
    return Desk(shop)


class TestAState:
    def test_is_good_once(self, desk):
        waiting = desk.waiting(desk.agent([book("seat"), *PAY]))
        assert last(desk.goes_on(desk.agent("done"), waiting, approve(by="ann"))) == "done"
        with pytest.raises(SagaClosed, match="is COMMITTED"):
            desk.goes_on(desk.agent("done"), waiting, approve(by="ann"))
        desk.world.assert_applied_once("seat", "money")

    def test_is_refused_when_its_saga_has_gone_further(self, desk):
        waiting = desk.waiting(desk.agent(PAY))
        again = [call("pay", "p2", item="more")]
        assert isinstance(desk.goes_on(desk.agent(again), waiting, approve(by="ann")), Waiting)
        with pytest.raises(SagaClosed, match="gone further"):
            desk.goes_on(desk.agent("done"), waiting, approve(by="ann"))
        desk.world.assert_applied_once("money")

    def test_tells_of_the_saga_and_of_what_it_waits_for(self, desk):
        waiting = desk.waiting(desk.agent(PAY), key="order-17")
        assert waiting.state["saga"] == "order-17"
        [question] = waiting.questions
        assert (question["tool"], question["arguments"]) == ("pay", {"item": "money"})
        with pytest.raises(ConfigurationError, match="not of 'other'"):
            desk.goes_on(desk.agent("done"), waiting, approve(by="ann"), key="other")
        assert last(desk.goes_on(desk.agent("done"), waiting, deny(by="ann"))) == "done"
        desk.world.assert_untouched()

    def test_that_is_none_is_refused(self, desk):
        with pytest.raises(ConfigurationError, match="nothing says which run"):
            desk.run(desk.agent("done"), "go on", resume=approve(by="ann"))
        with pytest.raises(ConfigurationError, match="without a task"):
            desk.run(desk.agent("done"), "go on", state={})


class TestATurnThatWaits:
    def test_is_told_to_its_model_as_a_whole_in_the_order_of_its_calls(self, desk):
        waiting = desk.waiting(desk.agent([book("seat", "b1"), *PAY, book("room", "b2")]))
        agent = desk.agent("done")
        desk.goes_on(agent, waiting, approve(by="ann"))
        told = agent._model_client.seen[0][-1]
        assert [one.call_id for one in told.content] == ["b1", "p1", "b2"]
        assert not any(one.is_error for one in told.content)
        desk.world.assert_applied_once("seat", "room", "money")

    def test_knows_its_calls_where_an_id_was_used_before(self, desk):
        calls = [[book("seat", "c1")], [book("seat", "c1"), *PAY]]
        waiting = desk.waiting(desk.agent(*calls))
        result = desk.goes_on(desk.agent([book("seat", "c1")], "done"), waiting, approve(by="ann"))
        assert last(result) == "done"
        desk.world.assert_stands("money", "seat", "seat", "seat")

    def test_may_wait_again_for_some_of_its_calls(self, desk):
        both = [*PAY, call("ask", "a1", question="which?")]
        waiting = desk.waiting(desk.agent(both))
        ids = {q.get("tool", "text"): q["id"] for q in waiting.questions}
        agent = desk.agent()
        again = desk.goes_on(agent, waiting, {ids["pay"]: approve(by="ann")})
        assert [question["text"] for question in again.questions] == ["which?"]
        desk.world.assert_applied_once("money")
        assert last(desk.goes_on(desk.agent("done"), again, "the red one")) == "done"
        desk.world.assert_applied_once("money")

    def test_does_not_repeat_an_agent_that_was_a_tool_beside_it(self, desk):
        inner = [[book("seat")], "so"]
        tool = AgentTool(desk.bare(*inner, name="inner"))
        both = [call("inner", "i1", task="do it"), *PAY]
        waiting = desk.waiting(desk.agent(both, tools=[tool]))
        tool = AgentTool(desk.bare([book("seat")], "again", name="inner"))
        desk.goes_on(desk.agent("done", tools=[tool]), waiting, approve(by="ann"))
        desk.world.assert_applied_once("seat", "money")

    def test_in_a_team_is_told_to_all_of_it(self, desk):
        def team(*scripts):
            names = ["A", "B"]
            members = [desk.bare(*s, name=n) for n, s in zip(names, scripts, strict=True)]
            return saga_agent(
                RoundRobinGroupChat(members, max_turns=2), desk.kit, tools=desk.declared
            )

        waiting = desk.waiting(team([[book("seat"), *PAY]], []))
        assert set(waiting.state["turns"]) == {"A"}
        again = team(["fine"], ["good"])
        result = desk.goes_on(again, waiting, approve(by="ann"))
        assert {message.content for message in result.messages} >= {"fine", "good"}
        desk.world.assert_applied_once("seat", "money")

    def test_hands_over_only_when_it_is_told_to_again(self, desk):
        def team(one, other):
            members = [
                desk.bare(*one, handoffs=["B"]),
                desk.bare(*other, name="B"),
            ]
            made = Swarm(members, termination_condition=TextMentionTermination("TERMINATE"))
            return saga_agent(made, desk.kit, tools=desk.declared)

        over = call("transfer_to_b", "h1")
        waiting = desk.waiting(team([[*PAY, over]], []))
        again = team([[call("transfer_to_b", "h2")]], [[book("seat")], "TERMINATE"])
        result = desk.goes_on(again, waiting, approve(by="ann"))
        told = "\n".join(str(message.content) for message in result.messages)
        assert "transfer_to_b was not carried out" in told
        desk.world.assert_applied_once("money", "seat")


class TestAnAnswer:
    def test_must_fit_the_question_and_name_somebody(self, desk):
        waiting = desk.waiting(desk.agent([*PAY, call("ask", "a1", question="which?")]))
        ids = {q.get("tool", "text"): q["id"] for q in waiting.questions}
        wrong = ["yes", approve(by=" "), {ids["text"]: approve(by="ann")}, {"strange": "x"}]
        for answer in wrong:
            with pytest.raises(ConfigurationError):
                desk.goes_on(desk.agent("done"), waiting, answer)
        right = {ids["pay"]: approve(by="ann"), ids["text"]: "this one"}
        assert last(desk.goes_on(desk.agent("done"), waiting, right)) == "done"

    def test_is_given_to_a_tool_that_asks_before_its_effect(self, desk):
        waiting = desk.waiting(desk.agent([call("order", "o1", item="lamp")]))
        with pytest.raises(SagaAborted):
            desk.goes_on(desk.agent(DOWN), waiting, "the red one")
        assert [c.name for c in desk.world.calls("forward")] == ["the red one"]
        desk.world.assert_restored()


class TestWhatCannotWait:
    def test_is_refused_inside_a_tool(self, desk):
        tool = AgentTool(desk.bare(PAY, "so", name="inner"))
        script = [[call("inner", "i1", task="do it")], [book("seat")], "done"]
        assert last(desk.run(desk.agent(*script, tools=[tool]), "go on")) == "done"
        desk.world.assert_applied_once("seat")

    def test_is_refused_in_a_team_that_an_agent_runs(self, desk):
        team = RoundRobinGroupChat([desk.bare(PAY, "so")], max_turns=1)
        agent = saga_agent(
            SocietyOfMindAgent("mind", team, Scripted("fine")), desk.kit, tools=desk.declared
        )
        assert last(desk.run(agent, "go on")) == "fine"
        desk.world.assert_untouched()

    def test_is_a_run_inside_another_boundary(self, desk):
        async def case():
            async with desk.kit.transaction():
                result = await saga_run(desk.agent(PAY, "done"), "go on", kit=desk.kit)
                with pytest.raises(ConfigurationError, match="inside another boundary"):
                    await saga_run(desk.agent("done"), state={"saga": "x"}, kit=desk.kit)
                return result

        assert last(asyncio.run(case())) == "done"
        desk.world.assert_untouched()

    def test_is_an_effect_whose_inverse_has_no_name(self, desk):
        desk.declared["book"] = compensable(lambda result: None)
        with pytest.raises(SagaAborted, match="its inverse has no name"):
            desk.run(desk.agent([book("seat")], "done"), "go on")
        desk.world.assert_untouched()

    def test_is_a_question_to_a_human_where_the_gate_asks_nobody(self, desk, shop):
        agent = saga_agent(desk.bare([call("ask", "a1", question="?")]), tools=desk.declared)
        with pytest.raises(SagaAborted, match="cannot wait for a human's answer"):
            asyncio.run(saga_run(agent, "go on", kit=shop.kit))


def test_a_stream_ends_with_what_it_waits_for(desk):
    async def case():
        stream = saga_stream(desk.agent(PAY), "go on", kit=desk.kit)
        async for _ in stream:
            pass
        waiting = stream.result
        stream = saga_stream(
            desk.agent("done"), kit=desk.kit, state=waiting.state, resume=approve(by="ann")
        )
        told = [type(event).__name__ async for event in stream]
        return told, stream.result

    told, result = asyncio.run(case())
    assert told[0] == "ToolCallExecutionEvent"
    assert last(result) == "done"
    desk.world.assert_applied_once("money")


def test_a_failure_wins_over_a_question(desk):
    both = [*PAY, call("fails", "f1", item="x"), book("seat")]
    with pytest.raises(SagaAborted, match="no such item"):
        desk.run(desk.agent(both), "go on", on_tool_failure="rollback")
    desk.world.assert_restored()


@pytest.mark.parametrize(
    "other", [call("pay", "p1", item="other"), call("book", "p1", item="seat")]
)
def test_calls_that_share_an_id_do_not_wait(shop, other):
    """A human's yes would be for a call that nobody can tell from the other one."""
    desk = Desk(shop)
    turn = [call("pay", "p1", item="money"), other]
    result = desk.run(desk.agent(turn, "done"), "go on")
    assert not isinstance(result, Waiting)
    assert "money" not in shop.world.standing()
    answers = [
        one for m in result.messages if m.type == "ToolCallExecutionEvent" for one in m.content
    ]
    assert "shares its id" in answers[0].content

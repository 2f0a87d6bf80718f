"""Runs that wait: stored states, answers, and what each of them counts for."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from agents import Agent, Runner, RunState, SQLiteSession, function_tool
from scripted import Scripted, call

from agent_saga import (
    AgentKit,
    Approval,
    ConfigurationError,
    PreFlightGate,
    Rule,
    SagaAborted,
    tool_is,
)
from agent_saga.errors import SagaClosed, SagaSuspended
from agent_saga_openai_agents import (
    RunStateApprovals,
    approve,
    compensable,
    deny,
    irreversible,
    last_report,
    read_only,
    saga_agent,
    saga_run,
    saga_stream,
)
from agent_saga_testing.integration.driver import QUICK

PAY = [call("pay", "pay_1", item="money")]


class Desk:
    """A shop whose gate asks through states of runs."""

    def __init__(self, shop, approvals=None, **gate):
        self.shop, self.world = shop, shop.world
        provider = approvals or RunStateApprovals()
        self.kit = AgentKit(
            "desk",
            wal=str(shop.folder / "log"),
            gate=PreFlightGate(approval_provider=provider, **gate),
            settings=QUICK,
        )

        @function_tool
        def pay(item: str) -> dict:
            """Pay."""
            return shop.world.do(item)

        @function_tool(needs_approval=True)
        def order(item: str) -> dict:
            """Order."""
            return shop.world.do(item)

        self.pay, self.order = pay, order
        self.tools = [shop.book, shop.fails, pay, order]
        self.declared = {
            **shop.declared,
            "pay": irreversible(),
            "order": compensable(shop.undo),
        }

    def agent(self, *script):
        agent = Agent(name="A", model=Scripted(list(script)), tools=self.tools)
        return saga_agent(agent, self.kit, tools=self.declared)

    def run(self, agent, given="go on", **options):
        async def case():
            try:
                return await saga_run(agent, given, **options)
            finally:
                self.report = last_report()

        return asyncio.run(case())

    def stored(self, *script, **options):
        result = self.run(self.agent(*script), **options)
        assert result.interruptions
        assert self.report.outcome == "SUSPENDED"
        return result.to_state().to_string()

    def read(self, text, *script):
        agent = self.agent(*script)
        return agent, asyncio.run(RunState.from_string(agent, text))


@pytest.fixture
def desk(shop):
    return Desk(shop)


def texts(result):
    return " ".join(str(item.output) for item in result.new_items if hasattr(item, "output"))


class TestAStoredState:
    def test_is_gone_on_with_twice_by_the_bare_framework_and_once_as_a_saga(self, desk):
        async def bare():
            tools = [desk.order]
            first = Agent(name="A", model=Scripted([[call("order", item="seat")]]), tools=tools)
            text = (await Runner.run(first, "go on")).to_state().to_string()
            for _ in range(2):
                agent = Agent(name="A", model=Scripted(["done"]), tools=tools)
                state = await RunState.from_string(agent, text)
                state.approve(state.get_interruptions()[0])
                await Runner.run(agent, state)

        asyncio.run(bare())
        desk.world.assert_stands("seat", "seat")

        text = desk.stored([call("order", item="room")])
        agent, state = desk.read(text, "done")
        assert desk.run(agent, approve(state, by="ann")).final_output == "done"
        agent, state = desk.read(text, "done")
        with pytest.raises(SagaClosed, match="No saga waits"):
            desk.run(agent, approve(state, by="ann"))
        desk.world.assert_stands("seat", "seat", "room")

    def test_is_given_recorded_results_again_under_its_key(self, desk):
        text = desk.stored([call("order", item="room")], key="k")
        for _ in range(2):
            agent, state = desk.read(text, "done")
            result = desk.run(agent, approve(state, by="ann"), key="k")
            assert result.final_output == "done"
        desk.world.assert_applied_once("room")

    def test_is_refused_when_its_saga_has_gone_further(self, desk):
        text = desk.stored([call("order", item="room")], key="k")
        agent, state = desk.read(text, [call("order", item="car")])
        assert desk.run(agent, approve(state, by="ann"), key="k").interruptions
        agent, state = desk.read(text, "done")
        with pytest.raises(SagaClosed, match="gone further"):
            desk.run(agent, approve(state, by="ann"), key="k")
        desk.world.assert_applied_once("room")

    def test_is_refused_when_its_saga_was_undone(self, desk):
        text = desk.stored([call("order", item="room")], key="k")
        agent, state = desk.read(text, OSError("down"))
        with pytest.raises(SagaAborted):
            desk.run(agent, approve(state, by="ann"), key="k")
        agent, state = desk.read(text, "done")
        with pytest.raises(SagaClosed, match="ROLLED_BACK"):
            desk.run(agent, approve(state, by="ann"), key="k")
        desk.world.assert_restored()

    def test_of_a_run_that_was_no_boundary_is_refused(self, desk):
        agent = Agent(name="A", model=Scripted([[call("order", item="a")]]), tools=[desk.order])
        text = asyncio.run(Runner.run(agent, "go on")).to_state().to_string()
        agent, state = desk.read(text, "done")
        with pytest.raises(SagaClosed, match="No saga waits"):
            desk.run(agent, approve(state, by="ann"))

    def test_that_was_read_with_the_agent_as_it_was_is_refused(self, desk):
        text = desk.stored([call("order", item="room")])
        plain = Agent(name="A", model=Scripted(["done"]), tools=desk.tools)
        state = asyncio.run(RunState.from_string(plain, text))
        with pytest.raises(ConfigurationError, match="its tools are no steps"):
            desk.run(desk.agent("done"), approve(state, by="ann"))

    def test_is_not_gone_on_with_inside_a_boundary(self, desk):
        text = desk.stored([call("order", item="room")])
        agent, state = desk.read(text, "done")

        async def case():
            async with desk.kit.transaction():
                await saga_run(agent, approve(state, by="ann"))

        with pytest.raises(SagaAborted, match="outermost"):
            asyncio.run(case())

    def test_of_two_sagas_that_wait_for_the_same_ids_needs_a_key(self, desk):
        waits = [call("order", "one_id", item="room")]
        texts = [desk.stored(waits, key=key) for key in ("a", "b")]
        agent, state = desk.read(texts[0], "done")
        with pytest.raises(ConfigurationError, match="Several sagas"):
            desk.run(agent, approve(state, by="ann"))
        agent, state = desk.read(texts[1], "done")
        assert desk.run(agent, approve(state, by="ann"), key="b").final_output == "done"


class TestAnswers:
    def test_a_question_of_a_rule_waits_and_is_answered(self, shop):
        rule = Rule("seats", tool_is("book"), then="ask", reason="seats are dear")
        desk = Desk(shop, rules=[rule])
        text = desk.stored([call("book", item="seat")])
        desk.world.assert_untouched()
        agent, state = desk.read(text, "done")
        assert desk.run(agent, approve(state, by="ann")).final_output == "done"
        desk.world.assert_applied_once("seat")

    def test_a_no_is_told_to_the_model_with_its_note(self, desk):
        text = desk.stored(PAY)
        agent, state = desk.read(text, "done")
        result = desk.run(agent, deny(state, by="ann", note="not on a Sunday"))
        assert "not on a Sunday" in texts(result)
        desk.world.assert_untouched()

    def test_an_approval_in_nobodys_name_lets_nothing_through(self, desk):
        text = desk.stored(PAY)
        agent, state = desk.read(text, "done")
        state.approve(state.get_interruptions()[0])
        result = desk.run(agent, state)
        assert "does not say who gives it" in texts(result)
        desk.world.assert_untouched()

    def test_a_provider_may_be_told_in_whose_name_such_answers_are_given(self, shop):
        desk = Desk(shop, RunStateApprovals(by="the operator"))
        text = desk.stored(PAY)
        agent, state = desk.read(text, "done")
        state.approve(state.get_interruptions()[0])
        assert desk.run(agent, state).final_output == "done"
        desk.world.assert_applied_once("money")

    def test_one_of_several_questions_can_be_answered(self, desk):
        calls = [call("pay", "p1", item="first"), call("pay", "p2", item="second")]
        text = desk.stored(calls)
        agent, state = desk.read(text, "done")
        item = state.get_interruptions()[1]
        result = desk.run(agent, approve(state, by="ann", item=item))
        assert [one.raw_item.call_id for one in result.interruptions] == ["p1"]
        desk.world.assert_applied_once("second")
        agent, state = desk.read(result.to_state().to_string(), "done")
        assert desk.run(agent, deny(state, by="bob")).final_output == "done"
        desk.world.assert_applied_once("second")

    def test_an_answer_says_who_gives_it_and_to_what(self, desk):
        with pytest.raises(ConfigurationError, match="does not say who"):
            approve(by=" ")
        with pytest.raises(ConfigurationError, match="no state of a run"):
            approve("state", by="ann")
        result = desk.run(desk.agent("done"))
        with pytest.raises(ConfigurationError, match="waits for nothing"):
            deny(result.to_state(), by="ann")

    def test_a_gate_that_asks_in_its_place_needs_no_state(self, shop):
        class Human:
            def ask(self, request):
                return Approval(approved=True, by="ann")

        desk = Desk(shop, Human())
        desk.tools.remove(desk.order)
        del desk.declared["order"]
        assert desk.run(desk.agent(PAY, "done")).final_output == "done"
        desk.world.assert_applied_once("money")

    def test_a_run_inside_another_boundary_cannot_ask(self, desk):
        async def case():
            async with desk.kit.transaction():
                return await saga_run(desk.agent(PAY, "done"), "go on")

        assert "refused" in texts(asyncio.run(case()))
        desk.world.assert_untouched()

    def test_a_streamed_run_waits_too(self, desk):
        async def case():
            stream = saga_stream(desk.agent([call("order", item="seat")]), "go on")
            async for _ in stream:
                pass
            return stream.result.to_state().to_string()

        agent, state = desk.read(asyncio.run(case()), OSError("down"))
        with pytest.raises(SagaAborted):
            desk.run(agent, approve(state, by="ann"))
        desk.world.assert_restored()


class TestAfterAFailure:
    FAILS = ([call("book", item="seat")], [call("fails", item="x")])

    @pytest.fixture
    def how(self, desk):
        with closing(SQLiteSession("s", desk.shop.folder / "session.sqlite")) as session:
            yield {"session": session, "key": "k", "on_tool_failure": "ask"}

    def test_the_run_is_left_suspended_and_goes_on_from_its_session(self, desk, how):
        with pytest.raises(SagaSuspended):
            desk.run(desk.agent(*self.FAILS), **how)
        result = desk.run(desk.agent("done"), approve(by="ann"), **how)
        assert result.final_output == "done"
        with pytest.raises(SagaClosed, match="COMMITTED"):
            desk.run(desk.agent("done"), approve(by="ann"), **how)
        desk.world.assert_applied_once("seat")

    def test_a_no_undoes_it(self, desk, how):
        with pytest.raises(SagaSuspended):
            desk.run(desk.agent(*self.FAILS), **how)
        with pytest.raises(SagaAborted, match="ann said no"):
            desk.run(desk.agent("done"), deny(by="ann"), **how)
        desk.world.assert_restored()

    @pytest.mark.parametrize("missing", ["session", "key"])
    def test_it_needs_a_session_and_a_key(self, desk, how, missing):
        del how[missing]
        with pytest.raises(ConfigurationError, match="session"):
            desk.run(desk.agent(*self.FAILS), **how)
        with pytest.raises(ConfigurationError, match="session"):
            desk.run(desk.agent("done"), approve(by="ann"), **how)
        desk.world.assert_untouched()


class TestAnInnerAgentThatWaits:
    def nest(self, desk, inner, *after, begins=True):
        made = Agent(name="inner", model=Scripted(list(inner)), tools=desk.tools)
        given = [[call("ask_inner", input="q")]] if begins else []
        outer = Agent(
            name="A",
            model=Scripted([*given, *after]),
            tools=[made.as_tool("ask_inner", "Ask.", failure_error_function=None)],
        )
        return saga_agent(outer, desk.kit, tools=desk.declared)

    INNER = ([call("book", "in_1", item="seat")], [call("order", "in_2", item="room")])

    def test_goes_on_in_the_same_saga_and_repeats_no_effect(self, desk):
        agent = self.nest(desk, (*self.INNER, "in"), "done")
        result = desk.run(agent)
        assert [item.name for item in result.interruptions] == ["order"]
        result = desk.run(agent, approve(result.to_state(), by="ann"))
        assert result.final_output == "done"
        desk.world.assert_applied_once("seat", "room")

    @pytest.mark.parametrize("how", ["at once", "from a text"])
    def test_is_no_other_runs_though_its_model_uses_the_same_ids(self, desk, how):
        runs = {}
        for who in ("ann", "bob"):
            turns = [call("book", "in_1", item=f"{who}'s")], [call("order", "in_2", item=who)]
            made = Agent(name="inner", model=Scripted([*turns, "in"]), tools=desk.tools)
            given = [[call("ask_inner", "one_id", input="q")], "done"]
            tools = [made.as_tool("ask_inner", "Ask.", failure_error_function=None)]
            outer = Agent(name="A", model=Scripted(given), tools=tools)
            agent = saga_agent(outer, desk.kit, tools=desk.declared)
            runs[who] = agent, desk.run(agent, key=who)
        for who, (agent, result) in reversed(runs.items()):
            assert [who in item.raw_item.arguments for item in result.interruptions] == [True]
            state = result.to_state()
            if how == "from a text":
                state = asyncio.run(RunState.from_string(agent, state.to_string()))
            assert desk.run(agent, approve(state, by="eve"), key=who).final_output == "done"
        desk.world.assert_stands("ann's", "bob's", "bob", "ann")

    def test_goes_on_from_a_text_with_other_agents(self, desk):
        text = desk.run(self.nest(desk, self.INNER)).to_state().to_string()
        agent = self.nest(desk, ("in",), "done", begins=False)
        state = asyncio.run(RunState.from_string(agent, text))
        assert desk.run(agent, approve(state, by="ann")).final_output == "done"
        desk.world.assert_applied_once("seat", "room")

    def test_may_do_after_that_what_it_did_before(self, desk):
        again = [call("book", "in_3", item="seat")]
        agent = self.nest(desk, (*self.INNER, again, "in"), "done")
        result = desk.run(agent)
        assert desk.run(agent, approve(result.to_state(), by="ann")).final_output == "done"
        desk.world.assert_stands("seat", "room", "seat")

    def test_is_asked_about_by_the_gate_too(self, desk):
        agent = self.nest(desk, (self.INNER[0], PAY, "in"), "done")
        result = desk.run(agent)
        assert [item.name for item in result.interruptions] == ["pay"]
        desk.world.assert_applied_once("seat")
        result = desk.run(agent, approve(result.to_state(), by="ann"))
        assert result.final_output == "done"
        desk.world.assert_applied_once("seat", "money")

    def test_is_undone_whole_when_it_fails_after_that(self, desk):
        agent = self.nest(desk, (*self.INNER, OSError("down")), "done")
        result = desk.run(agent)
        desk.world.assert_applied_once("seat")
        with pytest.raises(SagaAborted):
            desk.run(agent, approve(result.to_state(), by="ann"))
        desk.world.assert_restored()


def test_where_a_run_can_wait_an_inverse_needs_a_name(desk):
    desk.declared["book"] = compensable(lambda result: None)
    with pytest.raises(SagaAborted, match="no name"):
        desk.run(desk.agent([call("book", item="seat")], "done"))
    desk.world.assert_untouched()


def test_a_run_that_can_wait_needs_a_log_in_files(shop):
    kit = AgentKit("nowhere", wal="memory:")

    @function_tool(needs_approval=True)
    def ask(question: str) -> str:
        """Ask."""
        return "yes"

    agent = saga_agent(
        Agent(name="A", model=Scripted([]), tools=[ask]), kit, tools={"ask": read_only()}
    )
    with pytest.raises(ConfigurationError, match="a log in files"):
        asyncio.run(saga_run(agent, "go on"))

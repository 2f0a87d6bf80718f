"""States of waiting runs: what they keep, and that a bad one costs nothing."""

from __future__ import annotations

import asyncio
import copy
import json

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core.tools import FunctionTool
from desk import PAY, Desk, book, last
from hypothesis import assume, given
from hypothesis import strategies as st
from scripted import call

from agent_saga import ConfigurationError, SagaAborted
from agent_saga.errors import AgentSagaError, SagaClosed
from agent_saga.plugins.registry import process_handlers
from agent_saga_autogen import approve, read_only, saga_agent, saga_run

YES = approve(by="ann")
FAILS = [call("fails", "f1", item="room")]
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(2, 99), st.text(max_size=3), st.just([]), st.just({})
)


@pytest.fixture
def desk(shop):
    return Desk(shop)


def team(desk, *scripts, kind=RoundRobinGroupChat, **options):
    members = [
        desk.bare(*script, name=name, **options)
        for name, script in zip("AB", scripts, strict=False)
    ]
    return saga_agent(kind(members, max_turns=2), desk.kit, tools=desk.declared)


class TestWhatAToolFailureMeans:
    def test_is_kept_while_the_run_waits(self, desk):
        waiting = desk.waiting(desk.agent([book("seat"), *PAY]), on_tool_failure="rollback")
        with pytest.raises(SagaAborted, match="no such item"):
            desk.goes_on(desk.agent(FAILS, "done"), waiting, YES)
        assert desk.world.undone() == ["seat"]
        desk.world.assert_stands("money")

    def test_is_kept_where_the_run_waits_again(self, desk):
        waiting = desk.waiting(desk.agent(PAY), on_tool_failure="rollback")
        again = [call("pay", "p2", item="more")]
        waiting = desk.goes_on(desk.agent(again), waiting, YES)
        with pytest.raises(SagaAborted, match="no such item"):
            desk.goes_on(desk.agent(FAILS, "done"), waiting, YES)

    def test_is_kept_where_the_run_is_gone_on_with_by_its_key(self, desk):
        desk.waiting(desk.agent([book("seat", "b1"), *PAY]), on_tool_failure="rollback", key="k")
        with pytest.raises(SagaAborted, match="no such item"):
            desk.run(desk.agent([book("seat", "b1")], FAILS, "done"), "go on", key="k")
        desk.world.assert_restored()

    def test_is_what_its_caller_says_now(self, desk):
        waiting = desk.waiting(desk.agent(PAY), on_tool_failure="rollback")
        agent = desk.agent(FAILS, "done")
        assert last(desk.goes_on(agent, waiting, YES, on_tool_failure="continue")) == "done"

    def test_is_the_agents_where_nobody_ever_said(self, desk):
        agent = saga_agent(
            desk.bare(PAY), desk.kit, tools=desk.declared, on_tool_failure="rollback"
        )
        with pytest.raises(SagaAborted, match="no such item"):
            desk.goes_on(desk.agent(FAILS, "done"), desk.waiting(agent), YES)


def bad_states(state):
    yield "is text", json.dumps(state)
    yield "is text", json.dumps(state).encode()
    yield "no dict", [state]
    yield "it has no 'saga'", {}
    for key in state:
        yield f"no '{key}'", {k: v for k, v in state.items() if k != key}
        yield f"its '{key}' is", {**state, key: None}
    yield "its 'saga' is", {**state, "saga": ""}
    yield "is none that", {**state, "turns": {"A": {}}}
    yield "is none that", {**state, "turns": {"A": [1]}}
    yield "is none that", {**state, "turns": {"A": {"calls": [1], "results": []}}}
    yield "was changed since", {**state, "turns": {}}
    yield "was changed since", {**state, "agent": {}}
    yield "no plain data", {**state, "agent": {"x": object()}}


class TestABadState:
    def test_is_refused_in_words_and_costs_nothing(self, desk):
        waiting = desk.waiting(team(desk, [[book("seat"), *PAY]]))
        for words, state in bad_states(waiting.state):
            with pytest.raises(ConfigurationError, match=words) as refused:
                desk.run(team(desk, ["no"]), state=state, resume=YES)
            assert "saga_run" in refused.value.fix
        with pytest.raises(SagaClosed, match="gone further"):
            desk.run(team(desk, ["no"]), state={**waiting.state, "saga": "x"}, resume=YES)
        desk.world.assert_applied_once("seat")
        assert last(desk.goes_on(team(desk, ["done", "so"]), waiting, YES))
        desk.world.assert_applied_once("seat", "money")

    def test_may_be_stored_where_numbers_change_their_form(self, desk):
        waiting = desk.waiting(desk.agent(PAY))
        state = json.loads(json.dumps(waiting.state), parse_int=float)
        assert last(desk.run(desk.agent("done"), state=state, resume=YES)) == "done"
        desk.world.assert_applied_once("money")


class TestAStateOfAnother:
    @staticmethod
    def others(desk):
        def look(item: str) -> str:
            return item

        look = FunctionTool(look, description="Look.")
        alone = saga_agent(
            desk.shop.agent("no", tools=[look]), desk.kit, tools={"look": read_only()}
        )
        yield "an agent A, and there is none", desk.agent("no", name="B")
        yield "calls of pay, and has no such tool", alone
        yield "of an agent .* given to a team of A, B", team(desk, ["no"], ["no"])
        yield "of an agent .* given to a team of A", team(desk, ["no"])

    def test_agent_is_refused_and_costs_nothing(self, desk):
        waiting = desk.waiting(desk.agent([book("seat"), *PAY]))
        for words, other in self.others(desk):
            with pytest.raises(ConfigurationError, match=words):
                desk.goes_on(other, waiting, YES)
        assert last(desk.goes_on(desk.agent("done"), waiting, YES)) == "done"
        desk.world.assert_applied_once("seat", "money")

    def test_team_is_refused_and_costs_nothing(self, desk):
        waiting = desk.waiting(team(desk, [[book("seat"), *PAY]], []))
        three = team(desk, ["no"], ["no"], kind=Swarm, handoffs=["B"])
        for other in (desk.agent("no"), team(desk, ["no"]), three):
            with pytest.raises(ConfigurationError, match="The state is of a team of A, B"):
                desk.goes_on(other, waiting, YES)
        assert last(desk.goes_on(team(desk, ["so"], ["done"]), waiting, YES))
        desk.world.assert_applied_once("seat", "money")

    def test_leaves_an_agent_what_it_remembers_where_it_takes_a_part_of_it(self, desk):
        waiting = desk.waiting(desk.agent(PAY))
        other = desk.agent("done")

        class Odd:
            async def load(self, state):
                await kept(state)
                if any(dict(one)["type"] != "UserMessage" for one in state["messages"]):
                    raise LookupError("another version")

        kept, other.model_context.load_state = other.model_context.load_state, Odd().load
        with pytest.raises(ConfigurationError, match="another version"):
            desk.goes_on(other, waiting, YES)
        assert not asyncio.run(other.model_context.get_messages())
        assert last(desk.goes_on(desk.agent("done"), waiting, YES)) == "done"


def places(value, path=()):
    """Give every place in plain data."""
    yield path
    if not isinstance(value, (dict, list)):
        return
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield from places(each, (*path, key))


def changed(state, path, how):
    """Return plain data in which one place is left out, or something else."""
    if not path:
        return how[1] if how[0] == "other" else {}
    made = copy.deepcopy(state)
    owner = made
    for key in path[:-1]:
        owner = owner[key]
    if how[0] == "other":
        owner[path[-1]] = how[1]
    else:
        del owner[path[-1]]
    return made


@pytest.mark.property
def test_whatever_is_changed_in_a_state_it_is_refused_and_costs_nothing(tmp_path):
    from conftest import Shop

    with process_handlers().isolated():
        desk = Desk(Shop(tmp_path))
        waiting = desk.waiting(team(desk, [[book("seat"), *PAY]]))
        state = json.loads(json.dumps(waiting.state))
        agent = team(desk, ["done", "so"])
        spots = st.sampled_from(list(places(state)))
        hows = st.one_of(st.just(("left out",)), st.tuples(st.just("other"), _LEAVES))
        with asyncio.Runner() as runner:

            @given(spots, hows)
            def refused(path, how):
                odd = changed(state, path, how)
                assume(odd != state and odd is not None)
                with pytest.raises((ConfigurationError, SagaClosed)) as error:
                    runner.run(saga_run(agent, kit=desk.kit, state=odd, resume=YES))
                assert isinstance(error.value, AgentSagaError)
                assert error.value.fix

            refused()
            desk.world.assert_applied_once("seat")
            runner.run(saga_run(agent, kit=desk.kit, state=state, resume=YES))
    desk.world.assert_applied_once("seat", "money")

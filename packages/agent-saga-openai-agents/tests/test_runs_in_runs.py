"""Runs inside boundaries and runs, with call ids that models use again; and runs that are read."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from agents import Agent, SQLiteSession, function_tool, handoff
from scripted import Scripted, call
from test_agents import agent_of, book, run

from agent_saga import SagaAborted, SagaSuspended
from agent_saga.errors import ReplayConflict, UndeclaredTool
from agent_saga_openai_agents import read_only, saga_agent, saga_run, saga_run_sync

SAME_ID = [call("book", "call_0", item="seat")]


def under_care(shop, script, tools=None, declared=None, **options):
    return saga_agent(
        agent_of(shop, script, tools, **options), shop.kit, tools=declared or shop.declared
    )


class TestOneTransaction:
    """Two runs that order the same are two orders, whatever ids their models give the calls."""

    @pytest.mark.parametrize("turn", [lambda: SAME_ID, lambda: book("seat")], ids=["same", "own"])
    @pytest.mark.parametrize("at_once", [False, True])
    def test_equal_calls_of_two_runs_are_two(self, shop, turn, at_once):
        async def case():
            runs = [saga_run(under_care(shop, [turn(), "done"]), "go on") for _ in range(2)]
            async with shop.kit.transaction():
                if at_once:
                    await asyncio.gather(*runs)
                else:
                    [await one for one in runs]

        asyncio.run(case())
        shop.world.assert_stands("seat", "seat")

    def test_equal_calls_of_two_runs_in_one_tool_are_two(self, shop):
        @function_tool
        async def delegate(item: str) -> str:
            """Let two agents do it side by side."""
            runs = [saga_run(under_care(shop, [SAME_ID, "in"]), "go on") for _ in range(2)]
            await asyncio.gather(*runs)
            return item

        outer = agent_of(shop, [[call("delegate", item="x")], OSError("down")], [delegate])
        with pytest.raises(SagaAborted) as failed:
            run(shop, outer, {"delegate": read_only()})
        assert failed.value.report.clean
        assert shop.world.undone() == ["seat", "seat"]

    def test_a_transaction_that_is_gone_on_with_repeats_no_effect(self, shop):
        for _ in range(2):
            with shop.kit.transaction(saga_id="two-runs", resume=True):
                for _ in range(2):
                    saga_run_sync(under_care(shop, [book("seat"), "done"]), "go on")
        shop.world.assert_stands("seat", "seat")


def gone_on_with(shop, *scripts, **options):
    """Run a program that is left after each run but the last, and gone on with."""
    for script in scripts:
        with contextlib.suppress(SagaSuspended):  # noqa: SIM117 - the saga is left inside
            with shop.kit.transaction(saga_id="p", resume=True, suspendable=True) as saga:
                saga_run_sync(under_care(shop, [*script, "done"]), "go on", **options)
                if script is not scripts[-1]:
                    saga.suspend("the program is left here")


class TestATransactionThatIsGoneOnWith:
    @pytest.mark.parametrize("second", [[book("room")], []], ids=["other", "none"])
    def test_is_undone_if_a_run_in_it_goes_another_way(self, shop, second):
        with pytest.raises(SagaAborted) as failed:
            gone_on_with(shop, [book("seat")], second)
        assert isinstance(failed.value.cause, ReplayConflict)
        assert failed.value.report.clean
        shop.world.assert_stands()

    def test_is_committed_if_it_goes_the_same_way(self, shop):
        gone_on_with(shop, [book("seat")], [book("seat")])
        shop.world.assert_applied_once("seat")

    def test_knows_from_a_session_what_was_done(self, shop):
        gone_on_with(shop, [book("seat")], [], session=SQLiteSession("s"))
        shop.world.assert_applied_once("seat")


def test_a_finished_run_is_given_again_with_what_it_read(shop):
    read = []

    @function_tool
    def look(item: str) -> str:
        """Look."""
        read.append(item)
        return item

    declared = {**shop.declared, "look": read_only()}
    for _ in range(2):
        script = [[call("look", item="seat")], book("seat"), "done"]
        agent = under_care(shop, script, [shop.book, shop.fails, look], declared)
        assert saga_run_sync(agent, "go on", key="order-17").final_output == "done"
    assert read == ["seat"]
    shop.world.assert_applied_once("seat")


class TestToolsThatComeLater:
    """A bare tool in an agent under care would have effects that no saga knows of."""

    @pytest.fixture
    def late(self, shop):
        @function_tool
        def late(item: str) -> dict:
            """Come late."""
            return shop.world.do(item)

        return late

    def script(self):
        return [book("seat"), [call("late", item="late")], OSError("down")]

    @pytest.mark.parametrize("how", ["appended", "cloned"])
    def test_one_that_nobody_declared_ends_the_run(self, shop, late, how):
        agent = under_care(shop, self.script())
        if how == "cloned":
            agent = agent.clone(tools=[*agent.tools, late])
        else:
            agent.tools.append(late)
        with pytest.raises(SagaAborted) as failed:
            saga_run_sync(agent, "go on")
        assert isinstance(failed.value.cause, UndeclaredTool)
        shop.world.assert_untouched()

    def test_one_that_a_tool_brings_ends_the_run_before_it_runs(self, shop, late):
        @function_tool
        def learn(item: str) -> str:
            """Learn another tool."""
            agent.tools.append(late)
            return item

        script = [book("seat"), [call("learn", item="x")], *self.script()[1:]]
        declared = {**shop.declared, "learn": read_only()}
        agent = under_care(shop, script, [shop.book, shop.fails, learn], declared)
        with pytest.raises(SagaAborted) as failed:
            saga_run_sync(agent, "go on")
        assert isinstance(failed.value.cause, UndeclaredTool)
        shop.world.assert_restored()

    def test_one_that_is_declared_is_a_step(self, shop, late):
        declared = {**shop.declared, "late": shop.declared["book"]}
        agent = under_care(shop, self.script(), [shop.book, shop.fails, late], declared)
        agent.tools[-1] = late
        with pytest.raises(SagaAborted) as failed:
            saga_run_sync(agent, "go on")
        assert isinstance(failed.value.cause, OSError)
        assert shop.world.undone() == ["late", "seat"]

    def test_an_agent_that_becomes_a_tool_later_is_under_care(self, shop):
        inner = Agent(name="B", model=Scripted([book("room"), "in"]), tools=[shop.book])
        agent = under_care(shop, [[call("ask", input="q")], OSError("down")])
        agent.tools.append(inner.as_tool("ask", "Ask."))
        with pytest.raises(SagaAborted):
            saga_run_sync(agent, "go on")
        assert shop.world.undone() == ["room"]


def test_an_agent_that_shows_only_in_the_run_need_not_have_all_tools(shop):
    other = Agent(name="B", model=Scripted([book("room"), OSError("down")]), tools=[shop.book])
    made = handoff(other)
    made._agent_ref = None
    first = agent_of(shop, [[call("transfer_to_b", "h1")]], handoffs=[made])
    with pytest.raises(SagaAborted) as failed:
        run(shop, first)
    assert isinstance(failed.value.cause, OSError)
    shop.world.assert_restored()


@pytest.mark.parametrize("by", ["run", "agent"])
def test_a_run_inside_a_tool_is_undone_where_it_alone_was_asked_to_be(shop, by):
    inside = []

    @function_tool
    async def delegate(item: str) -> str:
        """Let another agent do it, or nothing."""
        script = [book("seat"), [call("fails", item=item)], "in"]
        how = {"on_tool_failure": "rollback"}
        agent = agent_of(shop, script)
        inner = saga_agent(agent, shop.kit, tools=shop.declared, **(how if by == "agent" else {}))
        try:
            await saga_run(inner, "go on", **(how if by == "run" else {}))
        except SagaAborted as aborted:
            inside.append(aborted.cause)
        return item

    outer = agent_of(
        shop, [[call("delegate", item="x")], book("room"), "done"], [delegate, shop.book]
    )
    declared = {"delegate": read_only(), "book": shop.declared["book"]}
    assert run(shop, outer, declared).final_output == "done"
    assert [type(one) for one in inside] == [RuntimeError]
    shop.world.assert_stands("room")

"""Runs that are gone on with from their log alone: what they did stands, and their history is lost.

A run that waited is begun again under its key, as after a crash without a session: the model is
asked from the beginning, and calls its tools under new ids.
"""

from __future__ import annotations

import contextlib

import pytest
from agents import Agent, function_tool
from scripted import Scripted, call
from test_approvals import Desk

from agent_saga import AgentKit, Approval, PreFlightGate, SagaAborted
from agent_saga.errors import ResultNotRecorded
from agent_saga_openai_agents import compensable, saga_agent
from agent_saga_testing.integration.driver import QUICK


class Ticket:
    """A result that no log can give again as it was."""

    def __init__(self, made):
        self.id = made["id"]


@pytest.fixture
def desk(shop):
    desk = Desk(shop)

    @function_tool
    def ticket(item: str) -> Ticket:
        """Buy a ticket."""
        return Ticket(shop.world.do(item))

    desk.tools.append(ticket)
    desk.declared["ticket"] = compensable(shop.undo)
    return desk


def waits(desk, *turns):
    """Run until an order waits for its approval."""
    result = desk.run(desk.agent(*turns, [call("order", item="late")], "done"), key="k")
    assert result.interruptions


def test_a_run_that_waited_and_is_begun_again_repeats_no_effect(desk):
    waits(desk, [call("book", item="seat")])
    desk.run(desk.agent([call("book", item="seat")], [call("order", item="late")]), key="k")
    desk.world.assert_applied_once("seat")
    with pytest.raises(SagaAborted):
        desk.run(desk.agent([call("book", item="room")], "done"), key="k")
    desk.world.assert_restored()


def test_a_result_that_cannot_be_given_again_ends_the_run(desk):
    waits(desk, [call("ticket", item="seat")])
    again = desk.agent([call("ticket", item="seat")], [call("ticket", item="seat")], "done")
    with pytest.raises(SagaAborted) as failed:
        desk.run(again, key="k")
    assert isinstance(failed.value.cause, ResultNotRecorded)
    desk.world.assert_never_twice()
    desk.world.assert_restored()


def test_what_an_undone_agent_had_to_keep_is_not_done_again(desk):
    """An agent that is a tool wired money, and then its run failed: the money is gone."""

    class Yes:
        def ask(self, request):
            return Approval(approved=True, by="ann")

    def outer(*turns):
        inner = Agent(
            name="I",
            model=Scripted([[call("pay", item="money")], ValueError("the inner model is down")]),
            tools=[desk.pay],
        )
        tools = [*desk.tools, inner.as_tool("delegate", "Ask.")]
        agent = Agent(name="O", model=Scripted(list(turns)), tools=tools)
        return saga_agent(agent, kit, tools=desk.declared)

    kit = AgentKit(
        "wires",
        wal=str(desk.shop.folder / "log"),
        gate=PreFlightGate(approval_provider=Yes()),
        settings=QUICK,
    )
    delegate = [call("delegate", input="pay")]
    result = desk.run(outer(delegate, [call("order", item="late")]), key="k")
    assert result.interruptions
    assert desk.world.applications(name="money") == 1
    with contextlib.suppress(SagaAborted):
        desk.run(outer(delegate, "done"), key="k")
    desk.world.assert_applied_once("money")

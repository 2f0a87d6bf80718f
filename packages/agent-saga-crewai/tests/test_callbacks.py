"""Callbacks of the program that raise after effects: what was done is undone, however it runs."""

from __future__ import annotations

import asyncio

import pytest
from crewai.flow import human_feedback
from crewai.flow.flow import Flow, start
from crewai.flow.persistence import persist
from crewai.flow.persistence.sqlite import SQLiteFlowPersistence
from scripted import call

from agent_saga import SagaAborted
from agent_saga_crewai import last_report, saga_agent, wrap_tool

SEAT = [call("book", item="seat")]
pytestmark = pytest.mark.filterwarnings("ignore:function callbacks cannot be serialized")
OPTIONS = {
    "step of the agent": lambda raising: {"step_callback": raising},
    "step of the crew": lambda raising: {"crew": {"step_callback": raising}},
    "task of the crew": lambda raising: {"crew": {"task_callback": raising}},
    "task": lambda raising: {"task": {"callback": raising}},
    "guardrail": lambda raising: {"task": {"guardrail": lambda output: (raising(output), "")}},
    "after the run": lambda raising: {"crew": {"after_kickoff_callbacks": [raising]}},
}
HOW = {
    "kickoff": lambda agent: agent.kickoff(),
    "akickoff": lambda agent: asyncio.run(agent.akickoff()),
    "kickoff_async": lambda agent: asyncio.run(agent.kickoff_async()),
}


def raising(kind):
    def callback(*_, **__):
        raise kind("no")

    return callback


def check_undone(shop, agent, how, kind):
    with pytest.raises(SagaAborted if issubclass(kind, Exception) else kind) as failed:
        HOW[how](agent)
    if isinstance(failed.value, SagaAborted):
        assert "no" in str(failed.value.cause)
        assert failed.value.report.clean
    assert shop.world.undone() == ["seat"]
    shop.world.assert_restored()


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("where", OPTIONS)
def test_what_was_done_before_a_callback_raised_is_undone(shop, where, how, kind):
    crew = shop.crew(SEAT, "done", **OPTIONS[where](raising(kind)))
    check_undone(shop, saga_agent(crew, shop.kit, tools=shop.declared), how, kind)


def test_what_crewai_hides_of_a_callback_is_a_run_that_ended_well(shop):
    crew = shop.crew(SEAT, "done", native=False, step_callback=raising(ValueError))
    assert saga_agent(crew, shop.kit, tools=shop.declared).kickoff().raw == "done"
    assert last_report().outcome == "COMMITTED"
    shop.world.assert_stands("seat")


class Asks:
    """Asks a human for feedback, who is not there."""

    def __init__(self, kind):
        self.request_feedback = raising(kind)


class Keeps(SQLiteFlowPersistence):
    """Keeps nothing: it raises."""

    def save_state(self, *_, **__):
        raise ValueError("no")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_what_a_flow_did_before_its_human_could_not_be_asked_is_undone(shop, how, kind):
    book = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)

    class Trip(Flow):
        @start()
        @human_feedback(message="well?", provider=Asks(kind))
        def act(self):
            book.run(item="seat")

    check_undone(shop, saga_agent(Trip(), shop.kit), how, kind)


@pytest.mark.parametrize("how", HOW)
def test_what_a_flow_did_before_its_state_could_not_be_kept_is_undone(shop, how):
    book = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)

    @persist(Keeps(str(shop.folder / "flows.sqlite")))
    class Trip(Flow):
        @start()
        def act(self):
            book.run(item="seat")

    check_undone(shop, saga_agent(Trip(), shop.kit), how, ValueError)

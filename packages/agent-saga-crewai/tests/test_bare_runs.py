"""Crews and agents that are run by their own `kickoff`, in a boundary of the program."""

from __future__ import annotations

import asyncio

import pytest
from crewai import Crew, Task
from scripted import call, once_more

from agent_saga import SagaAborted
from agent_saga_crewai import wrap_tool, wrap_tools

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]
DELEGATE = [call("delegate_work_to_coworker", task="book it", context="a trip", coworker="worker")]
LOST = ConnectionError("the network")


class Desk:
    """Crews and agents with wrapped tools, whose runs are no boundaries."""

    def __init__(self, shop):
        self.shop = shop
        self.tools = wrap_tools([shop.book, shop.fails], shop.declared, kit=shop.kit)

    def agent(self, *script, **options):
        return self.shop.agent(*script, tools=self.tools, **options)

    def crew(self, *script, task=None, **options):
        agent = self.agent(*script, **options)
        given = {"description": "go on", "expected_output": "a word", **(task or {})}
        return Crew(agents=[agent], tasks=[Task(agent=agent, **given)])

    def delegating(self, boss, worker, **task):
        clerk = self.agent(*worker, role="worker")
        first = self.agent(*boss, role="boss", allow_delegation=True)
        given = {"description": "go on", "expected_output": "a word", **task}
        return Crew(agents=[first, clerk], tasks=[Task(agent=first, **given)])


@pytest.fixture
def desk(shop):
    return Desk(shop)


def kicked_off(work, kit, *given):
    with kit.transaction():
        return work.kickoff(*given).raw


def kicked_off_on_a_loop(work, kit, *given):
    async def run():
        async with kit.transaction():
            how = work.akickoff if isinstance(work, Crew) else work.kickoff_async
            return (await how(*given)).raw

    return asyncio.run(run())


@pytest.mark.guarantee("CREWAI-8")
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("run", [kicked_off, kicked_off_on_a_loop])
@pytest.mark.parametrize("again", ["guardrail", "model"])
def test_a_task_that_is_tried_again_repeats_no_effect(desk, again, run, native):
    task = once_more() if again == "guardrail" else {}
    between = "first" if again == "guardrail" else LOST
    crew = desk.crew(SEAT, between, SEAT, ROOM, "second", task=task, native=native)
    assert run(crew, desk.shop.kit) == "second"
    desk.shop.world.assert_applied_once("seat", "room")


def test_an_agent_by_itself_that_is_asked_again_repeats_no_effect(desk):
    agent = desk.agent(SEAT, "first", SEAT, ROOM, "second", **once_more())
    assert kicked_off(agent, desk.shop.kit, "go on") == "second"
    desk.shop.world.assert_applied_once("seat", "room")


def test_equal_calls_of_one_attempt_are_two_and_stay_two(desk):
    crew = desk.crew(SEAT, ROOM, SEAT, "first", SEAT, SEAT, SEAT, "second", task=once_more())
    kicked_off(crew, desk.shop.kit)
    desk.shop.world.assert_stands("seat", "room", "seat", "seat")


def test_equal_calls_of_two_runs_and_of_the_program_are_each_one(desk):
    with desk.shop.kit.transaction():
        crew = desk.crew(SEAT, "first", SEAT, "again", SEAT, "second", task=once_more())
        for _ in range(2):
            crew.kickoff()
        desk.tools[0].run(item="seat")
        for _ in range(2):
            desk.agent(SEAT, "done").kickoff("go on")
    desk.shop.world.assert_stands(*["seat"] * 5)


def test_a_task_that_fails_for_good_is_left_behind(desk):
    with desk.shop.kit.transaction():
        with pytest.raises(ConnectionError):
            desk.crew(SEAT, LOST, SEAT, LOST, SEAT, LOST).kickoff()
        desk.tools[0].run(item="seat")
    desk.shop.world.assert_stands("seat", "seat")


def test_what_was_delegated_is_repeated_by_nobody(desk):
    boss = [DELEGATE, ROOM, "first", DELEGATE, ROOM, ROOM, "second"]
    worker = [SEAT, LOST, SEAT, "one", SEAT, "two"]
    assert kicked_off(desk.delegating(boss, worker, **once_more()), desk.shop.kit) == "second"
    desk.shop.world.assert_stands("seat", "room", "room")


def test_what_is_delegated_twice_is_done_twice(desk):
    worker = [SEAT, "one", SEAT, LOST, SEAT, "two"]
    kicked_off(desk.delegating([DELEGATE, ROOM, DELEGATE, "done"], worker), desk.shop.kit)
    desk.shop.world.assert_stands("seat", "room", "seat")


def test_a_run_that_fails_undoes_each_effect_once(desk):
    crew = desk.crew(SEAT, LOST, SEAT, ROOM, LOST, SEAT, ROOM, LOST)
    with pytest.raises(SagaAborted) as failed:
        kicked_off(crew, desk.shop.kit)
    assert failed.value.report.clean
    assert desk.shop.world.undone() == ["room", "seat"]
    desk.shop.world.assert_restored()


def test_outside_a_boundary_nothing_is_noted(desk):
    desk.shop.crew("done").kickoff()
    book = wrap_tool(desk.shop.book, compensate=desk.shop.undo)
    agent = desk.shop.agent(SEAT, "first", SEAT, "second", tools=[book], **once_more())
    assert agent.kickoff("go on").raw == "second"
    desk.shop.world.assert_stands("seat", "seat")

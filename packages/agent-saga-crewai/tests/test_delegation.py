"""Agents that let others work: what the others do is theirs, and comes again only with its call."""

from __future__ import annotations

import pytest
from crewai import Crew, Task
from scripted import call, once_more

from agent_saga_crewai import saga_agent

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]


def delegates(text="book it"):
    tool = "delegate_work_to_coworker"
    return [call(tool, task=text, context="a trip", coworker="worker")]


def crew_of(shop, boss, worker, *, native=True, worker_options=None, **task):
    """Return a crew of a boss, who delegates, and a worker, who books."""
    clerk = shop.agent(*worker, role="worker", native=native, **(worker_options or {}))
    first = shop.agent(*boss, role="boss", native=native, allow_delegation=True)
    given = {"description": "go on", "expected_output": "a word", **task}
    crew = Crew(agents=[first, clerk], tasks=[Task(agent=first, **given)])
    return crew, saga_agent(crew, shop.kit, tools=shop.declared)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("with_saga", [False, True])
def test_what_is_delegated_twice_is_done_twice(shop, native, with_saga):
    boss = [delegates(), ROOM, delegates(), "done"]
    plain, run = crew_of(shop, boss, [SEAT, "one", SEAT, "two"], native=native)
    assert (run if with_saga else plain).kickoff().raw == "done"
    shop.world.assert_stands("seat", "room", "seat")


def test_two_that_are_delegated_side_by_side_are_two(shop):
    both = [*delegates(), *delegates()]
    _, run = crew_of(shop, [both, "done"], [SEAT, SEAT, "one", "two"])
    run.kickoff()
    shop.world.assert_stands("seat", "seat")


@pytest.mark.guarantee("CREWAI-6")
def test_what_was_delegated_is_not_done_again_where_its_author_is_asked_again(shop):
    boss = [delegates(), "first", delegates(), delegates(), "second"]
    worker = [SEAT, "one", SEAT, "two", SEAT, "three"]
    _, run = crew_of(shop, boss, worker, **once_more())
    assert run.kickoff().raw == "second"
    shop.world.assert_stands("seat", "seat")


@pytest.mark.guarantee("CREWAI-6")
@pytest.mark.parametrize("native", [True, False])
def test_what_failed_and_is_delegated_again_repeats_nothing(shop, native):
    boss = [delegates(), ROOM, delegates(), "done"]
    worker = [SEAT, ValueError("down"), SEAT, "two"]
    options = {"max_retry_limit": 0}
    _, run = crew_of(shop, boss, worker, native=native, worker_options=options)
    run.kickoff()
    shop.world.assert_applied_once("seat", "room")


def test_an_attempt_of_who_was_delegated_to_repeats_nothing(shop):
    worker = [SEAT, ConnectionError("the network"), SEAT, "one", SEAT, "two"]
    _, run = crew_of(shop, [delegates(), ROOM, delegates(), "done"], worker)
    assert run.kickoff().raw == "done"
    shop.world.assert_stands("seat", "room", "seat")


def test_a_run_with_a_key_repeats_nothing_that_was_delegated(shop):
    boss = [delegates(), ROOM, delegates(), "done"]
    for number in range(2):
        given = ([boss, [SEAT, "one", SEAT, "two"]], [[], []])[number]
        _, run = crew_of(shop, *given)
        assert run.kickoff(key="trip").raw == "done"
    shop.world.assert_stands("seat", "room", "seat")

"""Runs that store one checkpoint, when they stop: what they did before is told by it."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from agent_saga import SagaAborted
from agent_saga_langgraph import last_report, saga_agent, wrap_tool

ON = {"configurable": {"thread_id": "1"}}


class State(TypedDict):
    log: Annotated[list, operator.add]


def asks(state):
    return {"log": [interrupt("go on?")]}


def booking(shop, fails=False):
    """Return a graph that books, asks, books the same again, asks, and ends."""
    book = wrap_tool(shop.book, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)

    def books(state):
        book.invoke({"item": "seat"})
        return {"log": ["booked"]}

    def ends(state):
        if fails:
            raise RuntimeError("the printer is out of paper")
        return {"log": ["end"]}

    nodes = {"one": books, "ask": asks, "two": books, "ask again": asks, "end": ends}
    builder = StateGraph(State)
    for before, (name, node) in zip([START, *nodes], nodes.items(), strict=False):
        builder.add_node(name, node)
        builder.add_edge(before, name)
    return saga_agent(builder.compile(checkpointer=InMemorySaver()), shop.kit)


def gone_through(graph, durabilities):
    """Run a graph, with an answer to each question; each run is as durable as is said."""
    given, result = {"log": []}, None
    for durability in durabilities:
        result = graph.invoke(given, ON, durability=durability)
        given = Command(resume="yes")
    return result["log"]


@pytest.mark.parametrize("durabilities", ["sync sync sync", "exit exit exit", "exit sync exit"])
def test_what_was_done_before_a_stop_is_known_when_the_thread_goes_on(shop, durabilities):
    told = gone_through(booking(shop), durabilities.split())
    assert told == ["booked", "yes", "booked", "yes", "end"]
    shop.world.assert_stands("seat", "seat")
    assert (last_report().outcome, last_report().clean) == ("COMMITTED", True)


def test_it_is_undone_when_the_run_fails_after_that(shop):
    with pytest.raises(SagaAborted, match="out of paper") as failed:
        gone_through(booking(shop, fails=True), ["exit"] * 3)
    assert failed.value.report.clean
    shop.world.assert_stands()
    assert shop.world.undone() == ["seat", "seat"]

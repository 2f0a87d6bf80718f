"""Programs that go on with their boundary: what graphs did in it is met again, or undone."""

from __future__ import annotations

import contextlib
import operator
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from scripted import Scripted, call

from agent_saga import SagaAborted, SagaSuspended
from agent_saga.errors import ReplayConflict
from agent_saga_langgraph import last_report, saga_agent, wrap_tool


class State(TypedDict):
    log: Annotated[list, operator.add]


def asked_of_a_model(shop, item):
    """Run an agent under care that books an item, or nothing."""
    script = [[call("book", item=item)], "done"] if item else ["done"]
    agent = saga_agent(
        create_agent(Scripted(script=script), [shop.book]),
        shop.kit,
        tools={"book": shop.declared["book"]},
    )
    agent.invoke({"messages": [("user", "go on")]})


def called_in_a_plain_graph(shop, item):
    """Run a graph by its own `invoke`, one of whose nodes books an item, or nothing."""
    book = wrap_tool(shop.book, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)

    def node(state):
        if item:
            book.invoke({"item": item})

    StateGraph(State).add_node("n", node).add_edge(START, "n").compile().invoke({"log": []})


def nothing_at_all(shop, item):
    """Run no graph the second time."""
    if item:
        asked_of_a_model(shop, item)


def gone_on_with(shop, books, items):
    """Run a program that is left after each item but the last, and gone on with."""
    for item in items:
        with contextlib.suppress(SagaSuspended):  # noqa: SIM117 - the saga is left inside
            with shop.kit.transaction(saga_id="p", resume=True, suspendable=True) as saga:
                books(shop, item)
                if item is not items[-1]:
                    saga.suspend("the program is left here")


@pytest.mark.guarantee("LANGGRAPH-26")
@pytest.mark.parametrize("item", ["room", ""])
@pytest.mark.parametrize("books", [asked_of_a_model, called_in_a_plain_graph, nothing_at_all])
def test_what_the_program_does_not_do_again_is_undone(shop, books, item):
    with pytest.raises(SagaAborted) as failed:
        gone_on_with(shop, books, ["seat", item])
    assert isinstance(failed.value.cause, ReplayConflict)
    assert failed.value.report.clean
    shop.world.assert_stands()


@pytest.mark.parametrize("books", [asked_of_a_model, called_in_a_plain_graph])
def test_what_it_does_again_is_done_once(shop, books):
    gone_on_with(shop, books, ["seat", "seat", "seat"])
    assert (last_report().outcome, last_report().clean) == ("COMMITTED", True)
    shop.world.assert_applied_once("seat")


def test_a_thread_tells_itself_what_was_done_on_it(shop):
    book = wrap_tool(shop.book, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)
    builder = StateGraph(State).add_node("n", lambda state: book.invoke({"item": "seat"}) and None)
    graph = saga_agent(builder.add_edge(START, "n").compile(checkpointer=InMemorySaver()), shop.kit)
    thread = {"configurable": {"thread_id": "1"}}

    def once(shop, item):
        if not graph.get_state(thread).values:
            graph.invoke({"log": ["begun"]}, thread)

    gone_on_with(shop, once, ["seat", "seat "])
    assert (last_report().outcome, last_report().clean) == ("COMMITTED", True)
    shop.world.assert_applied_once("seat")

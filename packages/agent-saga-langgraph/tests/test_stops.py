"""A graph that stops where nobody waits with it is undone, or does nothing; it is not committed."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from agent_saga import SagaAborted
from agent_saga.errors import NoBoundary, NotSuspendable
from agent_saga_langgraph import (
    last_report,
    safe_tool,
    saga_agent,
    saga_run,
    saga_run_sync,
    saga_stream,
    saga_stream_sync,
)

THREAD = {"configurable": {"thread_id": "1"}}
GO, YES = {"log": []}, Command(resume="yes")


class State(TypedDict):
    log: Annotated[list, operator.add]


class Desk:
    """Graphs that book a seat and stop."""

    def __init__(self, shop):
        self.shop = shop
        self.tool = safe_tool(
            shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit
        )

    def book(self, state):
        return {"log": [self.tool.invoke({"item": "seat"})["id"]]}

    def ask(self, state):
        return {"log": [interrupt("go on?")]}

    def both(self, state):
        return {"log": self.book(state)["log"] + self.ask(state)["log"]}

    def graph(self, *nodes, saver=None, **options):
        builder = StateGraph(State)
        names = [str(number) for number in range(len(nodes))]
        for before, name, node in zip([START, *names], names, nodes, strict=False):
            builder.add_node(name, node)
            builder.add_edge(before, name)
        return builder.compile(checkpointer=saver, **options)


@pytest.fixture
def desk(shop):
    return Desk(shop)


def run(how, graph, kit):
    async def items():
        return [item async for item in saga_stream(graph, GO, kit=kit)]

    return {
        "run": lambda: saga_run_sync(graph, GO, kit=kit),
        "run on a loop": lambda: asyncio.run(saga_run(graph, GO, kit=kit)),
        "stream": lambda: list(saga_stream_sync(graph, GO, kit=kit)),
        "stream on a loop": lambda: asyncio.run(items()),
        "agent": lambda: saga_agent(graph, kit).invoke(GO),
    }[how]()


@pytest.mark.guarantee("LANGGRAPH-21")
@pytest.mark.parametrize("how", ["run", "run on a loop", "stream", "stream on a loop", "agent"])
@pytest.mark.parametrize("where", ["one node", "two nodes", "breakpoint"])
def test_a_graph_that_stops_and_has_no_checkpointer_is_undone(desk, how, where):
    graph = {
        "one node": lambda: desk.graph(desk.both),
        "two nodes": lambda: desk.graph(desk.book, desk.ask),
        "breakpoint": lambda: desk.graph(desk.book, desk.book, interrupt_before=["1"]),
    }[where]()
    with pytest.raises(SagaAborted) as failed:
        run(how, graph, desk.shop.kit)
    assert isinstance(failed.value.cause, NotSuspendable)
    assert "checkpointer" in str(failed.value.cause)
    assert desk.shop.world.applications() == 1
    desk.shop.world.assert_restored()


@pytest.mark.guarantee("LANGGRAPH-21")
def test_so_it_is_inside_a_boundary_of_the_program(desk):
    with pytest.raises(SagaAborted), desk.shop.kit.transaction():
        saga_run_sync(desk.graph(desk.both), GO, kit=desk.shop.kit)
    desk.shop.world.assert_restored()


@pytest.mark.guarantee("LANGGRAPH-22")
@pytest.mark.parametrize("within", ["function", "sequence", "retry", "subgraph of it"])
def test_a_graph_that_a_boundary_is_not_shown_does_nothing(desk, within):
    saver = InMemorySaver()
    graph = desk.graph(desk.book, desk.ask, saver=saver)
    if within == "subgraph of it":
        graph = desk.graph(desk.graph(desk.book), desk.ask, saver=saver)
    hidden = {
        "function": lambda: RunnableLambda(lambda given: graph.invoke(given, THREAD)),
        "sequence": lambda: RunnablePassthrough() | graph,
        "retry": lambda: graph.with_retry(stop_after_attempt=1),
        "subgraph of it": lambda: RunnablePassthrough() | graph,
    }[within]()
    with pytest.raises(SagaAborted) as failed:
        saga_run_sync(hidden, GO, THREAD, kit=desk.shop.kit)
    assert isinstance(failed.value.cause, NoBoundary)
    desk.shop.world.assert_untouched()


def test_what_only_binds_a_graph_shows_it(desk):
    graph = desk.graph(desk.book, desk.ask, saver=InMemorySaver()).with_config(tags=["bound"])
    saga_run_sync(graph, GO, THREAD, kit=desk.shop.kit)
    assert last_report().outcome == "SUSPENDED"
    saga_run_sync(graph, YES, THREAD, kit=desk.shop.kit)
    assert last_report().outcome == "COMMITTED"
    desk.shop.world.assert_applied_once("seat")


@pytest.mark.guarantee("LANGGRAPH-23")
@pytest.mark.parametrize("kept", [False, True])
def test_a_graph_that_a_node_leaves_waiting_in_its_work_undoes_the_run(desk, kept):
    inner = desk.graph(desk.both, saver=InMemorySaver())

    def node(state):
        inner.invoke(GO, {"configurable": {"thread_id": "inner"}})
        return {"log": ["asked"]}

    outer = desk.graph(node, saver=InMemorySaver() if kept else None)
    with pytest.raises(SagaAborted) as failed:
        saga_run_sync(outer, GO, THREAD, kit=desk.shop.kit)
    assert isinstance(failed.value.cause, NotSuspendable)
    desk.shop.world.assert_restored()


def test_one_that_waits_behind_its_work_may(desk):
    inner = desk.graph(desk.book, desk.ask, saver=InMemorySaver())
    given = [GO, YES]

    def node(state):
        inner.invoke(given.pop(0), {"configurable": {"thread_id": "inner"}})
        return {"log": ["asked"]}

    outer = desk.graph(node, saver=InMemorySaver())
    for _ in range(2):
        saga_run_sync(outer, GO, THREAD, kit=desk.shop.kit)
        assert last_report().outcome == "COMMITTED"
    desk.shop.world.assert_applied_once("seat")


def test_one_that_the_node_itself_goes_on_with_may(desk):
    inner = desk.graph(desk.both, saver=InMemorySaver())

    def node(state):
        for given in (GO, YES):
            inner.invoke(given, {"configurable": {"thread_id": "inner"}})
        return {"log": ["asked"]}

    saga_run_sync(desk.graph(node), GO, kit=desk.shop.kit)
    assert last_report().outcome == "COMMITTED"
    desk.shop.world.assert_applied_once("seat")


@pytest.mark.parametrize("on_a_loop", [False, True])
def test_a_stream_without_a_checkpointer_that_is_left_at_its_stop_is_undone(desk, on_a_loop):
    graph = desk.graph(desk.both)

    async def left():
        items = saga_stream(graph, GO, kit=desk.shop.kit)
        await anext(items)
        await items.aclose()

    if on_a_loop:
        asyncio.run(left())
    else:
        items = saga_stream_sync(graph, GO, kit=desk.shop.kit)
        next(items)
        items.close()
    assert desk.shop.world.applications() == 1
    desk.shop.world.assert_restored()

"""Graphs that are run by their plain `invoke`, where a boundary or a waiting saga minds it."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from agent_saga import NoBoundary, SagaAborted
from agent_saga.errors import NotSuspendable
from agent_saga_langgraph import (
    SagaToolNode,
    last_report,
    safe_tool,
    saga_node,
    saga_run,
    saga_run_sync,
)

THREAD = {"configurable": {"thread_id": "1"}}
GO, YES = {"log": []}, Command(resume="yes")


class State(TypedDict):
    log: Annotated[list, operator.add]


def asks(state):
    return {"log": [interrupt("go on?")]}


class Desk:
    """Graphs whose nodes book a seat in every way that there is."""

    def __init__(self, shop):
        self.shop, self.undo = shop, shop.cancel.using(effect="$.id")
        self.tool = safe_tool(shop.book.func, compensate=self.undo, kit=shop.kit)
        self.core = shop.kit.tool("COMPENSABLE", compensate=self.undo)(shop.book.func)

    def books(self, state):
        self.tool.invoke({"item": "seat"})

    async def books_on_a_loop(self, state):
        await asyncio.to_thread(self.tool.invoke, {"item": "seat"})

    def calls(self, state):
        self.core("seat")

    def books_and_asks(self, state):
        self.books(state)
        return asks(state)

    @property
    def effect(self):
        return saga_node(
            lambda state: {"log": [self.shop.world.do("seat")["id"]]},
            compensate=self.shop.cancel.using(effect="$.log.0"),
            kit=self.shop.kit,
            name="seat",
        )

    def graph(self, *nodes, saver=None):
        builder = StateGraph(State)
        names = [str(number) for number in range(len(nodes))]
        for before, name, node in zip([START, *names], names, nodes, strict=False):
            builder.add_node(name, node)
            builder.add_edge(before, name)
        return builder.compile(checkpointer=saver)


@pytest.fixture
def desk(shop):
    return Desk(shop)


# --- in a boundary of the program -----------------------------------------------------------------


def invoked(graph, kit):
    with kit.transaction():
        graph.invoke(GO)


def invoked_on_a_loop(graph, kit):
    async def run():
        async with kit.transaction():
            await graph.ainvoke(GO)

    asyncio.run(run())


def left_at_the_interrupt(graph, kit):
    with kit.transaction():
        for item in graph.stream(GO):
            if "__interrupt__" in item:
                break


NODES = {
    "a tool": lambda desk: [desk.books, asks],
    "a node": lambda desk: [desk.effect, asks],
    "a call": lambda desk: [desk.calls, asks],
    "one node": lambda desk: [desk.books_and_asks],
    "a subgraph": lambda desk: [desk.books, desk.graph(asks)],
    "a subgraph that books": lambda desk: [desk.graph(desk.books), asks],
}


@pytest.mark.guarantee("LANGGRAPH-24")
@pytest.mark.parametrize("run", [invoked, invoked_on_a_loop, left_at_the_interrupt])
@pytest.mark.parametrize("nodes", NODES)
def test_a_graph_that_stops_after_an_effect_undoes_the_boundary_round_it(desk, nodes, run):
    with pytest.raises(SagaAborted) as failed:
        run(desk.graph(*NODES[nodes](desk)), desk.shop.kit)
    cause = failed.value.cause
    assert isinstance(getattr(cause, "cause", cause), NotSuspendable)
    assert desk.shop.world.applications() == 1
    desk.shop.world.assert_restored()


@pytest.mark.guarantee("LANGGRAPH-24")
def test_so_it_does_if_the_effect_comes_after_the_interrupt(desk):
    barrier = asyncio.Event()

    async def first(state):
        await barrier.wait()
        await desk.books_on_a_loop(state)

    async def second(state):
        barrier.set()
        return asks(state)

    builder = StateGraph(State).add_node("first", first).add_node("second", second)
    builder.add_edge(START, "first").add_edge(START, "second")
    with pytest.raises(SagaAborted):
        invoked_on_a_loop(builder.compile(), desk.shop.kit)
    desk.shop.world.assert_restored()


def test_a_graph_that_did_nothing_may_stop(desk):
    with desk.shop.kit.transaction():
        desk.tool.invoke({"item": "seat"})
        assert desk.graph(asks).invoke(GO)["__interrupt__"]
    assert last_report().outcome == "COMMITTED"


def test_the_program_may_go_on_with_a_thread_in_its_boundary(desk):
    graph = desk.graph(desk.calls, asks, saver=InMemorySaver())
    with desk.shop.kit.transaction():
        assert graph.invoke(GO, THREAD)["__interrupt__"]
        graph.invoke(YES, THREAD)
    assert last_report().outcome == "COMMITTED"
    desk.shop.world.assert_applied_once("seat")


# --- on a thread that waits -----------------------------------------------------------------------

WAITING = {
    "a tool": lambda desk: [desk.books_and_asks],
    "a subgraph": lambda desk: [desk.graph(desk.books_and_asks)],
    "a later node": lambda desk: [lambda state: None, desk.books_and_asks],
    "a node behind it": lambda desk: [asks, desk.effect],
}


@pytest.mark.guarantee("LANGGRAPH-25")
@pytest.mark.parametrize("given", [YES, None, GO], ids=["resume", "none", "input"])
@pytest.mark.parametrize("nodes", WAITING)
def test_a_thread_that_waits_does_nothing_in_a_plain_run(desk, nodes, given):
    graph = desk.graph(*WAITING[nodes](desk), saver=InMemorySaver())
    saga_run_sync(graph, GO, THREAD, kit=desk.shop.kit)
    before = desk.shop.world.applications()
    for _ in range(2):
        if nodes == "a node behind it" and given is not YES:
            graph.invoke(given, THREAD)  # it stops again, before its effect
        else:
            with pytest.raises(NoBoundary, match="has not ended"):
                graph.invoke(given, THREAD)
    assert desk.shop.world.applications() == before


@pytest.mark.guarantee("LANGGRAPH-25")
def test_so_it_is_on_a_loop_and_the_run_that_began_it_goes_on(desk):
    async def books_and_asks(state):
        await desk.tool.ainvoke({"item": "seat"})
        return asks(state)

    async def run():
        graph = desk.graph(books_and_asks, saver=InMemorySaver())
        await saga_run(graph, GO, THREAD, kit=desk.shop.kit)
        with pytest.raises(NoBoundary):
            await graph.ainvoke(YES, THREAD)
        await saga_run(graph, YES, THREAD, kit=desk.shop.kit)
        assert last_report().outcome == "COMMITTED"

    desk.tool = safe_tool(booking(desk.shop.world), compensate=desk.undo, kit=desk.shop.kit)
    asyncio.run(run())
    desk.shop.world.assert_applied_once("seat")


def booking(world):
    async def book(item: str) -> dict:
        """Book an item."""
        return await asyncio.to_thread(world.do, item)

    return book


def test_a_log_in_another_place_is_not_believed_to_have_ended(desk, tmp_path):
    desk.tool = safe_tool(desk.shop.book.func, compensate=desk.undo)  # bound to no kit
    graph = desk.graph(desk.books_and_asks, saver=InMemorySaver())
    saga_run_sync(graph, GO, THREAD, kit=desk.shop.kit)
    with pytest.raises(NoBoundary):
        graph.invoke(YES, THREAD)
    desk.shop.world.assert_applied_once("seat")


def test_a_thread_whose_saga_has_ended_is_free(desk):
    graph = desk.graph(desk.books_and_asks, saver=InMemorySaver())
    saga_run_sync(graph, GO, THREAD, kit=desk.shop.kit)
    saga_run_sync(graph, YES, THREAD, kit=desk.shop.kit)
    graph.invoke(GO, THREAD)
    desk.shop.world.assert_stands("seat", "seat")


def test_so_is_one_that_never_had_any_and_a_read(desk):
    node = SagaToolNode(desk.shop.tools, kit=desk.shop.kit, declared=desk.shop.declared)
    assert node.tools_by_name["ask"]
    graph = desk.graph(desk.books, asks, saver=InMemorySaver())
    graph.invoke(GO, THREAD)
    graph.invoke(YES, THREAD)
    desk.shop.world.assert_stands("seat")

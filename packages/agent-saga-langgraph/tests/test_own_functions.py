"""Functions of the kit that a node calls itself, when LangGraph runs the node again."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from agent_saga import SagaAborted
from agent_saga.kit.scopes import current_saga
from agent_saga_langgraph import last_report, saga_run, saga_run_sync

THREAD = {"configurable": {"thread_id": "1"}}
AGAIN = RetryPolicy(max_attempts=3, initial_interval=0.01, retry_on=ConnectionError)


class State(TypedDict):
    log: Annotated[list, operator.add]


class Desk:
    """A node that books by functions of the kit, and graphs that run it again."""

    def __init__(self, shop):
        self.shop = shop
        undo = shop.cancel.using(effect="$.id")
        self.book = shop.kit.tool("COMPENSABLE", compensate=undo)(shop.book.func)

    def retried(self, does, fails):
        left = [fails]

        async def on_a_loop(state):
            await does()
            check()

        def node(state):
            does()
            check()

        def check():
            if left[0]:
                left[0] -= 1
                raise ConnectionError("lost")

        chosen = on_a_loop if asyncio.iscoroutinefunction(does) else node
        builder = StateGraph(State).add_node("n", chosen, retry_policy=AGAIN)
        return builder.add_edge(START, "n").compile()


@pytest.fixture
def desk(shop):
    return Desk(shop)


def test_a_node_that_is_tried_again_repeats_none(desk):
    def books():
        for item in ("seat", "seat", "room"):
            desk.book(item)

    saga_run_sync(desk.retried(books, 2), {"log": []}, kit=desk.shop.kit)
    assert last_report().clean
    desk.shop.world.assert_stands("seat", "seat", "room")


def test_nor_on_a_loop_and_none_of_the_sagas_own(desk):
    async def books():
        await desk.book.acall("seat")
        await current_saga().execute(
            tool="free",
            semantics="COMPENSABLE",
            forward=lambda: desk.shop.world.do("room"),
            compensate=desk.shop.cancel.using(effect="$.id"),
            arguments={"item": "room"},
        )

    asyncio.run(saga_run(desk.retried(books, 2), {"log": []}, kit=desk.shop.kit))
    desk.shop.world.assert_applied_once("seat", "room")


def test_one_that_fails_for_good_undoes_each_once(desk):
    with pytest.raises(SagaAborted) as failed:
        graph = desk.retried(lambda: desk.book("seat"), 3)
        saga_run_sync(graph, {"log": []}, kit=desk.shop.kit)
    assert failed.value.report.clean
    assert desk.shop.world.undone() == ["seat"]


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_node_that_is_resumed_repeats_none(desk, ends):
    def node(state):
        desk.book("seat")
        said = interrupt("go on?")
        desk.book("room")
        if ends == "badly":
            raise RuntimeError("the office has burnt down")
        return {"log": [said]}

    builder = StateGraph(State).add_node("n", node).add_edge(START, "n")
    graph = builder.compile(checkpointer=InMemorySaver())
    saga_run_sync(graph, {"log": []}, THREAD, kit=desk.shop.kit)
    assert last_report().outcome == "SUSPENDED"
    if ends == "well":
        saga_run_sync(graph, Command(resume="yes"), THREAD, kit=desk.shop.kit)
        desk.shop.world.assert_applied_once("seat", "room")
    else:
        with pytest.raises(SagaAborted):
            saga_run_sync(graph, Command(resume="yes"), THREAD, kit=desk.shop.kit)
        assert desk.shop.world.undone() == ["room", "seat"]

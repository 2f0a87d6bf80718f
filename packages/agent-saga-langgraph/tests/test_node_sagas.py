"""Boundaries in nodes of a graph with a checkpointer: each happens once, and is found again."""

from __future__ import annotations

import asyncio
import operator
import subprocess
import sys
from pathlib import Path
from typing import Annotated, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

from agent_saga import AgentKit
from agent_saga.errors import BranchRefused, SagaAborted, SagaClosed
from agent_saga_langgraph import (
    last_report,
    node_sagas,
    rollback_to_sync,
    safe_tool,
    saga_boundary,
    saga_run_sync,
)
from agent_saga_langgraph import place as places
from agent_saga_testing.integration.driver import QUICK

THREAD = {"configurable": {"thread_id": "1"}}
GO, YES = {"log": []}, Command(resume="yes")
AGAIN = RetryPolicy(initial_interval=0, jitter=False, max_attempts=2, retry_on=Exception)


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]
    item: str


class Shelf:
    """Graphs whose nodes are boundaries that book what the state says."""

    def __init__(self, shop):
        self.shop = shop
        self.fails = self.asks = False
        self.tool = safe_tool(
            shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit
        )

    def book(self, state):
        item = state.get("item", "seat")
        self.tool.invoke({"item": item})
        if self.asks and item != "quiet":
            interrupt("go on?")
        if self.fails:
            self.fails = False
            raise RuntimeError("the node failed")
        return {"log": [item]}

    def builder(self, **options):
        builder = StateGraph(State)
        builder.add_node("book", saga_boundary(self.book, self.shop.kit), **options)
        return builder

    def graph(self, saver=None, **options):
        builder = self.builder(**options).add_edge(START, "book")
        return builder.compile(checkpointer=saver or InMemorySaver())

    def fan(self, *items):
        builder = self.builder()
        builder.add_conditional_edges(START, lambda _: [Send("book", {"item": i}) for i in items])
        return builder.compile(checkpointer=InMemorySaver())

    def back(self, graph, name="book"):
        return rollback_to_sync(graph, before(graph, name), kit=self.shop.kit)


def before(graph, name="book"):
    return next(s.config for s in graph.get_state_history(THREAD) if name in s.next)


def run(graph, given, *, on_a_loop=False, **options):
    if on_a_loop:
        return asyncio.run(graph.ainvoke(given, THREAD, **options))
    return graph.invoke(given, THREAD, **options)


@pytest.fixture
def shelf(shop):
    return Shelf(shop)


LOOP = pytest.mark.parametrize("on_a_loop", [False, True])


@LOOP
def test_the_tasks_of_a_fan_out_are_boundaries_of_their_own(shelf, on_a_loop):
    shelf.asks = True
    graph = shelf.fan("quiet", "seat", "quiet")
    assert "__interrupt__" in run(graph, GO, on_a_loop=on_a_loop)
    assert sorted(run(graph, YES, on_a_loop=on_a_loop)["log"]) == ["quiet", "quiet", "seat"]
    shelf.shop.world.assert_stands("quiet", "quiet", "seat")
    assert shelf.shop.world.applications() == 3


def test_going_back_undoes_what_nodes_did(shelf):
    graph = shelf.fan("seat", "room")
    run(graph, GO)
    run(graph, GO)
    shelf.back(graph)
    assert last_report().clean
    assert len(shelf.shop.world.undone()) == 2
    run(graph, None)
    shelf.shop.world.assert_stands("seat", "room", "seat", "room")
    oldest = [s for s in graph.get_state_history(THREAD) if s.next][-1].config
    rollback_to_sync(graph, oldest, kit=shelf.shop.kit)
    shelf.shop.world.assert_stands()


def test_going_back_undoes_what_a_node_of_a_subgraph_did(shelf):
    builder = StateGraph(State).add_node("inner", shelf.builder().add_edge(START, "book").compile())
    graph = builder.add_edge(START, "inner").compile(checkpointer=InMemorySaver())
    run(graph, GO)
    shelf.back(graph, "inner")
    shelf.shop.world.assert_restored()


def test_going_back_undoes_a_node_that_waits(shelf):
    shelf.asks = True
    graph = shelf.graph()
    run(graph, GO)
    shelf.back(graph)
    shelf.shop.world.assert_restored()
    run(graph, None)
    run(graph, YES)
    shelf.shop.world.assert_stands("seat")


def test_a_failure_of_the_node_is_no_effect_that_is_missing(shelf):
    shelf.fails = True
    graph = shelf.graph(retry_policy=AGAIN)
    run(graph, GO)
    assert shelf.shop.world.undone() == ["seat"]
    run(graph, GO)
    shelf.back(graph)
    shelf.shop.world.assert_stands("seat")


@pytest.mark.guarantee("LANGGRAPH-14")
@LOOP
@pytest.mark.parametrize("fork", [False, True])
def test_a_run_that_goes_back_by_itself_is_refused(shelf, fork, on_a_loop):
    graph = shelf.graph()
    run(graph, GO)
    config = before(graph)
    if fork:
        config = graph.update_state(config, {"item": "room"})
    with pytest.raises(BranchRefused, match="node book") as refused:
        asyncio.run(graph.ainvoke(None, config)) if on_a_loop else graph.invoke(None, config)
    assert "rollback_to" in refused.value.fix
    shelf.shop.world.assert_stands("seat")
    assert shelf.shop.world.applications() == 1


def test_turns_of_a_thread_are_each_an_effect(shelf):
    graph = shelf.graph()
    for _ in range(3):
        run(graph, GO)
    assert shelf.shop.world.applications() == 3


def test_a_new_message_goes_on_with_what_waits(shelf):
    shelf.asks = True
    graph = shelf.graph()
    run(graph, GO)
    shelf.asks = False
    run(graph, GO)
    assert shelf.shop.world.applications() == 1
    shelf.asks = True
    run(graph, GO)
    shelf.asks = False
    with pytest.raises(SagaAborted):
        run(graph, {**GO, "item": "room"})
    shelf.shop.world.assert_stands("seat")


def test_what_a_new_message_went_on_with_is_found_at_its_end(shelf):
    shelf.asks = True
    graph = shelf.graph()
    run(graph, GO)
    run(graph, GO)
    run(graph, YES)
    assert shelf.shop.world.applications() == 1
    shelf.back(graph)
    shelf.shop.world.assert_restored()


def test_a_branch_that_tells_of_what_was_undone_is_not_gone_on_with(shelf):
    graph = shelf.graph()
    run(graph, GO)
    end = graph.get_state(THREAD).config
    config = shelf.back(graph)
    with pytest.raises(SagaClosed, match="undone since"):
        graph.invoke(GO, end)
    graph.invoke(None, config)
    shelf.shop.world.assert_stands("seat")


@pytest.mark.guarantee("LANGGRAPH-15")
def test_a_node_whose_undoing_failed_is_not_tried_again(shelf):
    shelf.shop.world.fail_before(9, kind="inverse")
    shelf.fails = True
    with pytest.raises(SagaClosed, match="could not be undone") as refused:
        run(shelf.graph(retry_policy=AGAIN), GO)
    assert "agent-saga queue" in refused.value.fix
    assert shelf.shop.world.applications() == 1


def test_a_thread_that_was_deleted_begins_anew(shelf):
    saver = InMemorySaver()
    graph = shelf.graph(saver)
    run(graph, GO)
    saver.delete_thread("1")
    run(graph, GO)
    assert shelf.shop.world.applications() == 2
    shelf.back(graph)
    shelf.shop.world.assert_stands("seat")


@pytest.mark.guarantee("LANGGRAPH-14")
def test_where_no_checkpoint_is_stored_on_the_way_nothing_is_repeated(shelf, monkeypatch):
    monkeypatch.setattr(node_sagas, "_PATIENCE", 1e6)  # nothing is waited for that cannot come
    graph = shelf.graph()
    run(graph, GO, durability="exit")
    with pytest.raises(BranchRefused, match="nobody can tell"):
        run(graph, GO, durability="exit")
    with pytest.raises(BranchRefused, match="nobody can tell"):
        run(graph, GO, durability="exit", on_a_loop=True)
    assert shelf.shop.world.applications() == 1


def test_where_nobody_says_how_checkpoints_are_stored_they_are_waited_for(shelf, monkeypatch):
    monkeypatch.setattr(node_sagas, "_PATIENCE", 0.05)
    monkeypatch.setattr(places, "stores_on_the_way", lambda _: True)
    graph = shelf.graph()
    run(graph, GO, durability="exit")
    with pytest.raises(BranchRefused, match="nobody can tell"):
        run(graph, GO, durability="exit")


def test_what_is_noted_of_nodes_goes_with_what_the_log_tells(shelf):
    saver, shop = InMemorySaver(), shelf.shop
    run(shelf.graph(saver), GO)
    run(shelf.graph(saver), GO)
    assert len(node_sagas.begun_on(shop.kit.runtime.store, "1")) == 2
    shop.kit.runtime.wal.close()
    shop.kit = AgentKit("shop", wal=str(shop.folder / "log"), settings=QUICK)
    shop.kit.runtime.wal.compact(grace_seconds=0)
    later = Shelf(shop).graph(saver)
    run(later, GO)
    (noted,) = node_sagas.begun_on(shop.kit.runtime.store, "1")
    run(later, GO)
    assert noted in node_sagas.begun_on(shop.kit.runtime.store, "1")
    assert shop.world.applications() == 4


DIES = """
import os, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from conftest import Shop
from test_node_sagas import GO, Shelf, run
shelf = Shelf(Shop(Path(sys.argv[1])))
if sys.argv[2] == "inside":
    shelf.asks, dies = True, lambda *_: os._exit(9)
    import test_node_sagas
    test_node_sagas.interrupt = dies
    run(shelf.graph(), GO)
else:
    builder = shelf.builder().add_node("dies", lambda _: os._exit(9))
    builder.add_edge("__start__", "book").add_edge("book", "dies")
    from langgraph.checkpoint.memory import InMemorySaver
    run(builder.compile(checkpointer=InMemorySaver()), GO)
"""


@pytest.mark.crash
@pytest.mark.parametrize("where", ["inside", "behind"])
def test_what_was_lost_with_its_checkpoint_is_not_repeated(shelf, where):
    program = DIES.format(paths=[str(Path(__file__).parent)])
    command = [sys.executable, "-c", program, str(shelf.shop.folder), where]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 9, done.stderr
    graph = shelf.graph()
    if where == "inside":
        run(graph, GO)
    else:
        with pytest.raises(BranchRefused):
            run(graph, GO)
    assert shelf.shop.world.applications() == 1


def test_a_savepoint_that_was_undone_since_is_missed(shelf, monkeypatch):
    builder = shelf.builder().add_node("car", lambda _: shelf.tool.invoke({"item": "car"}) and None)
    builder.add_edge(START, "car").add_edge("car", "book")
    graph = builder.compile(checkpointer=InMemorySaver())
    saga_run_sync(graph, GO, THREAD, kit=shelf.shop.kit)
    with monkeypatch.context() as dying:
        dying.setattr(type(graph), "update_state", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            shelf.back(graph)
    with pytest.raises(SagaClosed, match="tells of effects that were undone"):
        saga_run_sync(graph, GO, THREAD, kit=shelf.shop.kit)
    shelf.back(graph)
    saga_run_sync(graph, None, THREAD, kit=shelf.shop.kit)
    shelf.shop.world.assert_stands("car", "seat")

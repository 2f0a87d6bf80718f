"""Threads whose effects belong to a boundary of the program, another log, or another graph."""

from __future__ import annotations

import asyncio
import contextvars
import shutil
from typing import TypedDict

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from scripted import Scripted, call

from agent_saga import ConfigurationError, NoBoundary, SagaAborted
from agent_saga.errors import BranchRefused, ClaimRefused, NotSuspendable, SagaClosed, UndoRefused
from agent_saga_langgraph import (
    last_report,
    rollback_to,
    rollback_to_sync,
    safe_tool,
    saga_agent,
    saga_run,
    saga_run_sync,
    saga_stream,
    saga_stream_sync,
)
from agent_saga_testing.integration.driver import QUICK

GO, YES = {"done": ""}, Command(resume="yes")


class State(TypedDict, total=False):
    done: str


class Graphs:
    """Graphs of nodes that book what they are named after; one that is called "ask" interrupts."""

    def __init__(self, shop):
        self.shop = shop
        how = {"compensate": shop.cancel.using(effect="$.id"), "kit": shop.kit}
        self.tool = safe_tool(shop.book.func, **how)
        self.fails = ""

    def graph(self, *names, saver=None, **options):
        builder, before = StateGraph(State), START
        for name in names:
            builder.add_node(name, self.node(name))
            builder.add_edge(before, name)
            before = name
        return builder.compile(checkpointer=saver or InMemorySaver(), **options)

    def node(self, name):
        def run(state):
            if name == "ask":
                interrupt("go on?")
            else:
                self.tool.invoke({"item": name})
            if self.fails == name:
                raise RuntimeError("the node failed")
            return {"done": name}

        return run

    def run(self, graph, given=GO, thread="1", **options):
        return saga_run_sync(graph, given, on(thread), kit=self.shop.kit, **options)


def on(thread):
    return {"configurable": {"thread_id": thread}}


def before(graph, name, thread="1"):
    return next(s.config for s in graph.get_state_history(on(thread)) if s.next == (name,))


@pytest.fixture
def graphs(shop):
    return Graphs(shop)


# --- a boundary of the program --------------------------------------------------------------------


@pytest.mark.parametrize("way", ["run", "arun", "stream", "astream", "agent"])
def test_an_interrupt_inside_a_boundary_of_the_program_undoes_it(graphs, way):
    graph, kit = graphs.graph("seat", "ask"), graphs.shop.kit

    async def loop():
        async with kit.transaction():
            if way == "arun":
                await saga_run(graph, GO, on("1"), kit=kit)
            else:
                [item async for item in saga_stream(graph, GO, on("1"), kit=kit)]

    def thread():
        with kit.transaction():
            if way == "run":
                graphs.run(graph)
            elif way == "agent":
                saga_agent(graph, kit).invoke(GO, on("1"))
            else:
                list(saga_stream_sync(graph, GO, on("1"), kit=kit))

    with pytest.raises(SagaAborted) as failed:
        asyncio.run(loop()) if way.startswith("a") and way != "agent" else thread()
    cause = failed.value.cause
    while isinstance(cause, SagaAborted):
        cause = cause.cause
    assert isinstance(cause, NotSuspendable)
    assert "saga_run" in cause.fix
    graphs.shop.world.assert_restored()
    for given in (YES, None, GO):
        with pytest.raises(SagaClosed):
            graphs.run(graph, given)
    assert graphs.shop.world.applications() == 1


def test_a_program_that_takes_the_failure_commits_nothing_of_the_graph(graphs):
    graph, kit = graphs.graph("seat", "ask"), graphs.shop.kit
    with kit.transaction():
        with pytest.raises(SagaAborted):
            graphs.run(graph)
        graphs.tool.invoke({"item": "car"})
        with pytest.raises(SagaClosed):
            graphs.run(graph, YES)
    assert last_report().clean
    graphs.shop.world.assert_stands("car")
    for given in (YES, GO):
        with pytest.raises(SagaClosed):
            graphs.run(graph, given)
    rollback_to_sync(graph, before(graph, "seat"), kit=kit)
    graphs.shop.world.assert_stands("car")
    assert "__interrupt__" in graphs.run(graph, None)
    graphs.run(graph, YES)
    graphs.shop.world.assert_stands("car", "seat")


def test_what_a_graph_did_inside_a_boundary_is_gone_back_on_and_nothing_else(graphs):
    graph, other, kit = graphs.graph("seat", "room"), graphs.graph("boat"), graphs.shop.kit
    with kit.transaction():
        graphs.tool.invoke({"item": "car"})
        graphs.run(graph)
        graphs.run(other, thread="2")
    with pytest.raises(BranchRefused, match="room"):
        saga_run_sync(graph, None, before(graph, "room"), kit=kit)
    rollback_to_sync(graph, before(graph, "room"), kit=kit)
    assert graphs.shop.world.undone() == ["room"]
    graphs.run(graph, None)
    graphs.shop.world.assert_stands("car", "seat", "boat", "room")
    rollback_to_sync(graph, before(graph, "seat"), kit=kit)
    graphs.shop.world.assert_stands("car", "boat")
    asyncio.run(rollback_to(other, before(other, "boat", "2"), kit=kit))
    graphs.shop.world.assert_stands("car")


@pytest.mark.guarantee("LANGGRAPH-13")
def test_a_thread_of_a_boundary_that_was_undone_is_not_gone_on_with(graphs):
    graph, kit = graphs.graph("seat", "room"), graphs.shop.kit
    with pytest.raises(SagaAborted), kit.transaction():
        graphs.run(graph)
        raise RuntimeError("the program failed")
    graphs.shop.world.assert_restored()
    for given in (GO, None):
        with pytest.raises(SagaClosed):
            graphs.run(graph, given)
    with pytest.raises(SagaAborted, match="world may no longer have"), kit.transaction():
        graphs.run(graph)
    with pytest.raises(SagaClosed):
        rollback_to_sync(graph, before(graph, "room"), kit=kit)
    rollback_to_sync(graph, before(graph, "seat"), kit=kit)
    graphs.run(graph, None)
    graphs.shop.world.assert_stands("seat", "room")


def test_a_thread_goes_on_after_a_boundary_that_was_committed(graphs):
    graph, kit = graphs.graph("seat"), graphs.shop.kit
    for _ in range(2):
        with kit.transaction():
            graphs.run(graph)
    graphs.run(graph)
    graphs.shop.world.assert_stands("seat", "seat", "seat")
    rollback_to_sync(graph, before(graph, "seat"), kit=kit)
    graphs.shop.world.assert_stands("seat", "seat")


@pytest.mark.guarantee("LANGGRAPH-13")
def test_a_thread_belongs_to_one_boundary_at_a_time(graphs):
    graph, kit = graphs.graph("ask", "seat"), graphs.shop.kit
    graphs.run(graph)
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        graphs.run(graph, YES)
    assert isinstance(failed.value.cause, ClaimRefused)
    graphs.run(graph, YES)
    done = graphs.graph("room")
    with pytest.raises(SagaAborted), kit.transaction():
        graphs.run(done, thread="2")
        with kit.transaction(detached=True):
            graphs.run(done, thread="2")
    graphs.shop.world.assert_stands("seat")


@pytest.mark.guarantee("LANGGRAPH-18")
def test_a_graph_whose_run_is_no_boundary_does_nothing_inside_one(graphs):
    graph, kit = graphs.graph("seat", "ask"), graphs.shop.kit
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        graph.invoke(GO, on("1"))
    assert isinstance(failed.value.cause, NoBoundary)
    graphs.shop.world.assert_untouched()


def test_agents_with_threads_share_the_saga_of_a_program(shop):
    def agent(item):
        script = [[call("book", item=item)], "done"]
        made = create_agent(Scripted(script=script), shop.tools, checkpointer=InMemorySaver())
        return saga_agent(made, shop.kit, tools=shop.declared)

    with pytest.raises(SagaAborted), shop.kit.transaction():
        for thread, item in (("1", "seat"), ("2", "room")):
            agent(item).invoke({"messages": [("user", "go on")]}, on(thread))
        raise RuntimeError("the program failed")
    assert shop.world.undone() == ["room", "seat"]


# --- another log ----------------------------------------------------------------------------------


@pytest.mark.guarantee("LANGGRAPH-11")
def test_another_log_undoes_nothing_and_goes_on_with_nothing(graphs):
    shop, graph = graphs.shop, graphs.graph("seat", "ask", "room")
    other = type(shop.kit)("other", wal=str(shop.folder / "other"), settings=QUICK)
    graphs.run(graph)
    with pytest.raises(UndoRefused, match="another log") as refused:
        rollback_to_sync(graph, before(graph, "seat"), kit=other)
    assert "kit=" in refused.value.fix
    with pytest.raises(ConfigurationError, match="another log"):
        saga_run_sync(graph, YES, on("1"), kit=other)
    graphs.run(graph, YES)
    with pytest.raises(ConfigurationError, match="another log"):
        saga_run_sync(graph, None, before(graph, "room"), kit=other)
    shop.world.assert_stands("seat", "room")


def test_a_log_that_was_moved_is_the_same_log(graphs):
    shop, graph = graphs.shop, graphs.graph("seat", "ask", "room")
    graphs.run(graph)
    shop.kit.runtime.wal.close()
    shutil.move(shop.folder / "log", shop.folder / "moved")
    moved = type(shop.kit)("shop", wal=str(shop.folder / "moved"), settings=QUICK)
    tool, graphs.tool = (
        graphs.tool,
        safe_tool(shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=moved),
    )
    assert tool is not graphs.tool
    saga_run_sync(graph, YES, on("1"), kit=moved)
    rollback_to_sync(graph, before(graph, "seat"), kit=moved)
    shop.world.assert_restored()


@pytest.mark.guarantee("LANGGRAPH-11")
def test_a_new_log_in_the_place_of_another_is_another_log(graphs):
    shop, graph = graphs.shop, graphs.graph("seat", "ask")
    graphs.run(graph)
    shop.kit.runtime.wal.close()
    shutil.move(shop.folder / "log", shop.folder / "gone")
    fresh = type(shop.kit)("shop", wal=str(shop.folder / "log"), settings=QUICK)
    with pytest.raises(ConfigurationError, match="another log"):
        saga_run_sync(graph, YES, on("1"), kit=fresh)
    with pytest.raises(UndoRefused, match="another log"):
        rollback_to_sync(graph, before(graph, "seat"), kit=fresh)


# --- another graph --------------------------------------------------------------------------------


@pytest.mark.guarantee("LANGGRAPH-12")
@pytest.mark.parametrize("alike", [True, False])
def test_graphs_with_one_thread_id_do_not_go_on_with_each_other_s_saga(graphs, alike):
    one = graphs.graph("seat", "ask")
    other = graphs.graph(*(["seat", "ask"] if alike else ["room"]))
    graphs.run(one)
    with pytest.raises(ConfigurationError, match="another graph") as refused:
        graphs.run(other)
    assert "thread_id" in refused.value.fix
    graphs.run(one, YES)
    assert last_report().outcome == "COMMITTED"
    graphs.shop.world.assert_stands("seat")


def test_graphs_with_one_thread_id_do_not_undo_each_other_s_effects(graphs):
    one, other = graphs.graph("seat"), graphs.graph("room")
    graphs.run(one)
    graphs.run(other)
    rollback_to_sync(other, before(other, "room"), kit=graphs.shop.kit)
    graphs.shop.world.assert_stands("seat")
    graphs.run(other, None)
    rollback_to_sync(one, before(one, "seat"), kit=graphs.shop.kit)
    graphs.shop.world.assert_stands("room")


@pytest.mark.parametrize("alike", [True, False])
def test_a_run_of_a_graph_leaves_the_open_saga_of_another_alone(graphs, alike):
    refusals = []

    class Loud(Graphs):
        def node(self, name):
            inner = super().node(name)

            def run(state):
                result = inner(state)
                with pytest.raises((ClaimRefused, ConfigurationError)) as refused:
                    contextvars.Context().run(graphs.run, other)
                refusals.append(refused.value)
                return result

            return run

    other = graphs.graph("seat" if alike else "room")
    graphs.run(Loud(graphs.shop).graph("seat"))
    assert isinstance(refusals[0], ClaimRefused if alike else ConfigurationError)
    graphs.shop.world.assert_stands("seat")

"""A waiting thread whose state is edited: what was done there is told, met again, or undone."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from scripted import Scripted, call

from agent_saga import SagaAborted
from agent_saga.errors import BranchRefused, ReplayConflict
from agent_saga_langgraph import (
    SagaToolNode,
    last_report,
    rollback_to_sync,
    safe_tool,
    saga_agent,
    saga_run_sync,
)

PROMPT = {"messages": [("user", "go on")]}
YES = Command(resume="yes")
THREAD = {"configurable": {"thread_id": "1"}}
WAITS = [call("book", "c1", item="seat"), call("ask", "c2", question="shall I?")]


class Log(TypedDict):
    log: Annotated[list, operator.add]


class Waiting:
    """A graph that waits beside a call that was done, and is edited."""

    def __init__(self, shop, graph):
        self.shop, self.graph = shop, graph
        self.run(PROMPT)
        assert last_report().outcome == "SUSPENDED"
        self.state = graph.get_state(THREAD)
        self.said = self.state.values["messages"][-1]

    def run(self, given=None):
        return saga_run_sync(self.graph, given, THREAD, kit=self.shop.kit)

    def edit(self, *messages, as_node=None, config=THREAD):
        self.graph.update_state(config, {"messages": list(messages)}, as_node=as_node)

    def assert_undone(self, given=None):
        with pytest.raises(SagaAborted) as failed:
            self.run(given)
        assert isinstance(failed.value.cause, ReplayConflict)
        self.shop.world.assert_restored()


@pytest.fixture
def one_node(shop):
    """Both calls are made in one node, which waits as a whole."""
    builder = StateGraph(MessagesState)
    model = Scripted(script=[WAITS, "done"])
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", SagaToolNode(shop.tools, kit=shop.kit, declared=shop.declared))
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda s: "tools" if getattr(s["messages"][-1], "tool_calls", ()) else "__end__"
    )
    builder.add_edge("tools", "model")
    return Waiting(shop, builder.compile(checkpointer=InMemorySaver()))


@pytest.fixture
def agent(shop):
    """Each call is a task of its own."""
    made = create_agent(Scripted(script=[WAITS, "done"]), shop.tools, checkpointer=InMemorySaver())
    return Waiting(shop, saga_agent(made, shop.kit, tools=shop.declared).graph)


def other(waiting, *calls):
    return AIMessage("", id=waiting.said.id, tool_calls=list(calls))


@pytest.mark.guarantee("LANGGRAPH-6")
def test_a_call_that_is_edited_away_is_undone_with_the_run(one_node):
    one_node.edit(other(one_node, WAITS[1]), as_node="model")
    one_node.run()
    one_node.assert_undone(YES)


def test_a_call_that_is_changed_does_not_stand_beside_its_change(one_node):
    one_node.edit(other(one_node, call("book", "c1", item="room")), as_node="model")
    one_node.assert_undone()


def test_an_equal_call_with_another_id_is_the_same(one_node):
    one_node.edit(other(one_node, call("book", "c9", item="seat")), as_node="model")
    one_node.run()
    assert last_report().outcome == "COMMITTED"
    one_node.shop.world.assert_applied_once("seat")


def test_an_edit_that_ends_the_turn_undoes_what_was_done_in_it(one_node):
    one_node.edit(RemoveMessage(one_node.said.id), as_node="tools")
    one_node.assert_undone()


def test_what_the_edited_state_tells_of_is_kept(agent):
    [done] = [task.result["messages"] for task in agent.state.tasks if task.result]
    agent.edit(*done, ToolMessage("no", tool_call_id="c2"), as_node="tools")
    agent.run()
    assert last_report().outcome == "COMMITTED"
    agent.shop.world.assert_applied_once("seat")


@pytest.mark.guarantee("LANGGRAPH-6")
@pytest.mark.parametrize("by_checkpoint", [False, True])
def test_what_the_edited_state_has_lost_is_undone(agent, by_checkpoint):
    config = agent.state.config if by_checkpoint else THREAD
    agent.edit(ToolMessage("no", tool_call_id="c2"), as_node="tools", config=config)
    told = agent.graph.get_state(THREAD).values["messages"][2:]
    assert [message.tool_call_id for message in told] == ["c2"]
    agent.assert_undone()


@pytest.mark.parametrize("by_checkpoint", [False, True])
def test_an_edit_beside_it_repeats_nothing(agent, by_checkpoint):
    config = agent.state.config if by_checkpoint else THREAD
    agent.edit(other(agent, *WAITS), as_node="model", config=config)
    agent.run()
    agent.run(YES)
    assert last_report().outcome == "COMMITTED"
    agent.shop.world.assert_applied_once("seat")


# --- an edit in the place of one node drops what nodes beside it have written --------------------


class Branches(TypedDict, total=False):
    log: Annotated[list, operator.add]


@pytest.fixture
def branches(shop):
    """A node that has booked, beside one that waits; nothing of either is in the state yet."""
    tool = safe_tool(shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)
    builder = StateGraph(Branches)
    builder.add_node("books", lambda _: {"log": [tool.invoke({"item": "seat"})["id"]]})
    builder.add_node("waits", lambda _: {"log": [interrupt("go on?")]})
    builder.add_node("last", lambda _: {"log": ["last"]})
    builder.add_edge(START, "books").add_edge(START, "waits").add_edge("waits", "last")
    graph = builder.compile(checkpointer=InMemorySaver())
    saga_run_sync(graph, {"log": []}, THREAD, kit=shop.kit)
    assert last_report().outcome == "SUSPENDED"
    return graph


@pytest.mark.guarantee("LANGGRAPH-6")
@pytest.mark.parametrize("node", ["waits", "books", "last"])
def test_what_an_edit_in_the_place_of_a_node_drops_is_undone_with_the_run(shop, branches, node):
    branches.update_state(THREAD, {"log": ["edited"]}, as_node=node)
    with pytest.raises(SagaAborted) as failed:
        saga_run_sync(branches, None, THREAD, kit=shop.kit)
    assert isinstance(failed.value.cause, ReplayConflict)
    shop.world.assert_restored()


@pytest.mark.parametrize("node", ["waits", "books", "last"])
def test_what_an_edit_drops_and_a_new_input_asks_for_is_the_same_call(shop, branches, node):
    branches.update_state(THREAD, {"log": ["edited"]}, as_node=node)
    saga_run_sync(branches, {"log": []}, THREAD, kit=shop.kit)
    saga_run_sync(branches, Command(resume="yes"), THREAD, kit=shop.kit)
    assert last_report().outcome == "COMMITTED"
    shop.world.assert_applied_once("seat")


def test_what_an_edit_that_ends_the_graph_keeps_stands(shop, branches):
    branches.update_state(THREAD, None, as_node="__end__")
    assert saga_run_sync(branches, None, THREAD, kit=shop.kit) == {"log": [1]}
    assert last_report().clean
    shop.world.assert_applied_once("seat")


# --- an edit that goes back -----------------------------------------------------------------------


class Trip:
    """Books, asks, and goes round once more if the answer is "again"."""

    def __init__(self, shop):
        self.kit = shop.kit
        cancel = shop.cancel.using(effect="$.id")
        tool = safe_tool(shop.book.func, compensate=cancel, kit=shop.kit)
        builder = StateGraph(Log)
        builder.add_node("plan", lambda _: {"log": ["plan"]})
        builder.add_node("pay", lambda _: {"log": [tool.invoke({"item": "seat"})["id"]]})
        builder.add_node("ask", lambda _: {"log": [interrupt("go on?")]})
        builder.add_edge(START, "plan").add_edge("plan", "pay").add_edge("pay", "ask")
        builder.add_conditional_edges(
            "ask", lambda state: "pay" if state["log"][-1] == "again" else "__end__"
        )
        self.graph = builder.compile(checkpointer=InMemorySaver())

    def run(self, given, **options):
        return saga_run_sync(self.graph, given, THREAD, kit=self.kit, **options)

    def edit(self, said, node):
        self.graph.update_state(THREAD, {"log": [said]}, as_node=node)


@pytest.mark.guarantee("LANGGRAPH-7")
@pytest.mark.parametrize("node", ["__start__", "plan"])
def test_an_edit_that_goes_back_before_an_effect_is_refused(shop, node):
    trip = Trip(shop)
    trip.run({"log": []})
    trip.edit("from the start", node)
    with pytest.raises(BranchRefused, match=r"edited(.|\n)*seat"):
        trip.run(None)
    shop.world.assert_applied_once("seat")
    *_, oldest = (s for s in trip.graph.get_state_history(THREAD) if s.next == ("plan",))
    rollback_to_sync(trip.graph, oldest.config, kit=shop.kit)
    shop.world.assert_restored()
    trip.run(None)
    assert trip.run(Command(resume="done"))["log"][-1] == "done"
    shop.world.assert_stands("seat")


def test_what_an_edit_goes_back_to_may_be_kept_and_is_told(shop):
    trip = Trip(shop)
    trip.run({"log": []})
    trip.edit("from the start", "__start__")
    trip.run(None, on_branch="keep")
    assert any("seat" in note for note in last_report().notes)
    trip.run(Command(resume="done"))
    shop.world.assert_stands("seat", "seat")
    assert last_report().outcome == "COMMITTED"


def test_an_answer_that_is_given_by_an_edit_may_go_round(shop):
    trip = Trip(shop)
    trip.run({"log": []})
    trip.edit("again", "ask")
    trip.run(None)
    trip.edit("done", "ask")
    trip.run(None)
    assert trip.graph.get_state(THREAD).values["log"] == ["plan", 1, "again", 2, "done"]
    shop.world.assert_stands("seat", "seat")


def test_an_edit_beside_what_waits_goes_nowhere(shop):
    trip = Trip(shop)
    trip.run({"log": []})
    trip.edit("a remark", "pay")
    trip.run(None)
    trip.run(Command(resume="done"))
    shop.world.assert_applied_once("seat")

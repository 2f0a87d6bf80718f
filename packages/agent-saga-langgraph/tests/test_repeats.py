"""A task that is repeated asks again: a model gives new ids, a graph inside it has new ones.

Each case runs a graph that begins some effects, stops in the middle, and is gone on with: by a
retry, or by an interrupt and its answer. The world counts.
"""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt
from scripted import Deciding, Scripted, call

from agent_saga import SagaAborted
from agent_saga.errors import ReplayConflict
from agent_saga_langgraph import last_report, safe_tool, saga_node, saga_run, saga_run_sync
from agent_saga_langgraph.tools import wrap_as

THREAD = {"configurable": {"thread_id": "1"}}
AGAIN = RetryPolicy(initial_interval=0, jitter=False, max_attempts=3, retry_on=ConnectionError)
PROMPT = {"messages": [("user", "go on")]}


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]
    item: str


async def reported(run):
    return await run, last_report()


class Again:
    """Runs a node that is repeated, and stops it where it is asked to."""

    def __init__(self, shop, how, durability="async", *, asynchronous=False):
        self.shop, self.how, self.durability = shop, how, durability
        self.asynchronous = asynchronous
        self.tool = safe_tool(
            shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit
        )
        self.attempts = 0

    def stop(self):
        """Stop here, the first time."""
        if self.how == "retry" and self.attempts == 1:
            raise ConnectionError("a later line of the node")
        if self.how == "interrupt":
            interrupt("go on?")

    def book(self, item):
        """Book as a model asks: each time with another id."""
        return self.tool.invoke(call("book", item=item)).content

    def agent(self, *items, **options):
        """An agent that books, one turn after the other, with other ids in each attempt."""
        turns = [[call("book", item=item)] for item in items]
        return create_agent(Scripted(script=[*turns, "done"]), [self.tool], **options)

    def graph(self, node, *, stored=True):
        def counted(state):
            self.attempts += 1
            return node(state)

        async def counted_async(state):
            self.attempts += 1
            return await asyncio.to_thread(node, state)

        builder = StateGraph(State)
        builder.add_node(
            "node", counted_async if self.asynchronous else counted, retry_policy=AGAIN
        )
        builder.add_edge(START, "node")
        return builder.compile(checkpointer=InMemorySaver() if stored else None)

    def run(self, graph, given, **options):
        options = {"kit": self.shop.kit, **options}
        if graph.checkpointer is not None:
            options["durability"] = self.durability
        if self.asynchronous:
            result, self.report = asyncio.run(reported(saga_run(graph, given, THREAD, **options)))
            return result
        result = saga_run_sync(graph, given, THREAD, **options)
        self.report = last_report()
        return result

    def through(self, graph):
        """Run a graph to its end."""
        result = self.run(graph, {"log": []})
        while "__interrupt__" in result:
            assert self.report.outcome == "SUSPENDED"
            result = self.run(graph, Command(resume="yes"))
        assert self.report.outcome == "COMMITTED"
        assert not self.report.notes
        return result

    def assert_booked(self, *items):
        self.shop.world.assert_stands(*items)
        assert self.shop.world.applications() == len(items)


@pytest.fixture(params=["sync", "async"])
def asynchronous(request):
    return request.param == "async"


@pytest.fixture(params=["retry", "interrupt"])
def again(shop, request, asynchronous):
    return Again(shop, request.param, asynchronous=asynchronous)


# --- what a model asks for anew -------------------------------------------------------------------


@pytest.mark.guarantee("LANGGRAPH-1")
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_call_that_a_model_asks_for_anew_is_the_same(again, durability):
    again.durability = durability

    def node(state):
        booked = [again.book("seat"), again.book("room")]
        again.stop()
        return {"log": booked}

    again.through(again.graph(node))
    again.assert_booked("seat", "room")


def test_two_equal_calls_of_one_attempt_are_two_effects(again):
    def node(state):
        booked = [again.book("box"), again.book("box")]
        again.stop()
        return {"log": [*booked, again.book("box")]}

    log = again.through(again.graph(node))["log"]
    assert len(set(log)) == 3
    again.assert_booked("box", "box", "box")


def test_what_comes_after_the_stop_is_another_call(again):
    def node(state):
        first = again.book("seat")
        again.stop()
        return {"log": [first, again.book("seat")]}

    log = again.through(again.graph(node))["log"]
    assert len(set(log)) == 2
    again.assert_booked("seat", "seat")


def test_parallel_tasks_of_one_node_keep_their_own_results(again):
    def node(state):
        item = again.book("box")
        if state["item"] == "last":
            again.stop()
        return {"log": [(state["item"], item)]}

    builder = StateGraph(State)

    def counted(state):
        again.attempts += state["item"] == "last"
        return node(state)

    builder.add_node("node", counted, retry_policy=AGAIN)
    items = ["first", "second", "last"]
    builder.add_conditional_edges(START, lambda _: [Send("node", {"item": item}) for item in items])
    log = again.through(builder.compile(checkpointer=InMemorySaver()))["log"]
    assert sorted(item for item, _ in log) == sorted(items)
    assert len({box for _, box in log}) == 3
    again.assert_booked("box", "box", "box")


# --- graphs that are called inside a node ---------------------------------------------------------


@pytest.mark.guarantee("LANGGRAPH-1")
@pytest.mark.parametrize("checkpointer", [None, False, "own"])
def test_an_agent_that_is_called_in_a_node_repeats_nothing(again, checkpointer):
    own = InMemorySaver() if checkpointer == "own" else checkpointer
    config = {"configurable": {"thread_id": "inner"}} if own else None

    def node(state):
        inner = again.agent("seat", "room", checkpointer=own)
        said = inner.invoke(PROMPT, config)["messages"][-1].text
        again.stop()
        return {"log": [said]}

    assert again.through(again.graph(node))["log"] == ["done"]
    again.assert_booked("seat", "room")


@pytest.mark.parametrize("checkpointer", [None, False])
def test_two_agents_in_a_node_are_told_apart(again, checkpointer):
    def node(state):
        for _ in range(2):
            again.agent("box", "box", checkpointer=checkpointer).invoke(PROMPT)
        again.stop()
        again.agent("box", checkpointer=checkpointer).invoke(PROMPT)
        return {"log": ["done"]}

    again.through(again.graph(node))
    again.assert_booked(*["box"] * 5)


def test_an_agent_that_is_called_with_other_callbacks_repeats_nothing(again):
    def node(state):
        again.agent("seat").invoke(PROMPT, {"callbacks": [BaseCallbackHandler()]})
        again.stop()
        return {"log": ["done"]}

    again.through(again.graph(node))
    again.assert_booked("seat")


def test_a_graph_in_a_graph_in_a_node_repeats_nothing(again):
    def middle(state):
        again.agent("seat", "seat").invoke(PROMPT)
        again.book("room")
        return {"log": ["middle"]}

    def node(state):
        builder = StateGraph(State)
        builder.add_node("middle", middle)
        builder.add_edge(START, "middle")
        builder.compile().invoke({"log": []})
        again.stop()
        return {"log": ["done"]}

    again.through(again.graph(node))
    again.assert_booked("seat", "seat", "room")


def test_an_agent_that_stops_inside_goes_on_and_repeats_nothing(shop, asynchronous):
    again = Again(shop, "interrupt", asynchronous=asynchronous)
    asks = wrap_as(shop.ask, shop.declared["ask"], shop.kit)
    turns = [
        [call("book", item="seat")],
        [call("book", item="seat"), call("ask", question="shall I?")],
        [call("book", item="seat")],
        "done",
    ]
    model = Deciding(script=turns)

    def node(state):
        inner = create_agent(model, [again.tool, asks])
        return {"log": [inner.invoke(PROMPT)["messages"][-1].text]}

    assert again.through(again.graph(node))["log"] == ["done"]
    again.assert_booked("seat", "seat", "seat")


def test_tasks_that_are_called_are_known_by_their_number(again):
    @task
    def stage(item):
        return again.book(item)

    @entrypoint(checkpointer=InMemorySaver(), retry_policy=AGAIN)
    def workflow(given):
        again.attempts += 1
        done = [stage("box").result(), stage("box").result()]
        again.stop()
        return [*done, stage("box").result(), again.book("box")]

    result = again.run(workflow, {"log": []})
    if again.how == "interrupt":
        result = again.run(workflow, Command(resume="yes"))
    assert len(set(result)) == 4
    again.assert_booked(*["box"] * 4)


# --- another way ----------------------------------------------------------------------------------


@pytest.mark.guarantee("LANGGRAPH-19")
def test_what_the_last_attempt_did_not_repeat_is_told(again):
    def node(state):
        again.book("seat" if again.attempts == 1 else "room")
        again.stop()
        return {"log": ["done"]}

    graph = again.graph(node)
    result = again.run(graph, {"log": []})
    if "__interrupt__" in result:
        again.run(graph, Command(resume="yes"))
    [note] = again.report.notes
    assert "did not repeat" in note
    assert "book" in note
    again.assert_booked("seat", "room")


def test_where_nobody_saw_the_node_begin_an_equal_call_inside_is_refused(shop):
    again = Again(shop, "retry")

    def node(state):
        again.agent("seat").invoke(PROMPT)
        again.stop()
        return {"log": ["done"]}

    graph = again.graph(node, stored=False)
    with pytest.raises(SagaAborted) as failed, shop.kit.transaction():
        graph.invoke({"log": []})
    assert isinstance(failed.value.cause, ReplayConflict)
    assert shop.world.applications() == 1
    shop.world.assert_restored()


def test_a_retry_of_a_node_alone_needs_no_boundary_of_ours(shop):
    again = Again(shop, "retry")

    def node(state):
        booked = [again.book("seat"), again.book("seat")]
        again.stop()
        return {"log": booked}

    with shop.kit.transaction():
        again.graph(node, stored=False).invoke({"log": []})
    again.assert_booked("seat", "seat")


def test_a_node_that_is_an_effect_in_a_repeated_graph_is_done_once(again):
    def reserve(state):
        return {"log": [shop.world.do(state["item"])["id"]]}

    shop = again.shop
    inner = StateGraph(State)
    inner.add_node(
        "reserve", saga_node(reserve, compensate=shop.cancel.using(effect="$.log.0"), kit=shop.kit)
    )
    inner.add_edge(START, "reserve")

    def node(state):
        done = [
            inner.compile().invoke({"item": item, "log": []})["log"] for item in ("seat", "room")
        ]
        again.stop()
        return {"log": done}

    again.through(again.graph(node))
    again.assert_booked("seat", "room")

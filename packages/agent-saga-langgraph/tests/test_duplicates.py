"""Where LangGraph runs something twice: each way once without agent-saga, to see it, and once with.

The world counts; the number beside each way is what it sees of a plain graph.
"""

from __future__ import annotations

import asyncio
import operator
import threading
import time
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained, GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import RunControl
from langgraph.types import Command, RetryPolicy, interrupt
from scripted import call

from agent_saga import AgentSagaError, SagaAborted
from agent_saga_langgraph import (
    SagaToolNode,
    last_report,
    safe_tool,
    saga_run,
    saga_run_sync,
)
from agent_saga_testing.waiting import until

THREAD = {"configurable": {"thread_id": "1"}}
AGAIN = RetryPolicy(initial_interval=0, jitter=False, max_attempts=3, retry_on=Exception)
BOTH = pytest.mark.parametrize("guarded", [False, True], ids=["plain", "guarded"])


class State(TypedDict):
    log: Annotated[list, operator.add]


class Way:
    """A graph of nodes over the shop's world, run as it is or as a boundary."""

    def __init__(self, shop, *, guarded):
        self.shop, self.guarded = shop, guarded
        given = {"compensate": shop.cancel.using(effect="$.id"), "kit": shop.kit}
        self.tool = safe_tool(shop.book.func, **given) if guarded else shop.book

    def book(self, item):
        return self.tool.invoke({"item": item})["id"]

    def chain(self, *nodes, **options):
        builder = StateGraph(State)
        names = [str(number) for number in range(len(nodes))]
        for name, node in zip(names, nodes, strict=True):
            builder.add_node(name, node, **options)
        for one, other in zip([START, *names], names, strict=False):
            builder.add_edge(one, other)
        return builder.compile(checkpointer=InMemorySaver())

    def run(self, graph, given, config=THREAD, **options):
        if not self.guarded:
            return graph.invoke(given, config, **options)
        return saga_run_sync(graph, given, config, kit=self.shop.kit, **options)

    async def arun(self, graph, given, config=THREAD):
        if not self.guarded:
            return await graph.ainvoke(given, config)
        return await saga_run(graph, given, config, kit=self.shop.kit)

    def assert_applied(self, plain):
        assert self.shop.world.applications() == (1 if self.guarded else plain)


@pytest.fixture
def way(shop, guarded):
    return Way(shop, guarded=guarded)


@BOTH
def test_an_effect_before_two_interrupts_happens_once(way):
    def node(state):
        way.book("seat")
        interrupt("ok?")
        interrupt("really?")
        return {"log": ["done"]}

    graph = way.chain(node)
    for given in ({"log": []}, Command(resume="yes"), Command(resume="yes!")):
        way.run(graph, given)
    way.assert_applied(plain=3)


@BOTH
def test_a_retried_node_does_what_it_did_once(way):
    runs = []

    def node(state):
        way.book("seat")
        runs.append(1)
        if len(runs) < 3:
            raise ConnectionError("a later line of the node")
        return {"log": ["done"]}

    way.run(way.chain(node, retry_policy=AGAIN), {"log": []})
    way.assert_applied(plain=3)


@BOTH
def test_a_retried_tool_node_does_not_repeat_the_call_that_went_well(way):
    runs = []

    def recovers(item: str) -> str:
        """Fail twice."""
        runs.append(item)
        if len(runs) < 3:
            raise ConnectionError("not now")
        return item

    if way.guarded:
        second = safe_tool(recovers, "REVERSIBLE", kit=way.shop.kit)
        node = SagaToolNode([way.tool, second])
    else:
        node = ToolNode([way.tool, recovers], handle_tool_errors=False)
    builder = StateGraph(MessagesState)
    builder.add_node("tools", node, retry_policy=AGAIN)
    builder.add_edge(START, "tools")
    calls = [call("book", "c1", item="seat"), call("recovers", "c2", item="x")]
    way.run(builder.compile(), {"messages": [AIMessage("", tool_calls=calls)]}, {})
    way.assert_applied(plain=3)


@BOTH
def test_a_node_that_timed_out_and_is_run_again_does_it_once(way):
    async def node(state):
        first = not way.shop.world.applications()
        await way.tool.ainvoke({"item": "seat"})
        if first:
            await asyncio.sleep(60)
        return {"log": ["done"]}

    graph = way.chain(node, retry_policy=AGAIN, timeout=1.0)
    asyncio.run(way.arun(graph, {"log": []}))
    way.assert_applied(plain=2)


@BOTH
def test_a_run_without_an_end_is_undone(way):
    def node(state):
        way.book("seat")
        return {"log": ["again"]}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", "node")
    with pytest.raises((GraphRecursionError, SagaAborted)):
        way.run(builder.compile(), {"log": []}, {"recursion_limit": 4})
    assert len(way.shop.world.standing()) == (0 if way.guarded else 4)


@BOTH
def test_a_synchronous_effect_that_comes_after_the_failure_of_its_sibling_is_undone(way):
    started, failed, slow = threading.Event(), threading.Event(), []

    def late(state):
        started.set()
        until(failed.is_set)
        time.sleep(0.05)
        way.book("late")
        slow.append(1)
        return {"log": ["late"]}

    def fails(state):
        until(started.is_set)
        failed.set()
        raise RuntimeError("the sibling failed")

    builder = StateGraph(State)
    builder.add_node("late", late)
    builder.add_node("fails", fails)
    builder.add_edge(START, "late")
    builder.add_edge(START, "fails")

    async def case():
        with pytest.raises((RuntimeError, SagaAborted)):
            await way.arun(builder.compile(), {"log": []}, {})
        await asyncio.to_thread(until, lambda: slow or (way.guarded and failed.is_set()))
        await asyncio.sleep(0.2)

    asyncio.run(case())
    assert len(way.shop.world.standing()) == (0 if way.guarded else 1)


@BOTH
def test_a_drained_run_waits_and_goes_on_without_repeating(way):
    control = RunControl()

    def first(state):
        way.book("seat")
        control.request_drain("shutdown")
        return {"log": ["first"]}

    graph = way.chain(first, lambda state: {"log": ["second"]})
    with pytest.raises(GraphDrained):
        way.run(graph, {"log": []}, control=control)
    if way.guarded:
        assert last_report().outcome == "SUSPENDED"
    assert way.run(graph, None)["log"] == ["first", "second"]
    way.assert_applied(plain=1)


@BOTH
def test_an_error_handler_of_a_node_takes_its_failure_and_keeps_the_effect(way):
    def node(state):
        way.book("seat")
        raise RuntimeError("a later line of the node")

    graph = way.chain(node, error_handler=lambda state: Command(update={"log": ["handled"]}))
    assert way.run(graph, {"log": []})["log"] == ["handled"]
    way.assert_applied(plain=1)


def test_of_two_that_resume_a_thread_at_once_one_does(shop):
    way = Way(shop, guarded=True)
    going = threading.Barrier(2)

    def node(state):
        interrupt("go on?")
        way.book("seat")
        time.sleep(0.1)
        return {"log": ["done"]}

    graph = way.chain(node)
    way.run(graph, {"log": []})
    answers = []

    def resume():
        going.wait()
        try:
            answers.append(way.run(graph, Command(resume="yes"))["log"])
        except (AgentSagaError, RuntimeError) as refused:
            answers.append(refused)

    threads = [threading.Thread(target=resume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ["done"] in answers
    shop.world.assert_applied_once("seat")


def test_a_graph_does_not_repeat_what_the_program_does_not_know_the_end_of(shop):
    way = Way(shop, guarded=True)
    graph = way.chain(lambda _: {"log": [str(way.book("seat"))]})
    shop.world.lose_answers(1)
    with pytest.raises(SagaAborted), shop.kit.transaction():
        with pytest.raises(ConnectionError):
            way.book("seat")
        saga_run_sync(graph, {"log": []}, THREAD, kit=shop.kit)
    assert shop.world.attempts() == 1

"""What LangChain itself tries again (`with_retry`) repeats no effect, wherever it stands."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import operator
import threading
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from scripted import Scripted, call

from agent_saga import SagaAborted
from agent_saga.errors import ReplayConflict
from agent_saga_langgraph import (
    last_report,
    read_only,
    safe_tool,
    saga_agent,
    saga_run,
    saga_run_sync,
    wrap_tool,
)

GO = {"log": []}
PROMPT = {"messages": [("user", "go on")]}
AGAIN = {"stop_after_attempt": 4, "wait_exponential_jitter": False}


class State(TypedDict):
    log: Annotated[list, operator.add]


class Desk:
    """Books what it is told to, and fails behind it, twice."""

    def __init__(self, shop):
        self.shop, self.runs = shop, 0
        self.tool = safe_tool(
            shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit
        )

    def book(self, item):
        return self.tool.invoke({"item": item})["id"]

    def fail(self, state=None):
        self.runs += 1
        if self.runs < 3:
            raise ConnectionError("a later line")
        return {"log": []}

    def node(self, state):
        booked = [self.book("seat")]
        self.fail()
        return {"log": booked}

    async def anode(self, state):
        booked = [(await self.tool.ainvoke({"item": "seat"}))["id"]]
        self.fail()
        return {"log": booked}

    def chain(self, *nodes):
        builder = StateGraph(State)
        names = [str(number) for number in range(len(nodes))]
        for before, name, node in zip([START, *names], names, nodes, strict=False):
            builder.add_node(name, node)
            builder.add_edge(before, name)
        return builder.compile()

    def run(self, graph, *, on_a_loop=False):
        if on_a_loop:
            return asyncio.run(saga_run(graph, GO, kit=self.shop.kit))
        return saga_run_sync(graph, GO, kit=self.shop.kit)


@pytest.fixture
def desk(shop):
    return Desk(shop)


@pytest.mark.guarantee("LANGGRAPH-1")
@pytest.mark.parametrize("on_a_loop", [False, True])
def test_a_node_that_is_tried_again_repeats_nothing(desk, on_a_loop):
    node = RunnableLambda(desk.anode if on_a_loop else desk.node).with_retry(**AGAIN)
    assert desk.run(desk.chain(node), on_a_loop=on_a_loop)["log"] == [1]
    assert desk.runs == 3
    desk.shop.world.assert_applied_once("seat")


@pytest.mark.guarantee("LANGGRAPH-1")
@pytest.mark.parametrize("where", ["the node", "in a node", "outermost", "in a sequence"])
def test_a_graph_that_is_tried_again_repeats_nothing(desk, where):
    inner = desk.chain(lambda _: {"log": [desk.book("seat")]}, desk.fail)
    again = inner.with_retry(**AGAIN)
    graph = {
        "the node": lambda: desk.chain(again),
        "in a node": lambda: desk.chain(lambda _: again.invoke(GO)),
        "outermost": lambda: again,
        "in a sequence": lambda: RunnablePassthrough() | again,
    }[where]()
    assert desk.run(graph)["log"] == [1]
    assert desk.runs == 3
    desk.shop.world.assert_applied_once("seat")


def test_equal_calls_before_within_and_behind_it_are_each_an_effect(desk):
    def node(state):
        before = desk.book("seat")
        within = RunnableLambda(desk.node).with_retry(**AGAIN).invoke(state)["log"]
        return {"log": [before, *within, desk.book("seat")]}

    assert desk.run(desk.chain(node))["log"] == [1, 2, 3]
    assert desk.shop.world.applications() == 3


def test_what_runs_in_turn_is_no_other_try(desk):
    book = RunnableLambda(lambda state: [*state, desk.book("seat")])
    node = RunnableLambda(lambda _: []) | book | book | (lambda booked: {"log": booked})
    assert desk.run(desk.chain(node))["log"] == [1, 2]


def test_an_agent_that_a_model_s_error_has_tried_again_books_once(shop):
    turns = [[call("book", item="seat")], RuntimeError("no"), [call("book", item="seat")], "done"]
    booked = wrap_tool(shop.book, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)
    agent = create_agent(Scripted(script=turns), [booked])
    result = saga_run_sync(agent.with_retry(**AGAIN), PROMPT, kit=shop.kit)
    assert result["messages"][-1].text == "done"
    shop.world.assert_applied_once("seat")


def test_what_the_last_try_did_not_repeat_is_told(desk):
    def node(state):
        booked = [desk.book(f"seat {desk.runs}")]
        desk.fail()
        return {"log": booked}

    desk.run(desk.chain(RunnableLambda(node).with_retry(**AGAIN)))
    desk.shop.world.assert_stands("seat 0", "seat 1", "seat 2")
    assert sum("did not repeat" in note for note in last_report().notes) == 2


def test_each_try_of_an_agent_with_boundaries_is_a_boundary(shop):
    turns = [[call("book", item="seat")], RuntimeError("no"), [call("book", item="seat")], "done"]
    agent = saga_agent(
        create_agent(Scripted(script=turns), shop.tools), shop.kit, tools=shop.declared
    )
    assert agent.with_retry(**AGAIN).invoke(PROMPT)["messages"][-1].text == "done"
    assert len(shop.world.undone()) == 1
    shop.world.assert_stands("seat")


@pytest.mark.guarantee("LANGGRAPH-20")
@pytest.mark.parametrize("within", ["itself", "a sequence"])
def test_where_no_graph_tells_the_place_nothing_is_tried_again(desk, within):
    again = RunnableLambda(desk.node).with_retry(**AGAIN)
    with pytest.raises(SagaAborted) as failed:
        desk.run(again if within == "itself" else RunnablePassthrough() | again)
    assert isinstance(failed.value.cause, ReplayConflict)
    assert failed.value.report.clean
    assert desk.shop.world.applications() == 1
    desk.shop.world.assert_restored()


def test_of_several_that_are_tried_again_each_keeps_its_own(desk):
    def each(number):
        desk.runs += 1
        booked = desk.book("seat")
        if desk.runs < 3:
            raise ConnectionError("a later line")
        return booked

    again = RunnableLambda(each).with_retry(**AGAIN).map()
    node = RunnableLambda(lambda _: [1, 2, 3]) | again | (lambda booked: {"log": booked})
    graph = desk.chain(node)
    result = saga_run_sync(graph, GO, {"max_concurrency": 1}, kit=desk.shop.kit)
    assert sorted(result["log"]) == [1, 2, 3]
    assert desk.shop.world.applications() == 3
    assert not last_report().notes


# --- a tool that is called again ------------------------------------------------------------------


def calls_again(shop, outer):
    middleware = [ToolRetryMiddleware(max_retries=3, initial_delay=0.0, on_failure="error")]
    model = Scripted(script=[[call(outer.__name__, item="seat")], "done"])
    agent = create_agent(model, [tool(outer)], middleware=middleware)
    return saga_agent(agent, shop.kit, tools={outer.__name__: read_only()})


@pytest.mark.guarantee("LANGGRAPH-1")
@pytest.mark.parametrize("on_a_loop", [False, True])
def test_what_a_tool_calls_that_a_middleware_calls_again_is_done_once(desk, on_a_loop):
    def outer(item: str) -> int:
        """Book by another tool."""
        booked = desk.book(item)
        desk.fail()
        return booked + desk.book(item)

    async def aouter(item: str) -> int:
        """Book by another tool."""
        booked = (await desk.tool.ainvoke({"item": item}))["id"]
        desk.fail()
        return booked + (await desk.tool.ainvoke({"item": item}))["id"]

    agent = calls_again(desk.shop, aouter if on_a_loop else outer)
    result = asyncio.run(agent.ainvoke(PROMPT)) if on_a_loop else agent.invoke(PROMPT)
    assert result["messages"][-2].text == "3"
    assert desk.shop.world.applications() == 2


def test_what_it_does_not_call_again_is_told(desk):
    def outer(item: str) -> int:
        """Book by another tool."""
        desk.book(f"{item} {desk.runs}")
        desk.fail()
        return desk.runs

    agent = calls_again(desk.shop, outer)
    agent.invoke(PROMPT)
    desk.shop.world.assert_stands("seat 0", "seat 1", "seat 2")
    assert sum("did not repeat" in note for note in last_report().notes) == 2


# --- outside our runs, and what fails for good ----------------------------------------------------


def test_a_graph_in_a_boundary_of_the_program_is_tried_again_and_repeats_nothing(desk):
    graph = desk.chain(RunnableLambda(desk.node).with_retry(**AGAIN))
    with desk.shop.kit.transaction():
        assert graph.invoke(GO)["log"] == [1]
    desk.shop.world.assert_applied_once("seat")


@pytest.mark.parametrize("where", ["a node", "outermost"])
def test_what_stands_of_something_that_failed_and_was_passed_over_is_told(desk, where):
    failing = desk.chain(lambda _: {"log": [desk.book("seat")]}, desk.fail)
    other = failing.with_fallbacks([desk.chain(lambda _: {"log": ["other"]})])
    graph = desk.chain(other) if where == "a node" else other
    assert desk.run(graph)["log"] == ["other"]
    desk.shop.world.assert_stands("seat")
    assert any("passed over" in note and "book" in note for note in last_report().notes)


def refuse(_):
    raise ValueError("no")


async def arefuse(_):
    raise ValueError("no")


def refused():
    with contextlib.suppress(ValueError):
        RunnableLambda(refuse).invoke(1)


async def arefused():
    with contextlib.suppress(ValueError):
        await RunnableLambda(arefuse).ainvoke(1)


@pytest.mark.parametrize("on_a_loop", [False, True])
@pytest.mark.parametrize("how", ["a chain", "a chain in turn", "a graph", "some at once"])
def test_what_is_done_behind_something_that_failed_is_not_in_it(desk, how, on_a_loop):
    failing = {
        "a chain": lambda: RunnableLambda(refuse, arefuse),
        "a chain in turn": lambda: RunnablePassthrough() | RunnableLambda(refuse, arefuse),
        "a graph": lambda: desk.chain(RunnableLambda(refuse, arefuse)),
        "some at once": lambda: RunnableLambda(refuse, arefuse).map(),
    }[how]()
    given = GO if how == "a graph" else [1, 2]

    def node(state):
        with contextlib.suppress(ValueError):
            failing.invoke(given)
        return {"log": [desk.book("seat")]}

    async def anode(state):
        with contextlib.suppress(ValueError):
            await failing.ainvoke(given)
        return {"log": [(await desk.tool.ainvoke({"item": "seat"}))["id"]]}

    assert desk.run(desk.chain(anode if on_a_loop else node), on_a_loop=on_a_loop)["log"] == [1]
    assert last_report().clean
    assert not last_report().notes


@pytest.mark.parametrize("on_a_loop", [False, True])
def test_what_a_tool_does_behind_something_that_failed_is_not_in_it(desk, on_a_loop):
    def outer(item: str) -> int:
        """Book by another tool."""
        refused()
        refused()
        return desk.book(item)

    async def aouter(item: str) -> int:
        """Book by another tool."""
        await arefused()
        await arefused()
        return (await desk.tool.ainvoke({"item": item}))["id"]

    agent = calls_again(desk.shop, aouter if on_a_loop else outer)
    asyncio.run(agent.ainvoke(PROMPT)) if on_a_loop else agent.invoke(PROMPT)
    desk.shop.world.assert_applied_once("seat")
    assert not last_report().notes


def test_what_a_boundary_does_behind_something_that_failed_is_not_in_it(desk):
    refused()
    with desk.shop.kit.transaction():
        refused()
        desk.run(desk.chain(lambda _: {"log": [desk.book("seat")]}))
    assert not last_report().notes


@pytest.mark.guarantee("LANGGRAPH-1")
def test_what_a_try_began_is_in_it_when_it_has_failed(desk):
    """A thread of the first try books behind its end; the second one's equal call is that one."""
    left = []

    def late(tried):
        refused()
        tried.wait(30)
        desk.book("seat")

    def node(state):
        if not left:
            left.append(threading.Event())
            context = contextvars.copy_context()
            left.append(threading.Thread(target=context.run, args=(late, left[0])))
            left[1].start()
            raise ConnectionError("a later line")
        left[0].set()
        left[1].join()
        return {"log": [desk.book("seat")]}

    assert desk.run(desk.chain(RunnableLambda(node).with_retry(**AGAIN)))["log"] == [1]
    desk.shop.world.assert_applied_once("seat")

"""After a run that failed: a thread on which nothing happened, and results that are kept."""

from __future__ import annotations

import logging
import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy

from agent_saga import ConfigurationError, SagaAborted
from agent_saga.errors import SagaClosed
from agent_saga_langgraph import caches, last_report, safe_tool, saga_boundary, saga_run_sync

THREAD = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]


class Down:
    """A graph whose second node fails while the service is down."""

    def __init__(self, shop, semantics="REVERSIBLE"):
        how = {"semantics": semantics}
        if semantics != "REVERSIBLE":
            how = {"compensate": shop.cancel.using(effect="$.id")}
        self.shop, self.is_down = shop, True
        self.tool = safe_tool(shop.book.func, kit=shop.kit, **how)
        builder = StateGraph(State)
        builder.add_node("first", self.first)
        builder.add_node("second", self.second)
        builder.add_edge(START, "first")
        builder.add_edge("first", "second")
        self.graph = builder.compile(checkpointer=InMemorySaver())

    def first(self, state):
        return {"log": [self.tool.invoke({"item": "seat"})["id"]]}

    def second(self, state):
        self.tool.invoke({"item": "room"})
        if self.is_down:
            raise RuntimeError("the service is down")
        return {"log": ["second"]}

    def run(self, given=None):
        return saga_run_sync(self.graph, given, THREAD, kit=self.shop.kit)

    def fail(self, given=None):
        with pytest.raises(SagaAborted):
            self.run(given)


# --- a thread on which nothing happened -----------------------------------------------------------


@pytest.mark.parametrize("given", [None, {"log": ["again"]}], ids=["resumed", "begun again"])
def test_a_thread_whose_failed_run_only_read_can_be_used_again(shop, given):
    down = Down(shop)
    down.fail({"log": []})
    down.fail(given)
    down.is_down = False
    assert down.run(given)["log"][-1] == "second"
    assert last_report().outcome == "COMMITTED"


def test_a_thread_whose_failed_run_had_effects_cannot(shop):
    down = Down(shop, "COMPENSABLE")
    down.fail({"log": []})
    down.is_down = False
    with pytest.raises(SagaClosed):
        down.run()
    shop.world.assert_restored()


def test_nor_can_one_whose_effects_came_when_it_was_gone_on_with(shop):
    """The waiting work may have stored what a node beside the failed one had done."""
    down = Down(shop)
    down.fail({"log": []})
    down.tool = Down(shop, "COMPENSABLE").tool
    down.fail()
    down.is_down = False
    with pytest.raises(SagaClosed):
        down.run()
    assert shop.world.undone() == ["room"]


def test_a_refused_effect_is_nothing_that_happened(shop):
    down = Down(shop)
    declined = safe_tool(
        shop.fails.func,
        compensate=shop.cancel.using(effect="$.id"),
        not_applied_on=RuntimeError,
        kit=shop.kit,
    )
    down.tool = declined
    down.fail({"log": []})
    down.tool, down.is_down = Down(shop).tool, False
    down.run()
    assert last_report().outcome == "COMMITTED"


# --- results that are kept ------------------------------------------------------------------------


@pytest.fixture
def book(shop):
    return safe_tool(shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)


def cached(node, *, boundary=None, cache=True):
    inner = StateGraph(State)
    inner.add_node("pay", node, cache_policy=CachePolicy())
    inner.add_edge(START, "pay")
    graph = inner.compile(cache=InMemoryCache() if cache else None)
    if boundary is None:
        return graph
    builder = StateGraph(State)
    builder.add_node("inner", boundary(graph))
    builder.add_edge(START, "inner")
    return builder.compile()


def test_no_effect_comes_from_a_node_whose_result_is_kept(shop, book):
    graph = cached(lambda _: {"log": [book.invoke({"item": "seat"})["id"]]})
    with pytest.raises(SagaAborted) as failed:
        saga_run_sync(graph, {"log": []}, kit=shop.kit)
    assert isinstance(failed.value.cause, ConfigurationError)
    assert "cache policy" in str(failed.value.cause)
    shop.world.assert_untouched()


@pytest.mark.parametrize("inside", ["subgraph", "boundary"])
def test_nor_from_one_inside_another_graph(shop, book, inside):
    def boundary(graph):
        return graph if inside == "subgraph" else saga_boundary(graph, shop.kit)

    graph = cached(lambda _: {"log": [book.invoke({"item": "seat"})["id"]]}, boundary=boundary)
    with pytest.raises(SagaAborted, match="cache policy"):
        saga_run_sync(graph, {"log": []}, kit=shop.kit)
    shop.world.assert_untouched()


def test_a_policy_without_a_cache_keeps_nothing(shop, book):
    graph = cached(lambda _: {"log": [book.invoke({"item": "seat"})["id"]]}, cache=False)
    saga_run_sync(graph, {"log": []}, kit=shop.kit)
    shop.world.assert_applied_once("seat")


def test_what_is_read_may_be_kept(shop):
    read = safe_tool(shop.book.func, "REVERSIBLE", kit=shop.kit)
    graph = cached(lambda _: {"log": [read.invoke({"item": "seat"})["id"]]})
    for _ in range(2):
        saga_run_sync(graph, {"log": []}, kit=shop.kit)
    assert shop.world.applications() == 1


def test_an_effect_in_a_task_that_may_be_kept_is_warned_of(shop, book, caplog):
    caches._warned.clear()

    @task
    def stage():
        return book.invoke({"item": "seat"})["id"]

    @entrypoint(cache=InMemoryCache())
    def workflow(given):
        return stage().result()

    with caplog.at_level(logging.WARNING):
        saga_run_sync(workflow, {}, kit=shop.kit)
    assert "has a cache" in caplog.text

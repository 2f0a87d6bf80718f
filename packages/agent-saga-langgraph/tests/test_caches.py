"""No effect comes from a cache of LangGraph: it would be told again after it was undone."""

from __future__ import annotations

import asyncio
import logging
import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy

from agent_saga import ConfigurationError, SagaAborted
from agent_saga_langgraph import (
    caches,
    called,
    safe_tool,
    saga_agent,
    saga_boundary,
    saga_run,
    saga_run_sync,
    saga_stream_sync,
)


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]


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


@pytest.mark.guarantee("LANGGRAPH-3")
def test_no_effect_comes_from_a_node_whose_result_is_kept(shop, book):
    graph = cached(lambda _: {"log": [book.invoke({"item": "seat"})["id"]]})
    with pytest.raises(SagaAborted) as failed:
        saga_run_sync(graph, {"log": []}, kit=shop.kit)
    assert isinstance(failed.value.cause, ConfigurationError)
    assert "cache policy" in str(failed.value.cause)
    shop.world.assert_untouched()


@pytest.mark.guarantee("LANGGRAPH-3")
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


@pytest.mark.guarantee("LANGGRAPH-4")
@pytest.mark.parametrize("on_a_loop", [False, True])
@pytest.mark.parametrize("how", ["run", "agent", "boundary", "stream"])
def test_a_graph_that_a_node_makes_keeps_nothing(shop, book, how, on_a_loop):
    cache = InMemoryCache()

    def node(state):
        inner = StateGraph(State)
        pay = lambda _: {"log": [book.invoke({"item": "seat"})["id"]]}  # noqa: E731
        inner.add_node("pay", pay, cache_policy=CachePolicy())
        inner.add_edge(START, "pay")
        graph = inner.compile(cache=cache)
        return asyncio.run(graph.ainvoke({"log": []})) if on_a_loop else graph.invoke({"log": []})

    def fails(state):
        raise RuntimeError("the run fails")

    def all_of(state):
        return fails(node(state))

    def run(graph):
        if how == "agent":
            saga_agent(graph, shop.kit).invoke({"log": []})
        elif how == "stream":
            list(saga_stream_sync(graph, {"log": []}, kit=shop.kit))
        elif how == "boundary":
            graph.invoke({"log": []})
        else:
            saga_run_sync(graph, {"log": []}, kit=shop.kit)

    for number in (1, 2):
        builder = StateGraph(State)
        builder.add_node("all", saga_boundary(all_of, shop.kit) if how == "boundary" else all_of)
        builder.add_edge(START, "all")
        with pytest.raises(SagaAborted):
            run(builder.compile())
        assert shop.world.applications() == number
        shop.world.assert_restored()


def test_what_is_known_is_kept_where_it_belongs(shop):
    reads = []

    def graph(name, cache):
        builder = StateGraph(State)
        read = lambda _: reads.append(name) or {"log": [name]}  # noqa: E731
        builder.add_node(name, read, cache_policy=CachePolicy(key_func=lambda _: "1"))
        builder.add_edge(START, name)
        return builder.compile(cache=cache)

    first, second = InMemoryCache(), InMemoryCache()
    builder = StateGraph(State)
    builder.add_node("one", graph("a", first))
    builder.add_node("other", graph("b", second))
    builder.add_edge(START, "one").add_edge("one", "other")
    both = builder.compile()

    async def on_a_loop():
        return await saga_run(both, {"log": []}, kit=shop.kit)

    saga_run_sync(both, {"log": []}, kit=shop.kit)
    assert asyncio.run(on_a_loop())["log"] == ["a", "a", "b"]
    assert reads == ["a", "b"]
    graph("a", first).invoke({"log": []})
    assert reads == ["a", "b"]
    graph("b", first).invoke({"log": []})
    assert reads == ["a", "b", "b"]


def test_an_effect_in_a_task_that_may_be_kept_is_warned_of(shop, book, caplog, monkeypatch):
    monkeypatch.setattr(called, "_note", lambda *_: None)
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


@pytest.mark.guarantee("LANGGRAPH-3")
@pytest.mark.parametrize("on_a_loop", [False, True])
@pytest.mark.parametrize("inside", ["it", "a subgraph", "a graph that it makes", "a task"])
def test_nor_from_one_of_a_graph_whose_run_is_no_boundary(shop, book, inside, on_a_loop):
    def pay(state):
        return {"log": [book.invoke({"item": "seat"})["id"]]}

    async def apay(state):
        return {"log": [(await book.ainvoke({"item": "seat"}))["id"]]}

    plain = StateGraph(State).add_node("pay", apay if on_a_loop else pay).add_edge(START, "pay")

    def made(state):
        return plain.compile().invoke(state)

    async def amade(state):
        return await plain.compile().ainvoke(state)

    if inside == "a task":
        stage = task(apay if on_a_loop else pay, cache_policy=CachePolicy())

        @entrypoint(cache=InMemoryCache())
        def workflow(given):
            return stage(given).result()

        @entrypoint(cache=InMemoryCache())
        async def aworkflow(given):
            return await stage(given)

        graph = aworkflow if on_a_loop else workflow
    else:
        nodes = {
            "it": apay if on_a_loop else pay,
            "a subgraph": plain.compile(),
            "a graph that it makes": amade if on_a_loop else made,
        }
        graph = cached(nodes[inside])

    async def run():
        async with shop.kit.transaction():
            await graph.ainvoke({"log": []})

    with pytest.raises(SagaAborted, match="cache policy"):
        if on_a_loop:
            asyncio.run(run())
        else:
            with shop.kit.transaction():
                graph.invoke({"log": []})
    shop.world.assert_untouched()


def test_there_a_node_beside_it_and_a_policy_without_a_cache_keep_nothing(shop, book):
    pay = lambda _: {"log": [book.invoke({"item": "seat"})["id"]]}  # noqa: E731
    builder = StateGraph(State).add_node("read", lambda _: {}, cache_policy=CachePolicy())
    builder.add_node("pay", pay).add_edge(START, "read").add_edge("read", "pay")
    with shop.kit.transaction():
        builder.compile(cache=InMemoryCache()).invoke({"log": []})
        cached(pay, cache=False).invoke({"log": []})
    assert shop.world.applications() == 2


def test_there_a_version_that_does_not_tell_of_the_task_only_keeps_the_refusal_away(
    shop, book, monkeypatch
):
    """What the framework calls it is promised by nobody."""
    monkeypatch.setattr(caches, "_CALL", "__no_such_key")
    graph = cached(lambda _: {"log": [book.invoke({"item": "seat"})["id"]]})
    with shop.kit.transaction():
        graph.invoke({"log": []})
    shop.world.assert_applied_once("seat")

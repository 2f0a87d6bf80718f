"""Tasks that a workflow calls (`@task`), when the workflow goes another way than it went before.

LangGraph gives the recorded result of a task to whatever call has its number. The world counts.
"""

from __future__ import annotations

import asyncio

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy, Command, RetryPolicy, interrupt
from typing_extensions import TypedDict

from agent_saga import SagaAborted
from agent_saga.errors import ConfigurationError, ReplayConflict
from agent_saga_langgraph import called, last_report, safe_tool, saga_run, saga_run_sync

THREAD = {"configurable": {"thread_id": "1"}}
AGAIN = RetryPolicy(initial_interval=0, jitter=False, max_attempts=2, retry_on=ConnectionError)
GO, YES = {"log": []}, Command(resume="yes")


class State(TypedDict, total=False):
    log: list


class Workflow:
    """A workflow that calls some stages, stops, and calls others when it runs again."""

    def __init__(self, shop, how="interrupt"):
        self.shop, self.how = shop, how
        self.runs, self.ways = 0, []
        tool = safe_tool(shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)

        @task
        def stage(item, *rest):
            return tool.invoke({"item": item})

        @task
        def other(item):
            return tool.invoke({"item": item})

        @task
        def look(item):
            return item

        self.stage, self.other, self.look = stage, other, look

    def took(self):
        self.runs += 1
        return self.ways[min(self.runs, len(self.ways)) - 1]

    def stop(self):
        if self.how == "interrupt":
            interrupt("go on?")
        elif self.runs == 1:
            raise ConnectionError("the workflow failed")

    def graph(self, *ways):
        self.ways = ways

        @entrypoint(checkpointer=InMemorySaver(), retry_policy=AGAIN)
        def workflow(given):
            done = [called.result() for called in self.called()]
            self.stop()
            return done

        return workflow

    def called(self):
        return [fn(*args) for fn, *args in self.took()]

    def on_a_loop(self, *ways):
        self.ways = ways

        @entrypoint(checkpointer=InMemorySaver(), retry_policy=AGAIN)
        async def workflow(given):
            done = await asyncio.gather(*self.called())
            self.stop()
            return done

        return workflow

    def inside(self, *ways):
        inner = self.graph(*ways)
        inner.checkpointer = None
        builder = StateGraph(State).add_node("node", lambda state: {"log": inner.invoke(state)})
        return builder.add_edge(START, "node").compile(checkpointer=InMemorySaver())

    def run(self, graph, given):
        run = asyncio.run(_run(graph, given, self.shop.kit)) if _is_async(graph) else None
        return run or saga_run_sync(graph, given, THREAD, kit=self.shop.kit)

    def through(self, graph):
        result = self.run(graph, GO)
        return self.run(graph, YES) if self.how == "interrupt" else result

    def assert_undone(self, graph):
        with pytest.raises(SagaAborted) as failed:
            self.through(graph)
        assert isinstance(failed.value.cause, ReplayConflict)
        self.shop.world.assert_restored()
        assert last_report().outcome == "ROLLED_BACK"

    def assert_booked(self, *items):
        self.shop.world.assert_stands(*items)
        assert self.shop.world.applications() == len(items)


def _is_async(graph):
    return any(getattr(node.bound, "func", 1) is None for node in graph.nodes.values())


async def _run(graph, given, kit):
    return await saga_run(graph, given, THREAD, kit=kit)


@pytest.fixture
def flow(shop):
    return Workflow(shop)


MAKES = pytest.mark.parametrize("make", ["graph", "on_a_loop", "inside"])


def made(flow, make, *ways):
    return getattr(flow, make)(*ways)


@pytest.mark.guarantee("LANGGRAPH-2")
@MAKES
def test_a_recorded_result_is_not_given_to_another_call(flow, make):
    flow.assert_undone(made(flow, make, [(flow.stage, "seat")], [(flow.stage, "room")]))


@pytest.mark.guarantee("LANGGRAPH-2")
@MAKES
def test_numbers_that_are_shifted_by_a_read_repeat_nothing(flow, make):
    before = [(flow.stage, "seat"), (flow.stage, "room")]
    flow.assert_undone(made(flow, make, before, [(flow.look, "first"), *before]))


@MAKES
def test_numbers_that_are_shifted_by_another_effect_repeat_nothing(flow, make):
    before = [(flow.stage, "seat"), (flow.stage, "room")]
    flow.assert_undone(made(flow, make, before, [(flow.other, "car"), *before]))


def test_a_shift_of_calls_of_one_task_repeats_nothing(flow):
    before = [(flow.stage, "seat"), (flow.stage, "room")]
    flow.assert_undone(flow.graph(before, [(flow.stage, "car"), *before]))


@MAKES
def test_an_effect_behind_reads_of_another_number_is_met_again(flow, make):
    reads = [(flow.look, "first")] * 2
    ways = [*reads, (flow.stage, "seat")], [(flow.stage, "seat"), reads[0]]
    flow.through(made(flow, make, *ways))
    flow.assert_booked("seat")


@pytest.mark.parametrize("make", ["graph", "on_a_loop"])
def test_a_retry_gives_nothing_again_and_repeats_nothing(shop, make):
    flow = Workflow(shop, "retry")
    before = [(flow.stage, "seat"), (flow.stage, "room")]
    flow.through(made(flow, make, before, [(flow.stage, "car"), *before]))
    flow.assert_booked("car", "room", "seat")


@MAKES
def test_a_workflow_that_goes_the_same_way_goes_on(flow, make):
    way = [(flow.stage, "box"), (flow.look, "x"), (flow.stage, "box")]
    flow.through(made(flow, make, way, [*way, (flow.stage, "box")]))
    flow.assert_booked("box", "box", "box")


def test_arguments_that_nobody_can_compare_make_no_difference(flow):
    flow.through(flow.graph([(flow.stage, "seat", object())], [(flow.stage, "seat", object())]))
    flow.assert_booked("seat")


def test_where_calls_cannot_be_noted_an_equal_one_of_another_number_is_refused(flow, monkeypatch):
    monkeypatch.setattr(called, "_note", lambda *_: None)
    way = [(flow.stage, "box")]
    flow.assert_undone(flow.graph(way, [*way, *way]))
    monkeypatch.undo()
    assert called.stands_in()


def test_a_task_whose_call_fails_to_begin_is_told_apart_no_more(flow):
    @entrypoint(checkpointer=InMemorySaver())
    def workflow(given):
        with pytest.raises(RuntimeError):
            asynchronous("x")
        return flow.stage("seat").result()

    @task
    async def asynchronous(item):
        return item

    flow.run(workflow, GO)
    flow.assert_booked("seat")


# --- caches of tasks ------------------------------------------------------------------------------


@pytest.mark.guarantee("LANGGRAPH-3")
@pytest.mark.parametrize("kept", [True, False])
def test_an_effect_in_a_task_is_refused_if_the_task_is_kept(flow, kept):
    tool = flow.stage.func

    @task(cache_policy=CachePolicy() if kept else None)
    def cached(item):
        return tool(item)

    @task(cache_policy=CachePolicy())
    def read(item):
        return item

    @entrypoint(cache=InMemoryCache())
    def workflow(given):
        return [read("x").result(), cached("seat").result()]

    if not kept:
        saga_run_sync(workflow, GO, kit=flow.shop.kit)
        flow.assert_booked("seat")
        return
    with pytest.raises(SagaAborted) as failed:
        saga_run_sync(workflow, GO, kit=flow.shop.kit)
    assert isinstance(failed.value.cause, ConfigurationError)
    assert flow.shop.world.applications() == 0

"""Nodes that are effects, nodes that are boundaries, and what a handler is told."""

from __future__ import annotations

import asyncio
import contextlib
import operator
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt
from scripted import Scripted, call

from agent_saga import (
    ConfigurationError,
    MemoryWAL,
    NoBoundary,
    PreFlightGate,
    Rule,
    SagaAborted,
    arg_exceeds,
)
from agent_saga.errors import SagaClosed
from agent_saga_langgraph import (
    SagaCallbackHandler,
    last_report,
    place,
    safe_tool,
    saga_agent,
    saga_boundary,
    saga_node,
    saga_run,
    saga_run_sync,
    saga_stream,
    saga_stream_sync,
)
from agent_saga_testing.integration.driver import QUICK

THREAD = {"configurable": {"thread_id": "1"}}
AGAIN = RetryPolicy(initial_interval=0, jitter=False, max_attempts=3, retry_on=Exception)


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]
    item: str
    amount: int
    id: int


class Ends(list):
    """How boundaries inside a graph ended; gives a configuration that fills it."""

    def on(self, **config):
        def tell(event):
            if event["event"] == "ended":
                self.append(event["outcome"])

        return {**config, "callbacks": [SagaCallbackHandler(tell)]}


def chain(*nodes, checkpointer=None, **options):
    builder = StateGraph(State)
    names = [str(number) for number in range(len(nodes))]
    for name, node in zip(names, nodes, strict=True):
        builder.add_node(name, node, **options)
    for one, other in zip([START, *names], names, strict=False):
        builder.add_edge(one, other)
    return builder.compile(checkpointer=checkpointer)


def fails(state):
    raise RuntimeError("the node failed")


def effect(shop, **options):
    """A node that books the state's item."""

    def book(state):
        return {"id": shop.world.do(state["item"])["id"]}

    given = {"compensate": shop.cancel.using(effect="$.id"), "kit": shop.kit, "reads": ("item",)}
    return saga_node(book, **{**given, **options})


def booking(shop, *items, then=None):
    """A node function that books items, and then does something."""
    tool = safe_tool(shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)

    def run(state):
        for item in items:
            tool.invoke({"item": item})
        if then is not None:
            then(state)
        return {"log": list(items)}

    return run


# --- a node that is an effect ---------------------------------------------------------------------


def test_a_node_that_is_an_effect_is_undone_with_its_run(shop):
    graph = chain(effect(shop), fails)
    with pytest.raises(SagaAborted) as failed:
        saga_run_sync(graph, {"item": "seat"}, kit=shop.kit)
    assert [line.tool for line in failed.value.report.compensated] == ["book"]
    shop.world.assert_restored()


def test_an_asynchronous_one_too(shop):
    async def reserve(state, config):
        assert config["metadata"]
        return {"id": shop.world.do(state["item"])["id"]}

    node = saga_node(
        reserve, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit, reads=("item",)
    )
    with pytest.raises(SagaAborted):
        asyncio.run(saga_run(chain(node, fails), {"item": "seat"}, kit=shop.kit))
    shop.world.assert_restored()


def test_a_retry_of_the_node_gives_the_recorded_update(shop):
    runs = []
    node = effect(shop)

    def flaky(state):
        runs.append(node(state))
        if len(runs) < 3:
            raise ConnectionError("after the effect")
        return runs[-1]

    saga_run_sync(chain(flaky, retry_policy=AGAIN), {"item": "seat"}, kit=shop.kit)
    assert len(runs) == 3
    assert runs[0] == runs[1] == runs[2]
    shop.world.assert_applied_once("seat")


class Opaque:
    """Shows nothing of itself."""

    __slots__ = ()


@pytest.mark.parametrize("reads", [(), ("item",)])
def test_calls_of_a_node_whose_graph_begins_again_keep_their_own_results(shop, reads):
    """A graph without a checkpointer has other checkpoints in each run, so all of them are lost."""
    node, logs = effect(shop, reads=reads), []
    for items in (["seat", "room", "car"], ["car", "room", "seat"]):
        builder = StateGraph(State)
        builder.add_node("node", lambda state: {"log": [(state["item"], node(state)["id"])]})
        order = [Send("node", {"item": item}) for item in items]
        builder.add_conditional_edges(START, lambda _, order=order: order)
        result = saga_run_sync(builder.compile(), {"log": []}, kit=shop.kit, key="trip")
        logs.append(dict(result["log"]))
    assert logs[0] == logs[1]
    assert len(set(logs[0].values())) == 3
    shop.world.assert_applied_once("seat", "room", "car")


@pytest.mark.parametrize("given", [{}, {"what": Opaque()}])
def test_a_node_that_reads_all_is_repeated_in_its_place(shop, given):
    node, runs = effect(shop, reads=()), []

    def flaky(state):
        runs.append(node({**given, "item": "seat"}))
        if len(runs) < 3:
            raise ConnectionError("after the effect")
        return {"log": ["done"]}

    saga_run_sync(chain(flaky, retry_policy=AGAIN), {"log": []}, kit=shop.kit)
    shop.world.assert_applied_once("seat")


def test_a_node_whose_state_nobody_can_compare_is_not_given_another_s_result(shop):
    node = effect(shop, reads=())

    def books(state):
        return {"log": [node({"item": state["item"], "what": Opaque()})]}

    for item in ("seat", "room"):
        with contextlib.suppress(SagaClosed):
            saga_run_sync(chain(books), {"item": item, "log": []}, kit=shop.kit, key="trip")
    shop.world.assert_applied_once("seat")


def test_rules_see_what_the_node_reads(shop):
    gate = PreFlightGate(rules=[Rule("large", arg_exceeds("amount", 100))])
    kit = type(shop.kit)("shop", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)
    node = effect(shop, kit=kit, reads=("item", "amount"))
    saga_run_sync(chain(node), {"item": "seat", "amount": 5}, kit=kit)
    with pytest.raises(SagaAborted, match="large"):
        saga_run_sync(chain(node), {"item": "room", "amount": 500}, kit=kit)
    shop.world.assert_applied_once("seat")


def test_outside_a_boundary_a_node_runs_bare_and_an_irreversible_one_is_refused(shop):
    chain(effect(shop)).invoke({"item": "seat"})
    with pytest.raises(NoBoundary):
        chain(effect(shop, semantics="IRREVERSIBLE", compensate=None)).invoke({"item": "room"})
    shop.world.assert_applied_once("seat")


# --- a node that is a boundary --------------------------------------------------------------------


def test_a_boundary_in_a_graph_commits_when_its_node_is_left(shop):
    graph = chain(saga_boundary(booking(shop, "seat", "room"), shop.kit), fails)
    ends = Ends()
    with pytest.raises(RuntimeError, match="the node failed"):
        graph.invoke({"log": []}, ends.on())
    assert ends == ["COMMITTED"]
    shop.world.assert_applied_once("seat", "room")


def test_a_boundary_in_a_graph_is_undone_when_its_node_fails(shop):
    graph = chain(saga_boundary(booking(shop, "seat", then=fails), shop.kit))
    with pytest.raises(SagaAborted):
        graph.invoke({"log": []})
    shop.world.assert_restored()


def test_on_a_loop_and_round_a_graph_of_its_own(shop):
    inner = chain(booking(shop, "seat"), booking(shop, "room"), fails)
    graph = chain(booking(shop), saga_boundary(inner, shop.kit))
    with pytest.raises(SagaAborted):
        asyncio.run(graph.ainvoke({"log": []}))
    assert shop.world.undone() == ["room", "seat"]
    good = chain(saga_boundary(chain(booking(shop, "car")), shop.kit))
    assert asyncio.run(good.ainvoke({"log": []}))["log"] == ["car"]


def test_each_run_without_a_thread_is_a_boundary_of_its_own(shop):
    graph = chain(saga_boundary(booking(shop, "seat"), shop.kit))
    for _ in range(2):
        graph.invoke({"log": []}, THREAD)
    shop.world.assert_stands("seat", "seat")


def test_inside_a_run_it_is_a_savepoint(shop):
    inner = saga_boundary(booking(shop, "seat", then=fails), shop.kit)

    def tries(state, config):
        with pytest.raises(SagaAborted):
            inner.invoke(state, config)
        return {"log": ["went on"]}

    saga_run_sync(chain(booking(shop, "room"), tries), {"log": []}, kit=shop.kit)
    shop.world.assert_stands("room")
    left = saga_boundary(booking(shop, "car"), shop.kit)
    with pytest.raises(SagaAborted):
        saga_run_sync(chain(left, fails), {"log": []}, kit=shop.kit)
    shop.world.assert_stands("room")


def test_a_boundary_that_waits_goes_on_in_its_saga(shop):
    asks = saga_boundary(booking(shop, "seat", then=lambda _: interrupt("go on?")), shop.kit)
    graph = chain(asks, checkpointer=InMemorySaver())
    ends = Ends()
    for turn in range(2):
        assert "__interrupt__" in graph.invoke({"log": []}, ends.on(**THREAD))
        graph.invoke(Command(resume="yes"), ends.on(**THREAD))
        assert shop.world.applications() == turn + 1
    assert ends == ["SUSPENDED", "COMMITTED"] * 2


def test_a_boundary_round_a_graph_that_waits_repeats_nothing(shop):
    inner = chain(booking(shop, "seat"), booking(shop, "room", then=lambda _: interrupt("?")))
    graph = chain(saga_boundary(inner, shop.kit), fails, checkpointer=InMemorySaver())
    ends = Ends()
    graph.invoke({"log": []}, THREAD)
    with pytest.raises(RuntimeError, match="the node failed"):
        graph.invoke(Command(resume="yes"), ends.on(**THREAD))
    assert ends == ["COMMITTED"]
    shop.world.assert_applied_once("seat", "room")


def test_a_retried_boundary_begins_anew_after_it_was_undone(shop):
    runs = []

    def fails_once(state):
        runs.append(1)
        if len(runs) == 1:
            raise ConnectionError("down")

    node = saga_boundary(booking(shop, "seat", then=fails_once), shop.kit)
    chain(node, checkpointer=InMemorySaver(), retry_policy=AGAIN).invoke({"log": []}, THREAD)
    assert shop.world.undone() == ["seat"]
    shop.world.assert_stands("seat")


def test_a_boundary_that_cannot_be_found_again_cannot_wait(shop, monkeypatch):
    monkeypatch.setattr(place, "has_checkpointer", lambda config: False)
    asks = saga_boundary(booking(shop, "seat", then=lambda _: interrupt("go on?")), shop.kit)
    with pytest.raises(SagaAborted):
        chain(asks, checkpointer=InMemorySaver()).invoke({"log": []}, THREAD)
    shop.world.assert_restored()


def test_what_a_boundary_cannot_be_is_refused(shop):
    with pytest.raises(ConfigurationError, match="not 7"):
        saga_boundary(7, shop.kit)
    with pytest.raises(ConfigurationError, match="ask"):
        saga_boundary(fails, shop.kit, on_tool_failure="ask")
    kit = type(shop.kit)("shop", wal=MemoryWAL(), settings=QUICK)
    graph = chain(saga_boundary(booking(shop), kit), checkpointer=InMemorySaver())
    with pytest.raises(ConfigurationError, match="log in files"):
        graph.invoke({"log": []}, THREAD)


# --- what a handler is told -----------------------------------------------------------------------

PROMPT = {"messages": [("user", "go on")]}
WAITS = [call("book", "c1", item="seat"), call("ask", "c2", question="shall I?")]


def agent(shop, script):
    made = create_agent(Scripted(script=script), shop.tools, checkpointer=InMemorySaver())
    return saga_agent(made, shop.kit, tools=shop.declared)


def test_a_handler_is_told_of_steps_pauses_and_ends(shop):
    told = []
    config = {**THREAD, "callbacks": [SagaCallbackHandler(told.append)]}
    run = agent(shop, [WAITS, RuntimeError("down")])
    run.invoke(PROMPT, config)
    with pytest.raises(SagaAborted):
        run.invoke(Command(resume="yes"), config)
    kinds = [event["event"] for event in told]
    assert kinds.count("paused") == kinds.count("resumed") == 1
    steps = [(e["tool"], e["ended"]) for e in told if e["event"] == "step"]
    assert ("book", "well") in steps
    assert ("ask", "GraphInterrupt") in steps
    ends = [event for event in told if event["event"] == "ended"]
    assert [event["outcome"] for event in ends] == ["SUSPENDED", "ROLLED_BACK"]
    assert ends[-1]["undone"] == ["book"]
    assert ends[-1]["clean"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_events_of_steps_are_in_the_graph_s_stream(shop, asynchronous):
    run = agent(shop, [[call("book", "c1", item="seat")], "done"]).graph
    config = {**THREAD, "callbacks": [SagaCallbackHandler(stream=True)]}
    how = {"kit": shop.kit, "stream_mode": ["custom", "updates"]}

    async def taken():
        return [item async for item in saga_stream(run, PROMPT, config, **how)]

    items = (
        asyncio.run(taken()) if asynchronous else list(saga_stream_sync(run, PROMPT, config, **how))
    )
    [event] = [item["agent_saga"] for mode, item in items if mode == "custom"]
    assert (event["event"], event["tool"], event["ended"]) == ("step", "book", "well")
    assert any(mode == "updates" for mode, _ in items)


def test_a_handler_that_fails_changes_nothing(shop):
    def tell(event):
        raise RuntimeError("the user interface is down")

    config = {**THREAD, "callbacks": [SagaCallbackHandler(tell)]}
    run = agent(shop, [[call("book", "c1", item="seat")], "done"])
    assert run.invoke(PROMPT, config)["messages"][-1].text == "done"
    assert last_report().outcome == "COMMITTED"

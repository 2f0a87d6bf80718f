"""Hundreds of equal calls in one run: what each of them costs does not grow with their number."""

from __future__ import annotations

from typing import TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from agent_saga_langgraph import safe_tool, saga_run_sync
from agent_saga_langgraph.wishes import Wish

THREAD = {"configurable": {"thread_id": "1"}, "recursion_limit": 1000}


class State(TypedDict, total=False):
    n: int


class Looks:
    """Counts how often a wish is looked at."""

    def __init__(self, monkeypatch):
        self.number = 0
        for name in ("is_free", "is_copy", "is_again", "may_be", "is_clearly"):
            monkeypatch.setattr(Wish, name, self.counted(getattr(Wish, name)))

    def counted(self, method):
        def look(*args):
            self.number += 1
            return method(*args)

        return look


def in_one_node(book, number):
    def node(state):
        booked = [book() for _ in range(number)]
        interrupt("go on?")
        return {"n": len(booked)}

    builder = StateGraph(State).add_node("node", node).add_edge(START, "node")
    return builder.compile(checkpointer=InMemorySaver())


def in_a_loop(book, number):
    def node(state):
        book()
        if state["n"] == number - 1:
            interrupt("go on?")
        return {"n": state["n"] + 1}

    builder = StateGraph(State).add_node("node", node).add_edge(START, "node")
    builder.add_conditional_edges("node", lambda s: "node" if s["n"] < number else "__end__")
    return builder.compile(checkpointer=InMemorySaver())


def in_an_inner_graph(book, number):
    def node(state):
        inner = in_a_loop(book, number)
        inner.checkpointer = None
        return inner.invoke({"n": 0})

    builder = StateGraph(State).add_node("node", node).add_edge(START, "node")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("made", [in_one_node, in_a_loop, in_an_inner_graph])
def test_what_each_call_costs_does_not_grow_with_their_number(shop, monkeypatch, made):
    undo = shop.cancel.using(effect="$.id")
    tool = safe_tool(shop.book.func, compensate=undo, kit=shop.kit)
    looks, cost, booked = Looks(monkeypatch), [], 0
    for number in (30, 60):
        graph = made(lambda: tool.invoke({"item": "box"}), number)
        config = {**THREAD, "configurable": {"thread_id": str(number)}}
        before = looks.number
        saga_run_sync(graph, {"n": 0}, config, kit=shop.kit)
        saga_run_sync(graph, Command(resume="yes"), config, kit=shop.kit)
        cost.append((looks.number - before) / number)
        booked += number
    assert shop.world.applications() == booked
    assert cost[1] <= cost[0] * 1.5

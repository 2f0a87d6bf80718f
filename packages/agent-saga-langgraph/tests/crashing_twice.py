"""A graph whose nodes ask for the same, and whose process dies; run by `test_met_again`.

Its process "keeps" its checkpoints, "loses" them before they are stored, or "forgets" what it has
stored.
"""

from __future__ import annotations

import contextlib
import operator
import os
import sys
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

sys.path.insert(0, str(Path(__file__).parent))
from agent_saga_langgraph import safe_tool, saga_boundary, saga_run_sync
from conftest import Shop

THREAD = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]


class Forgetful(SqliteSaver):
    """Stores nothing, as one that is slower than the process that dies."""

    def put(self, config, checkpoint, metadata, new_versions):
        return {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}

    def put_writes(self, *args, **kwargs):
        pass


class Twice:
    """Books one box in each of two nodes, by a tool or a function of the kit, or both in one.

    Args:
        folder: of the shop.
        way: "nodes", "functions", "node", or "boundary" for one node that is a boundary of its own.
        dies: where the process dies: "first" or "second" call, "end" of the first node, or "".
    """

    def __init__(self, folder, way, dies=""):
        self.shop = shop = Shop(Path(folder))
        self.way, self.dies = way, dies
        self.tool = safe_tool(
            shop.book.func, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit
        )
        undo = shop.cancel.using(effect="$.id")
        self.function = shop.kit.tool("COMPENSABLE", compensate=undo)(shop.book.func)

    def invoke(self, item):
        return self.tool.invoke({"item": item})

    def die(self, where):
        if self.dies == where:
            os._exit(9)

    def book(self, where):
        self.die(f"before {where}")
        call = self.function if self.way == "functions" else self.invoke
        found = call("box")["id"]
        self.die(f"after {where}")
        return found

    def graph(self, saver):
        builder = StateGraph(State)
        if self.way in ("nodes", "functions"):
            builder.add_node("first", lambda _: {"log": [self.book("first")]})
            builder.add_node("second", lambda _: {"log": [self.book("second")]})
            builder.add_edge(START, "first").add_edge("first", "second")
            return builder.compile(checkpointer=saver)

        def both(state):
            return {"log": [self.book("first"), self.book("second")]}

        builder.add_node(
            "n", saga_boundary(both, self.shop.kit) if self.way == "boundary" else both
        )
        return builder.add_edge(START, "n").compile(checkpointer=saver)

    def run(self, saver):
        graph = self.graph(saver)
        waits = graph.get_state(THREAD).next
        given = None if waits else {"log": []}
        if self.way == "boundary":
            return graph.invoke(given, THREAD, durability="sync")
        return saga_run_sync(graph, given, THREAD, kit=self.shop.kit, durability="sync")


def opened(folder, kind=SqliteSaver):
    return kind.from_conn_string(str(Path(folder, "checkpoints.sqlite")))


def of_process(folder, how):
    if how == "forgets":
        return contextlib.nullcontext(InMemorySaver())
    return opened(folder, Forgetful if how == "loses" else SqliteSaver)


def main(folder, way, where, how):
    """Run the graph until it dies."""
    with of_process(folder, how) as saver:
        Twice(folder, way, where).run(saver)

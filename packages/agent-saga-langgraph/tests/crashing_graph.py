"""A graph of three effects that kills its process in one of its nodes, once; run by `test_crashes`.

The shape is "chain", a node for each effect; "turn", one node that calls all three tools; "asked",
one that is asked to by a model, which gives new ids each time; or "inside", one that runs a chain.
"""

from __future__ import annotations

import operator
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, TypedDict
from uuid import uuid4

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

sys.path.insert(0, str(Path(__file__).parent))
from scripted import call

from agent_saga import AgentKit, Applied, NotApplied, compensator, prober
from agent_saga_langgraph import safe_tool, saga_run_sync
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.world import World

THREAD = {"configurable": {"thread_id": "1"}}
NODES = ["seat", "room", "car"]


class State(TypedDict):
    log: Annotated[list, operator.add]


@compensator("crashing_graph.cancel")
def cancel(world, effect, *, idempotency_key):
    World(world).undo(effect, key=idempotency_key)


@prober("crashing_graph.find")
def find(args, *, idempotency_key):
    found = World(args["world"]).find(idempotency_key)
    return NotApplied() if found is None else Applied({**found, "world": args["world"]})


class Trip:
    """The graph of a folder; it dies in a node, before its effect, inside it, or after it."""

    def __init__(self, folder, node="", when="", shape="chain"):
        self.folder, self.dies, self.shape = Path(folder), (node, when), shape
        self.kit = AgentKit("trip", wal=str(self.folder / "log"), settings=QUICK)
        self.world = World(self.folder / "world.sqlite", honours_keys=False)

        def book(item: str, world: str, *, idempotency_key: str) -> dict:
            """Book an item."""
            done = World(world).do(item, key=idempotency_key)
            self.die(item, "inside")
            return {**done, "world": world}

        undo = cancel.using(world="$.world", effect="$.id")
        self.tool = safe_tool(book, compensate=undo, prober="crashing_graph.find", kit=self.kit)

    def graph(self, saver):
        if self.shape != "inside":
            return self.chain(saver)
        builder = StateGraph(State)
        builder.add_node("outer", lambda state: self.chain(None).invoke({"log": []}))
        builder.add_edge(START, "outer")
        return builder.compile(checkpointer=saver)

    def chain(self, saver):
        builder = StateGraph(State)
        parts = [[name] for name in NODES] if self.shape in ("chain", "inside") else [NODES]
        names = [part[0] for part in parts]
        for part in parts:
            builder.add_node(part[0], self.node(part))
        for one, other in zip([START, *names], names, strict=False):
            builder.add_edge(one, other)
        return builder.compile(checkpointer=saver)

    def node(self, part):
        def run(state):
            for name in part:
                self.die(name, "before")
                args = {"item": name, "world": str(self.world.path)}
                self.tool.invoke(
                    call("book", uuid4().hex, **args) if self.shape == "asked" else args
                )
                time.sleep(0.05)  # lets the checkpointer's thread get some way
                self.die(name, "after")
            return {"log": list(part)}

        return run

    def die(self, name, when):
        if self.dies == (name, when):
            os.kill(os.getpid(), signal.SIGKILL)

    def run(self, given, durability="sync"):
        with SqliteSaver.from_conn_string(str(self.folder / "checkpoints.sqlite")) as saver:
            graph = self.graph(saver)
            if given is None and not graph.get_state(THREAD).tasks:
                given = {"log": []}  # nothing was stored: the program begins again
            return saga_run_sync(graph, given, THREAD, kit=self.kit, durability=durability)


def main(folder, durability, node, when, shape):
    """Run the graph until it dies."""
    Trip(folder, node, when, shape).run({"log": []}, durability)

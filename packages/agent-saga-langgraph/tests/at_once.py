"""A run of a thread that begins when it is told to; run by `test_at_once`, twice at a time.

python at_once.py FOLDER NUMBER PHASE
"""

from __future__ import annotations

import operator
import sys
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

sys.path.insert(0, str(Path(__file__).parent))
from agent_saga.errors import AgentSagaError
from agent_saga_langgraph import safe_tool, saga_run_sync
from agent_saga_testing.waiting import until
from conftest import Shop

THREAD = {"configurable": {"thread_id": "1"}}


class State(TypedDict):
    log: Annotated[list, operator.add]


def graph(shop, saver):
    cancel = shop.cancel.using(effect="$.id")
    tool = safe_tool(shop.book.func, compensate=cancel, kit=shop.kit)
    builder = StateGraph(State)
    builder.add_node("before", lambda _: {"log": [tool.invoke({"item": "seat"})["id"]]})
    builder.add_node("ask", lambda _: {"log": [interrupt("go on?")]})
    builder.add_node("behind", lambda _: {"log": [tool.invoke({"item": "room"})["id"]]})
    builder.add_edge(START, "before").add_edge("before", "ask").add_edge("ask", "behind")
    return builder.compile(checkpointer=saver)


def main(folder, number, phase):
    shop = Shop(folder)
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        run = graph(shop, saver)
        Path(folder, f"{phase} {number}").touch()
        until((folder / f"{phase} go").exists)
        try:
            saga_run_sync(
                run,
                {"log": []} if phase == "start" else Command(resume="yes"),
                THREAD,
                kit=shop.kit,
                durability="sync",
            )
        except AgentSagaError as refused:
            sys.stdout.write(type(refused).__name__)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

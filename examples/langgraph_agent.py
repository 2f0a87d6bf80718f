"""An agent of LangGraph that books a journey, waits for a human, and fails: all of it is undone.

    python examples/langgraph_agent.py

The model plays a script; the bookings are rows in a SQLite file. The same journey is made twice:
by a plain graph, and as a saga. Exits with 0 only if the rows say what they must.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from agent_saga import AgentKit, SagaAborted, compensator
from agent_saga_langgraph import SagaToolNode, compensable, read_only, saga_run_sync

SCRIPT = [
    [("book", {"what": "train"}), ("ask", {"question": "a room, too?"})],
    [("book", {"what": "room"})],
]
THREAD: Any = {"configurable": {"thread_id": "journey"}}


class Bookings:
    """The world: rows in a file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run("CREATE TABLE bookings (id INTEGER PRIMARY KEY, what TEXT)")

    def _run(self, query: str, *values: object) -> tuple[int, list[Any]]:
        with closing(sqlite3.connect(self._path)) as db, db:
            done = db.execute(query, values)
            return done.lastrowid or 0, done.fetchall()

    def add(self, what: str) -> int:
        """Book something and return its number."""
        return self._run("INSERT INTO bookings (what) VALUES (?)", what)[0]

    def remove(self, number: int) -> None:
        """Cancel a booking."""
        self._run("DELETE FROM bookings WHERE id = ?", number)

    def all(self) -> list[str]:
        """Return what is booked."""
        return [what for (what,) in self._run("SELECT what FROM bookings ORDER BY id")[1]]


def tools_of(bookings: Bookings) -> list[BaseTool]:
    """Return the agent's tools."""

    @tool
    def book(what: str) -> dict[str, int]:
        """Book something."""
        return {"number": bookings.add(what)}

    @tool
    def ask(question: str) -> str:
        """Ask the traveller."""
        return str(interrupt(question))

    return [book, ask]


def journey(node: ToolNode) -> Any:
    """Return the graph of the agent, with a tool node of either kind."""

    def model(state: MessagesState) -> dict[str, Any]:
        turn = sum(isinstance(message, AIMessage) for message in state["messages"])
        if turn == len(SCRIPT):
            raise RuntimeError("the model asked for a tool that does not exist")
        calls = [
            {"name": name, "args": args, "id": f"call_{turn}_{number}", "type": "tool_call"}
            for number, (name, args) in enumerate(SCRIPT[turn])
        ]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", node)
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=InMemorySaver())


def plain(bookings: Bookings) -> list[str]:
    """Make the journey without agent-saga; return what is booked after it failed."""
    graph = journey(ToolNode(tools_of(bookings)))
    graph.invoke({"messages": [("user", "go")]}, THREAD)
    try:
        graph.invoke(Command(resume="yes"), THREAD)
    except RuntimeError as error:
        print(f"plain graph: {error}")
    return bookings.all()


def guarded(bookings: Bookings, folder: Path) -> list[str]:
    """Make the journey as a saga; return what is booked after it failed."""
    kit = AgentKit("journey", wal=str(folder / "agent-saga.wal"))

    @compensator("examples.langgraph.cancel")
    def cancel(number: int) -> None:
        bookings.remove(number)

    declared = {"book": compensable(cancel.using(number="$.number")), "ask": read_only()}
    graph = journey(SagaToolNode(tools_of(bookings), kit=kit, declared=declared))
    saga_run_sync(graph, {"messages": [("user", "go")]}, THREAD, kit=kit)
    print(f"as a saga, at the interrupt: {bookings.all()}")
    try:
        saga_run_sync(graph, Command(resume="yes"), THREAD, kit=kit)
    except SagaAborted as aborted:
        print(aborted.report.summary())
    kit.runtime.wal.close()
    return bookings.all()


def main() -> int:
    """Make the journey twice; return 0 if the world says what it must."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        without = plain(Bookings(folder / "plain.sqlite"))
        print(f"plain graph, after it failed: {without}\n")
        with_saga = guarded(Bookings(folder / "saga.sqlite"), folder)
        print(f"as a saga, after it failed: {with_saga}")
    return 0 if (without, with_saga) == (["train", "train", "room"], []) else 1


if __name__ == "__main__":
    sys.exit(main())

"""A crew that books a journey and whose guardrail is never met: once as it is, once as a saga.

    python examples/crewai_crew.py

The model plays a script; the bookings are rows in a SQLite file. A guardrail that says no makes
CrewAI run the task again: the plain crew books everything twice, and keeps it when the run fails.
The saga books once, and undoes it. Exits with 0 only if the rows say what they must.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

STORAGE = tempfile.TemporaryDirectory(prefix="crewai-")
tempfile.tempdir = STORAGE.name  # CrewAI leaves a lock file in the folder for temporary files
os.environ["CREWAI_STORAGE_DIR"] = STORAGE.name
for _name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_TRACKING", "OTEL_SDK_DISABLED"):
    os.environ[_name] = "true"

from crewai import Agent, BaseLLM, Crew, Task  # noqa: E402 - after it was told to be quiet
from crewai.tools import tool  # noqa: E402

from agent_saga import AgentKit, SagaAborted, compensator  # noqa: E402
from agent_saga_crewai import compensable, saga_agent  # noqa: E402

ORDERS = ("train", "room")


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


class Scripted(BaseLLM):
    """A model that books all orders, and then says that it did; again and again."""

    def supports_function_calling(self) -> bool:
        """Say that it calls tools natively."""
        return True

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer the next question."""
        done = sum(message["role"] == "tool" for message in messages)
        if done == len(ORDERS):
            return "All is booked."
        function = {"name": "book", "arguments": json.dumps({"what": ORDERS[done]})}
        return [{"id": f"call_{done}", "type": "function", "function": function}]


def crew_of(bookings: Bookings) -> Crew:
    """Return the crew; nothing that it says is good enough for its guardrail."""

    @tool
    def book(what: str) -> dict[str, int]:
        """Book something."""
        return {"number": bookings.add(what)}

    clerk = Agent(
        role="clerk", goal="book", backstory="an office", llm=Scripted(model="script"), tools=[book]
    )
    task = Task(
        description="Book the journey.",
        expected_output="A price.",
        agent=clerk,
        guardrail=lambda _: (False, "it does not name the price"),
        guardrail_max_retries=1,
    )
    return Crew(agents=[clerk], tasks=[task])


def plain(bookings: Bookings) -> list[str]:
    """Make the journey without agent-saga; return what is booked after it failed."""
    try:
        crew_of(bookings).kickoff()
    except Exception as error:
        print(f"plain crew: {error}")
    return bookings.all()


def guarded(bookings: Bookings, folder: Path) -> list[str]:
    """Make the journey as a saga; return what is booked after it failed."""
    kit = AgentKit("journey", wal=str(folder / "agent-saga.wal"))

    @compensator("examples.crewai.cancel")
    def cancel(number: int) -> None:
        bookings.remove(number)

    tools = {"book": compensable(cancel.using(number="$.number"))}
    try:
        saga_agent(crew_of(bookings), kit, tools=tools).kickoff()
    except SagaAborted as aborted:
        print(aborted.report.summary())
    kit.runtime.wal.close()
    return bookings.all()


def main() -> int:
    """Make the journey twice; return 0 if the world says what it must."""
    logging.disable(logging.WARNING)
    with STORAGE, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        without = plain(Bookings(folder / "plain.sqlite"))
        print(f"plain crew, after it failed: {without}\n")
        with_saga = guarded(Bookings(folder / "saga.sqlite"), folder)
        print(f"as a saga, after it failed: {with_saga}")
    return 0 if (without, with_saga) == ([*ORDERS, *ORDERS], []) else 1


if __name__ == "__main__":
    sys.exit(main())

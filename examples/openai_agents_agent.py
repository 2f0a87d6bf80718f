"""An agent of the OpenAI Agents SDK that books a journey, waits for a human, and fails.

    python examples/openai_agents_agent.py

The model plays a script; the bookings are rows in a SQLite file. The same journey is made twice:
by a plain agent, and as a saga. Exits with 0 only if the rows say what they must.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

from agents import Agent, FunctionTool, Runner, RunState, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall

from agent_saga import AgentKit, SagaAborted, compensator
from agent_saga_openai_agents import approve, compensable, read_only, saga_agent, saga_run

SCRIPT: list[Any] = [[("book", {"what": "train"})], [("ask", {"question": "a room, too?"})]]
AFTERWARDS: list[Any] = [[("book", {"what": "room"})], RuntimeError("the model is down")]
_ids = itertools.count(1)


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
        return [row[0] for row in self._run("SELECT what FROM bookings ORDER BY id")[1]]


class Scripted(Model):
    """A model that makes the calls of a script, and then fails."""

    def __init__(self, script: list[Any]) -> None:
        self._turns = iter(script)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Return the calls of the next turn."""
        turn = next(self._turns)
        if isinstance(turn, Exception):
            raise turn
        calls: list[Any] = [
            ResponseFunctionToolCall(
                call_id=f"call_{next(_ids)}",
                type="function_call",
                name=tool,
                arguments=json.dumps(arguments),
            )
            for tool, arguments in turn
        ]
        return ModelResponse(output=calls, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Refuse: this example does not stream."""
        raise NotImplementedError


def tools_of(bookings: Bookings) -> list[FunctionTool]:
    """Return what the agent can do."""

    @function_tool
    def book(what: str) -> dict[str, int]:
        """Book something."""
        return {"number": bookings.add(what)}

    @function_tool(needs_approval=True)
    def ask(question: str) -> str:
        """Ask the traveller, who must approve."""
        return f"{question} Yes."

    return [book, ask]


def agent_of(bookings: Bookings, script: list[Any]) -> Any:
    """Return the agent, whose model plays a script."""
    return Agent(name="travel", model=Scripted(script), tools=list(tools_of(bookings)))


async def plain(bookings: Bookings) -> None:
    """Make the journey with an agent as it is."""
    result = await Runner.run(agent_of(bookings, SCRIPT), "to Rome")
    print(f"plain: waits, booked {bookings.all()}")
    state = result.to_state().to_string()
    agent = agent_of(bookings, AFTERWARDS)
    state_again = await RunState.from_string(agent, state)
    state_again.approve(state_again.get_interruptions()[0])
    try:
        await Runner.run(agent, state_again)
    except RuntimeError as error:
        print(f"plain: {error}; booked {bookings.all()}")


async def as_a_saga(bookings: Bookings, kit: AgentKit) -> None:
    """Make the same journey as one transaction."""

    @compensator("journey.cancel")
    def cancel(number: int) -> None:
        bookings.remove(number)

    declared = {"book": compensable(cancel.using(number="$.number")), "ask": read_only()}
    agent = saga_agent(agent_of(bookings, SCRIPT), kit, tools=declared)
    result = await saga_run(agent, "to Rome")
    print(f"saga: waits for {result.interruptions[0].name}, booked {bookings.all()}")
    state = result.to_state().to_string()  # another process could go on from here
    agent = saga_agent(agent_of(bookings, AFTERWARDS), kit, tools=declared)
    try:
        await saga_run(agent, approve(await RunState.from_string(agent, state), by="ann"))
    except SagaAborted as aborted:
        print(f"saga: {aborted.cause}; booked {bookings.all()}")
        print(aborted.report.summary())


async def main() -> int:
    """Make both journeys; return 0 if the rows say what they must."""
    set_tracing_disabled(disabled=True)
    logging.getLogger("agent_saga").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        one, other = Bookings(Path(folder, "plain.sqlite")), Bookings(Path(folder, "saga.sqlite"))
        await plain(one)
        await as_a_saga(other, AgentKit("journey", wal=str(Path(folder, "log"))))
        return 0 if (one.all(), other.all()) == (["train", "room"], []) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

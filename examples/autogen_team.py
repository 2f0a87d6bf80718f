"""A team of AutoGen that books a journey, finds no hotel, and fails.

    python examples/autogen_team.py

The models play scripts; the bookings are rows in a SQLite file. The same journey is made twice. The
plain team tells its model of the failed tool, ends well, and keeps the train to a place without a
bed. The saga takes the train back, and asks no model any more. Exits with 0 only if the rows say
what they must.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from agent_saga import AgentKit, SagaAborted, compensator
from agent_saga_autogen import compensable, saga_agent, saga_run

INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=False,
    family="unknown",
    structured_output=False,
)


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


def calling(tool: str, what: str) -> CreateResult:
    """Return the turn of a model that calls a tool."""
    call = FunctionCall(id="call_0", name=tool, arguments=json.dumps({"what": what}))
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)


def team_of(bookings: Bookings) -> RoundRobinGroupChat:
    """Return a team of two, whose models play scripts."""

    def book(what: str) -> dict[str, int]:
        """Book something."""
        return {"number": bookings.add(what)}

    def book_bed(what: str) -> dict[str, int]:
        """Book a bed."""
        raise LookupError(f"no bed is free in {what}")

    trains = ReplayChatCompletionClient([calling("book", "train")], model_info=INFO)
    hotels = ReplayChatCompletionClient([calling("book_bed", "Rome")], model_info=INFO)
    agents = [
        AssistantAgent("trains", trains, tools=[book]),
        AssistantAgent("hotels", hotels, tools=[book_bed]),
    ]
    return RoundRobinGroupChat(agents, max_turns=2)  # type: ignore[arg-type]


async def plain(bookings: Bookings) -> None:
    """Make the journey with a team as it is."""
    result = await team_of(bookings).run(task="to Rome")
    print(f"plain: {result.messages[-1].to_text()}; booked {bookings.all()}")


async def as_a_saga(bookings: Bookings, kit: AgentKit) -> None:
    """Make the same journey as one transaction."""

    @compensator("journey.cancel")
    def cancel(number: int) -> None:
        bookings.remove(number)

    undo = cancel.using(number="$.number")
    harmless = compensable(undo, not_applied_on=LookupError)
    declared = {
        "book": compensable(undo),
        "book_bed": harmless,
    }
    team = saga_agent(team_of(bookings), kit, tools=declared, on_tool_failure="rollback")
    try:
        await saga_run(team, "to Rome")
    except SagaAborted as aborted:
        print(f"saga: {aborted.cause}; booked {bookings.all()}")
        print(aborted.report.summary())


async def main() -> int:
    """Make both journeys; return 0 if the rows say what they must."""
    for name in ("agent_saga", "autogen_core"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        one, other = Bookings(Path(folder, "plain.sqlite")), Bookings(Path(folder, "saga.sqlite"))
        await plain(one)
        await as_a_saga(other, AgentKit("journey", wal=str(Path(folder, "log"))))
        return 0 if (one.all(), other.all()) == (["train"], []) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

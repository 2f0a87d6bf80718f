"""A workflow of LlamaIndex that runs an agent, loses its model on the way, and fails.

    python examples/llamaindex_agent.py

The model plays a script; the bookings are rows in a SQLite file. The workflow runs its step again
when the model is down. The same journey is made twice: the plain workflow books the train twice,
and keeps both when the run fails; the saga books it once, and takes it back. Exits with 0 only if
the rows say what they must.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from llama_index.core import set_global_tokenizer
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from pydantic import PrivateAttr
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

from agent_saga import AgentKit, SagaAborted, compensator
from agent_saga_llamaindex import compensable, saga_agent, saga_run

DOWN = ConnectionError("the model is down")
SCRIPT: list[Any] = [{"what": "train"}, DOWN, {"what": "train"}, DOWN]


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


class Scripted(FunctionCallingLLM):
    """A model that makes the calls of a script, and is down now and then."""

    _turns: Any = PrivateAttr(default_factory=lambda: iter(SCRIPT))

    @property
    def metadata(self) -> LLMMetadata:
        """Say that the model can call tools."""
        return LLMMetadata(is_function_calling_model=True, is_chat_model=True)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        """Give the call of the next turn."""
        turn = next(self._turns)
        if isinstance(turn, Exception):
            raise turn

        async def answer() -> Any:
            said = ChatMessage(role="assistant", content="", additional_kwargs={"call": turn})
            yield ChatResponse(message=said, delta="")

        return answer()

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """Return the call of a turn."""
        arguments = response.message.additional_kwargs["call"]
        return [ToolSelection(tool_id="call_0", tool_name="book", tool_kwargs=arguments)]

    def _prepare_chat_with_tools(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"messages": kwargs.get("chat_history") or []}

    def _refused(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    chat = stream_chat = complete = stream_complete = _refused
    achat = acomplete = astream_complete = _refused


class Journey(Workflow):
    """Lets an agent book, and again when that fails."""

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self._agent = agent

    @step(retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2)))
    async def travel(self, ev: StartEvent) -> StopEvent:
        """Let the agent book."""
        return StopEvent(result=str(await self._agent.run("to Rome")))


def agent_of(bookings: Bookings) -> FunctionAgent:
    """Return the agent, whose model plays the script."""

    def book(what: str) -> dict[str, int]:
        """Book something."""
        return {"number": bookings.add(what)}

    return FunctionAgent(llm=Scripted(), tools=[FunctionTool.from_defaults(book)])


async def plain(bookings: Bookings) -> None:
    """Make the journey with a workflow as it is."""
    try:
        await Journey(agent_of(bookings)).run()
    except ConnectionError as error:
        print(f"plain: {error}; booked {bookings.all()}")


async def as_a_saga(bookings: Bookings, kit: AgentKit) -> None:
    """Make the same journey as one transaction."""

    @compensator("journey.cancel")
    def cancel(number: int) -> None:
        bookings.remove(number)

    declared = {"book": compensable(cancel.using(number="$.number"))}
    agent = saga_agent(agent_of(bookings), kit, tools=declared)
    try:
        await saga_run(Journey(agent), kit=kit)
    except SagaAborted as aborted:
        print(f"saga: {aborted.cause}; booked {bookings.all()}")
        print(aborted.report.summary())


async def main() -> int:
    """Make both journeys; return 0 if the rows say what they must."""
    set_global_tokenizer(str.split)  # the default one is loaded over the network
    logging.getLogger("agent_saga").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        one, other = Bookings(Path(folder, "plain.sqlite")), Bookings(Path(folder, "saga.sqlite"))
        await plain(one)
        await as_a_saga(other, AgentKit("journey", wal=str(Path(folder, "log"))))
        return 0 if (one.all(), other.all()) == (["train", "train"], []) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

"""A model that plays a script: tool calls, last words and errors; no network."""

from __future__ import annotations

import itertools
import json
from collections import deque
from typing import Any

import quiet  # noqa: F401 - before the framework
from crewai import BaseLLM
from pydantic import PrivateAttr

_ids = itertools.count(1).__next__


def call(tool: str, id: str = "", **args: Any) -> dict[str, Any]:  # noqa: A002
    """Return a tool call of the model."""
    function = {"name": tool, "arguments": json.dumps(args)}
    return {"id": id or f"minted_{_ids()}", "type": "function", "function": function}


def once_more():
    """Return a guardrail that says no the first time, for a task."""
    said = []

    def second(output):
        said.append(output.raw)
        return len(said) > 1, output.raw if len(said) > 1 else "once more"

    return {"guardrail": second}


class Scripted(BaseLLM):
    """Plays one turn after the other; a turn that is an exception is raised.

    Natively it answers with all calls of a turn; as text it answers with one call after the other.
    """

    native: bool = True
    _turns: deque[Any] = PrivateAttr(default_factory=deque)
    _seen: list[Any] = PrivateAttr(default_factory=list)

    @classmethod
    def of(cls, *script: Any, native: bool = True) -> Scripted:
        model = cls(model="scripted", native=native)
        model._turns.extend(script if native else _one_by_one(script))
        return model

    @property
    def seen(self) -> list[Any]:
        """What it was asked, question by question."""
        return self._seen

    def supports_function_calling(self) -> bool:
        return self.native

    def supports_stop_words(self) -> bool:
        return False

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self._seen.append([dict(message) for message in messages])
        said = self._turns.popleft() if self._turns else "done"
        self._emit_stream_chunk_event(
            "…", from_task=kwargs.get("from_task"), from_agent=kwargs.get("from_agent")
        )
        if isinstance(said, Exception):
            raise said
        if self.native or not isinstance(said, (str, dict)):
            return said
        if isinstance(said, str):
            return f"Thought: I know.\nFinal Answer: {said}"
        function = said["function"]
        return f"Thought: on.\nAction: {function['name']}\nAction Input: {function['arguments']}"

    async def acall(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return self.call(messages, *args, **kwargs)


def _one_by_one(script: Any) -> list[Any]:
    return [one for turn in script for one in (turn if isinstance(turn, list) else [turn])]

"""A chat model that plays a script: tool calls, last words and errors; no network."""

from __future__ import annotations

import itertools
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

_ids = itertools.count(1).__next__


def call(name: str, id: str = "", **args: Any) -> dict[str, Any]:  # noqa: A002
    """Return a tool call of the model."""
    return {"name": name, "args": args, "id": id or f"minted_{_ids()}", "type": "tool_call"}


class Scripted(BaseChatModel):
    """Plays one turn after the other; a turn that is an exception is raised."""

    script: list[Any]
    turn: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        said = self.script[self.turn]
        self.turn += 1
        if isinstance(said, Exception):
            raise said
        text, calls = (said, []) if isinstance(said, str) else ("", list(said))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, tool_calls=calls))])


class Deciding(Scripted):
    """Says what follows from the messages, with other ids each time."""

    def _generate(self, messages, *args, **kwargs):
        turn = self.script[sum(message.type == "ai" for message in messages)]
        if not isinstance(turn, str):
            turn = [call(each["name"], **each["args"]) for each in turn]
        player = Scripted(script=[turn])
        return player._generate(messages, *args, **kwargs)

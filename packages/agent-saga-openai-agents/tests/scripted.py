"""A model that plays a script: tool calls, last words and errors; no network."""

from __future__ import annotations

import itertools
import json
from typing import Any

from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

_ids = itertools.count(1).__next__


def call(name: str, id: str = "", **args: Any) -> ResponseFunctionToolCall:  # noqa: A002
    """Return a tool call of the model."""
    id = id or f"minted_{_ids()}"  # noqa: A001
    text = json.dumps(args)
    return ResponseFunctionToolCall(
        id=id, call_id=id, type="function_call", name=name, arguments=text
    )


def says(text: str) -> ResponseOutputMessage:
    """Return a last word of the model."""
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id=f"said_{_ids()}",
        type="message",
        role="assistant",
        status="completed",
        content=[content],
    )


class Scripted(Model):
    """Plays one turn after the other; a turn that is an exception is raised."""

    def __init__(self, script: list[Any]) -> None:
        self.script = script
        self.turn = 0

    def _next(self) -> list[Any]:
        said = self.script[self.turn]
        self.turn += 1
        if isinstance(said, Exception):
            raise said
        return [says(said)] if isinstance(said, str) else list(said)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(output=self._next(), usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        response = Response(
            id=f"response_{_ids()}",
            created_at=0,
            model="scripted",
            object="response",
            output=self._next(),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(
            type="response.completed", response=response, sequence_number=0
        )

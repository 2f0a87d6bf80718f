"""A model that plays a script: tool calls, last words and errors; no network."""

from __future__ import annotations

import itertools
import json
from typing import Any

from llama_index.core import set_global_tokenizer
from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from pydantic import PrivateAttr

set_global_tokenizer(str.split)  # the default one is loaded over the network
_ids = itertools.count(1).__next__


def call(name: str, id: str = "", **args: Any) -> ToolSelection:  # noqa: A002
    """Return a tool call of the model."""
    return ToolSelection(tool_id=id or f"minted_{_ids()}", tool_name=name, tool_kwargs=args)


class Scripted(FunctionCallingLLM):
    """Plays one turn after the other; a turn that is an exception is raised.

    As the clients of providers do, it asks again by itself where it may.
    """

    retries: int = 0
    native: bool = True
    _script: list[Any] = PrivateAttr(default_factory=list)
    _seen: list[Any] = PrivateAttr(default_factory=list)

    @classmethod
    def of(cls, *script: Any, retries: int = 0, native: bool = True) -> Scripted:
        """Return a model with a script."""
        made = cls(retries=retries, native=native)
        made._script = list(script)
        return made

    @property
    def seen(self) -> list[Any]:
        """What the model was told, turn by turn."""
        return self._seen

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            is_function_calling_model=self.native, is_chat_model=True, model_name="scripted"
        )

    def _next(self, messages: Any) -> ChatResponse:
        self._seen.append([str(message.content) for message in messages])
        left = self.retries
        said = self._script.pop(0)
        while isinstance(said, Exception) and left:
            left, said = left - 1, self._script.pop(0)
        if isinstance(said, Exception):
            raise said
        if not self.native:
            return ChatResponse(message=ChatMessage(role="assistant", content=_text(said)))
        text, calls = (said, []) if isinstance(said, str) else ("", said)
        message = ChatMessage(role="assistant", content=text, additional_kwargs={"said": calls})
        return ChatResponse(message=message, delta=text)

    async def achat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        return self._next(messages)

    async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
        response = self._next(messages)

        async def one() -> Any:
            yield response

        return one()

    def _prepare_chat_with_tools(
        self, tools: Any, user_msg: Any = None, chat_history: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        return {"messages": [*(chat_history or []), *([user_msg] if user_msg else [])]}

    def get_tool_calls_from_response(
        self, response: Any, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        return list(response.message.additional_kwargs.get("said") or [])

    def chat(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    stream_chat = complete = stream_complete = chat

    async def acomplete(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    astream_complete = acomplete


def _text(said: Any) -> str:
    """Return a turn as a model writes it that calls tools by text."""
    if isinstance(said, str):
        return f"Thought: I can answer.\nAnswer: {said}"
    [one] = said
    return (
        f"Thought: I need a tool.\nAction: {one.tool_name}\n"
        f"Action Input: {json.dumps(one.tool_kwargs)}"
    )

"""A model that plays a script: tool calls, last words and errors; no network."""

from __future__ import annotations

import itertools
import json
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

_INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=False,
    family="unknown",
    structured_output=False,
)
_ids = itertools.count(1).__next__


def call(name: str, id: str = "", **args: Any) -> FunctionCall:  # noqa: A002
    """Return a tool call of the model."""
    return FunctionCall(id=id or f"minted_{_ids()}", name=name, arguments=json.dumps(args))


class Scripted(ReplayChatCompletionClient):
    """Plays one turn after the other; a turn that is an exception is raised.

    As the clients of providers do, it asks again by itself where it may.
    """

    def __init__(self, *script: Any, retries: int = 0) -> None:
        super().__init__([], model_info=_INFO)
        self._script = list(script)
        self._retries = retries
        self.seen: list[list[Any]] = []

    async def create(self, messages: Any, **kwargs: Any) -> CreateResult:
        """Return the next turn."""
        self.seen.append(list(messages))
        left = self._retries
        said = self._script.pop(0)
        while isinstance(said, BaseException) and left:
            left, said = left - 1, self._script.pop(0)
        if isinstance(said, BaseException):
            raise said
        reason = "stop" if isinstance(said, str) else "function_calls"
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        return CreateResult(finish_reason=reason, content=said, usage=usage, cached=False)

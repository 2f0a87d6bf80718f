"""MCP servers of an agent, whose tools are steps.

Rules of this part:

- A server stands in the clone as an object of a subclass of its class that shares its state: it is
  connected and cleaned up wherever the program does so.
- An answer that says of itself that the tool failed is no success: the step's outcome is unknown,
  unless the tool is declared with `not_applied_on=ServerToolFailed`. The model is shown the answer.
- The structured part of an answer is what the step records, and what an inverse is made of; the
  model is shown what the framework makes of the answer.
"""

from __future__ import annotations

import json
from typing import Any

from agent_saga_openai_agents.calls import calling


class ServerToolFailed(Exception):
    """A tool of an MCP server answered that it failed."""


class _Told:
    """Makes a server tell of its answers; mixed into the server's class."""

    async def call_tool(self, tool_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a tool of the server, and note what its answer says."""
        result = await super().call_tool(tool_name, *args, **kwargs)  # type: ignore[misc]
        call = calling.get()
        if call is not None:
            call.result = _either(result, "structured_content", "structuredContent")
            if _either(result, "is_error", "isError"):
                call.failed = ServerToolFailed(f"{tool_name} answered: {_text(result)}")
        return result


def told(server: Any) -> Any:
    """Return an object that shares a server's state, and tells of its answers."""
    if isinstance(server, _Told):
        return server
    made = object.__new__(_class_of(type(server)))
    made.__dict__ = server.__dict__
    return made


def shown(value: Any) -> Any:
    """Return what the model is shown of a recorded answer that is given again."""
    kinds = ("text", "image", "file")
    return (
        json.dumps(value) if isinstance(value, dict) and value.get("type") not in kinds else value
    )


def _either(result: Any, *names: str) -> Any:
    return next((getattr(result, name) for name in names if hasattr(result, name)), None)


def _text(result: Any) -> str:
    parts = [getattr(part, "text", "") for part in getattr(result, "content", ())]
    return " ".join(part for part in parts if part)[:200] or "it failed"


_classes: dict[type[Any], type[Any]] = {}


def _class_of(base: type[Any]) -> type[Any]:
    found = _classes.get(base)
    if found is None:
        body = {"__doc__": base.__doc__, "__module__": base.__module__}
        found = _classes.setdefault(base, type(base.__name__, (_Told, base), body))
    return found

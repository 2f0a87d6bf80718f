"""Where in a crew, a flow or an agent something runs. Judges what it is given; keeps nothing.

Rules of this part:

- A place means the same in another process: it holds no random id of a task or an agent, but the
  flow's method, which task of the crew it is, and the agent's role.
- A task that the crew does not list, as those that one agent delegates to another, is known by its
  text.
- A question to a model is known by what it says: by roles, texts and the calls in it, not by the
  ids of the calls.
- Where an object lies in memory is no part of what is said: CrewAI asks a planner about tools as
  Python shows them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

_ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+")


class Place(NamedTuple):
    """Where something runs.

    Attributes:
        method: the flow's method, or an empty string.
        task: the task, or an empty string where an agent runs without one.
        agent: the agent's role, or an empty string.
    """

    method: str = ""
    task: str = ""
    agent: str = ""


def place_of(method: str, agent: Any = None, task: Any = None, crew: Any = None) -> Place:
    """Return the place of a call that an agent makes."""
    return Place(method, _task(task, crew), role_of(agent))


def role_of(agent: Any) -> str:
    """Return an agent's role as its author wrote it, before inputs were filled in."""
    return str(getattr(agent, "_original_role", None) or getattr(agent, "role", None) or "")


def is_internal(flow: Any) -> bool:
    """Say whether a flow is how CrewAI itself runs an agent; older versions have hooks for that."""
    return type(flow).__module__.startswith(("crewai.agents.", "crewai.experimental."))


def _task(task: Any, crew: Any) -> str:
    if task is None:
        return ""
    listed = getattr(crew, "tasks", None) or ()
    for number, one in enumerate(listed):
        if one is task:
            return f"task {number}"
    return f"task {digest([str(getattr(task, 'description', ''))])[:12]}"


def digest_of(messages: Any) -> str:
    """Return the digest of a question to a model."""
    said = messages if isinstance(messages, Sequence) and not isinstance(messages, str) else ()
    if not said:
        return digest([str(messages)])
    return digest([_message(one) for one in said])


def _message(message: Any) -> list[Any]:
    if not isinstance(message, Mapping):
        return [str(message)]
    calls = [call_of(one)[1:] for one in message.get("tool_calls") or ()]
    content = message.get("content")
    return [str(message.get("role")), content if isinstance(content, str) else repr(content), calls]


def call_of(call: Any) -> tuple[str, str, str]:
    """Return the id, the name and the arguments of a tool call, in whatever form a model gives it.

    An id or a name that cannot be found is an empty string.
    """
    key = _of(call, "id")
    source = first(_of(call, "function"), call)
    chosen = first(_of(source, "arguments"), _of(source, "input"), _of(source, "args"))
    text = chosen if isinstance(chosen, str) else json.dumps(chosen, default=str, sort_keys=True)
    return str(key or ""), str(_of(source, "name") or ""), text


def _of(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def first(*values: Any) -> Any:
    """Return the first value that is there."""
    return next((value for value in values if value is not None), None)


def digest(parts: Iterable[Any]) -> str:
    """Return a digest of plain data."""
    text = _ADDRESS.sub("", json.dumps(list(parts), default=str))
    return hashlib.sha256(text.encode()).hexdigest()

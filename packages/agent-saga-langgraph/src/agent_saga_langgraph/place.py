"""Where in a graph a call stands, and the step key that follows from it.

Rules of this part:

- A key is made of the checkpoint that the outermost graph's superstep began with, the namespace,
  the step inside it, who calls, and the arguments' MAC. A repeated node has all of these again.
- Who calls is the model's call id. Ids alone are not unique, and a copy of one call is the same
  call: so the namespace is taken without the id of the last task.
- A call without an id is named by its task and by its ordinal among equal calls of this attempt of
  the task: two equal calls in one attempt are two steps.
- A call outside any graph has no place; the engine counts it by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.runtime import ExecutionInfo, get_runtime


class Place(NamedTuple):
    """Where a call stands.

    Attributes:
        checkpoint: the outermost graph's checkpoint that the superstep began with.
        namespace: the nodes that lead to it, with the ids of their tasks.
        step: the number of the superstep in the innermost graph.
        attempt: how often the node was begun.
    """

    checkpoint: str
    namespace: str
    step: int
    attempt: int


class Mark(NamedTuple):
    """What a step key tells about the call.

    Attributes:
        checkpoint, path, step: its place, the path without the ids of tasks.
        caller: the call's id, or an empty string.
    """

    checkpoint: str
    path: str
    step: int
    caller: str


def here() -> Place | None:
    """Return the place of the running code, or None outside a graph."""
    config = ensure_config()
    metadata: Mapping[str, Any] = config.get("metadata") or {}
    namespace = metadata.get("langgraph_checkpoint_ns")
    if not namespace:
        return None
    info = _execution()
    seen: Mapping[str, str] = (config.get("configurable") or {}).get("checkpoint_map") or {}
    root = seen.get("") or (info.checkpoint_id if info is not None else "")
    attempt = info.node_attempt if info is not None else 1
    return Place(root, str(namespace), int(metadata.get("langgraph_step", 0)), attempt)


def has_checkpointer(config: RunnableConfig) -> bool:
    """Say whether the graph that runs here can be gone on with; no, where nobody can tell.

    LangGraph hands its checkpointer down under a key of its own, which is not promised. Without the
    key a node counts as one that cannot wait: an interrupt in it then fails, and is undone.
    """
    return checkpointer(config) is not None


def checkpointer(config: RunnableConfig) -> Any:
    """Return the checkpointer of the graph that runs here; None where nobody can tell."""
    return (config.get("configurable") or {}).get("__pregel_checkpointer")


def is_on_thread() -> bool:
    """Say whether the running code is in a graph that can be gone on with; see above."""
    return here() is not None and has_checkpointer(ensure_config())


def _execution() -> ExecutionInfo | None:
    try:
        return get_runtime().execution_info
    except (KeyError, RuntimeError):
        return None


def key_of_call(place: Place, call: str, mac: bytes) -> str:
    """Return the step key of a call that the model gave an id."""
    head, _, last = place.namespace.rpartition("|")
    node = last.partition(":")[0]
    return _text(place, f"{head}|{node}" if head else node, f"call {call}", mac)


def key_of_task(place: Place, ordinal: int, mac: bytes) -> str:
    """Return the step key of a call without an id: the ordinal-th equal one of its task."""
    return _text(place, place.namespace, f"number {ordinal}", mac)


def _text(place: Place, namespace: str, caller: str, mac: bytes) -> str:
    return json.dumps([place.checkpoint, namespace, place.step, caller, mac.hex()])


def read(key: str) -> Mark | None:
    """Return what a step key tells; None when it is not one of this package."""
    try:
        checkpoint, namespace, step, caller, _ = json.loads(key)
    except (ValueError, TypeError):
        return None
    kind, _, name = str(caller).partition(" ")
    return Mark(checkpoint, path(namespace), step, name if kind == "call" else "")


def path(namespace: str) -> str:
    """Return a namespace without the ids of tasks."""
    return "|".join(part.partition(":")[0] for part in namespace.split("|"))

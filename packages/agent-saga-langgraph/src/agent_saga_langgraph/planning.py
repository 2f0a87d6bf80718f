"""Which plan a run has: what its surroundings, the graph's checkpointer and the log say.

Rules of this part:

- The graph's checkpointer and the log are read before the boundary is opened; what they say is
  judged in `threads` and `owners`.
- A run inside another graph is a part of that one's run. Without a boundary round that, it is
  refused where it could be interrupted: only the outermost graph can go on with it.
- A run with a thread of its own, inside a boundary of the program, is a part of that saga.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from agent_saga.engine.boundary import current_scope
from agent_saga.errors import ConfigurationError
from agent_saga.kit.frameworks.recorded import Recorded
from agent_saga_langgraph import logs, node_sagas, owners, place, threads, travel
from agent_saga_langgraph.asking import GraphAnswers, taken
from agent_saga_langgraph.lineage import Lineage
from agent_saga_langgraph.met import Notes
from agent_saga_langgraph.plans import ATTEMPTS, Asked, Plan
from agent_saga_langgraph.threads import Thread

logger = logging.getLogger("agent_saga.langgraph")


def planned(graph: Any, given: Any, config: RunnableConfig | None, asked: Asked) -> Plan:
    """Return the plan of a run; blocks.

    Raises:
        ConfigurationError: the run cannot be a boundary as it was asked for.
        BranchRefused: it would leave effects behind that came after where it begins.
        SagaClosed: the thread's saga has ended.
        ClaimRefused: the thread belongs to a boundary that has not ended.
    """
    short = _without_thread(graph, given, asked)
    if short is not None:
        return short
    name = threads.thread_of(config or {})
    snapshots = graph.get_state_history(threads.latest_of(config))
    thread = Thread(name, snapshots, threads.checkpoint_of(config))
    return _on_thread(thread, owners.graph_name(graph), given, asked, _inside())


async def planned_async(
    graph: Any, given: Any, config: RunnableConfig | None, asked: Asked
) -> Plan:
    """Return the plan of a run without blocking the event loop; errors as for `planned`."""
    short = _without_thread(graph, given, asked)
    if short is not None:
        return short
    name = threads.thread_of(config or {})
    snapshots = [s async for s in graph.aget_state_history(threads.latest_of(config))]
    thread = Thread(name, snapshots, threads.checkpoint_of(config))
    about = owners.graph_name(graph), given, asked, _inside()
    return await asyncio.to_thread(_on_thread, thread, *about)


def _without_thread(graph: Any, given: Any, asked: Asked) -> Plan | None:
    """Return the plan of a run that has no thread of its own; None for any other.

    Raises:
        ConfigurationError: it was given a key inside another boundary; or it would use the
            checkpointer of a graph round it, which has no boundary.
    """
    asked.check()
    nested, in_graph = current_scope.get() is not None, place.here() is not None
    if nested and asked.key is not None:
        raise ConfigurationError(
            "A run inside another boundary was given a key; it is a part of that saga."
        )
    configurable = ensure_config().get("configurable") or {}
    if in_graph and not nested and configurable.get("thread_id") is not None:
        raise ConfigurationError(
            "The run is inside another graph, which no boundary is round.",
            fix="Run the outermost graph with saga_run, or make that one a saga_agent.",
        )
    if getattr(graph, "checkpointer", None) in (None, False) or (nested and in_graph):
        return Plan(asked, given, saga_id=asked.key, nested=nested)
    return None


def _inside() -> str:
    """Return the id of the saga round a run, or an empty string."""
    scope = current_scope.get()
    return "" if scope is None else scope.saga.id


def _on_thread(thread: Thread, graph: str, given: Any, asked: Asked, inside: str) -> Plan:
    if asked.durability == "exit":
        _say_exit()
    recorded = Recorded(asked.runtime)
    resuming = threads.goes_on(given)
    if asked.key is None:
        owners.check_log(thread, recorded)
        owners.check_program(thread, recorded, inside, resuming=resuming)
    lineage = Lineage(thread, node_sagas.checkpoints_of(recorded, thread.id))
    if inside:
        owners.check_free(thread, recorded, resuming=resuming)
        travel.check_begin(
            thread, lineage, recorded, graph, on_branch=asked.on_branch, resuming=resuming
        )
        log = logs.mark_of(recorded)
        return Plan(asked, given, thread=thread.id, nested=True, inside=inside, log=log)
    saga = asked.key or _saga_on(thread, graph, recorded, resuming=resuming)
    left = travel.check_begin(
        thread,
        lineage,
        recorded,
        graph,
        on_branch=asked.on_branch,
        named=asked.key,
        resuming=resuming,
    )
    awaits = recorded.awaits(saga)
    answers = GraphAnswers(awaits)
    attempts = awaits.get(ATTEMPTS) if isinstance(awaits, Mapping) else None
    notes = Notes(recorded, saga)
    return Plan(
        asked,
        taken(given, thread.interrupts, answers),
        saga_id=saga,
        history=thread.history(lineage.done, attempts, notes.kept(), resuming=resuming),
        thread=thread.id,
        answers=answers,
        left=left,
        graph=graph,
        log=logs.mark_of(recorded),
        notes=notes,
    )


@functools.cache
def _say_exit() -> None:
    logger.warning(
        "durability='exit' stores nothing before a run ends: after a crash the graph begins anew, "
        "and a model may then take another way, so that all is undone. durability='sync' keeps "
        "each checkpoint before the next effect. (Said once.)"
    )


def _goes_on(thread: Thread, saga: str, recorded: Recorded, *, resuming: bool) -> bool:
    """Say whether a run goes on with a saga; arguments and errors as for `threads.continued`."""
    if threads.did_nothing(recorded.found(saga)):
        return False
    return threads.continued(thread, saga, recorded.state(saga), resuming=resuming)


def _saga_on(thread: Thread, graph: str, recorded: Recorded, *, resuming: bool) -> str:
    """Return the id of the saga that a run on a thread begins or goes on with.

    Raises:
        SagaClosed: the thread's saga has ended while the graph waits, or was undone.
        ConfigurationError: another graph has the thread's id.
    """
    last = thread.saga
    if last is not None and _goes_on(thread, last, recorded, resuming=resuming):
        return last
    number = 1
    while not threads.usable(recorded.state(thread.begun_at(number))):
        if resuming and thread.waits:  # what it did may stand in the writes of the waiting work
            _goes_on(thread, thread.begun_at(number), recorded, resuming=True)
        number += 1
    begins = thread.begun_at(number)
    owners.check_graph(thread, graph, recorded, begins)
    return begins

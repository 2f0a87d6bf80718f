"""What a run is: which saga it belongs to, and how its boundary behaves.

Rules of this part:

- The graph's checkpointer and the log are read before the boundary is opened; what they say is
  judged in `threads`.
- A run inside another boundary is a savepoint and needs none of this. A run inside another graph,
  without a boundary round that one, is refused where it could be interrupted: only the outermost
  graph can go on with it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import SagaState
from agent_saga.engine.boundary import current_scope
from agent_saga.engine.handle import SagaHandle, SagaScope
from agent_saga.engine.tool import one_of
from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.scopes import saga_scope
from agent_saga.recovery.survey import look
from agent_saga.runtime.composition import Runtime, process_runtime
from agent_saga.wal.file import FileWAL
from agent_saga_langgraph import place, threads
from agent_saga_langgraph.attempts import History, attempts_of
from agent_saga_langgraph.effects import undo_on_failure
from agent_saga_langgraph.threads import SAGA, Thread

ON_TOOL_FAILURE = ("continue", "rollback")


class Plan:
    """One run as it was asked for.

    Args:
        kit: whose boundary it is, or None.
        undo_on_failure: a tool failure undoes the run.
        saga_id: the saga that it begins or goes on with; None is a new one without an id.
        history: what the thread's checkpoints say.
        thread: the thread's id; empty without a checkpointer.
        nested: it runs inside another boundary.
    """

    def __init__(
        self,
        kit: AgentKit | None,
        *,
        undo_on_failure: bool,
        saga_id: str | None = None,
        history: History | None = None,
        thread: str = "",
        nested: bool = False,
    ) -> None:
        self._kit = kit
        self._undo_on_failure = undo_on_failure
        self._saga_id = saga_id
        self._history = history or History()
        self._thread = thread
        self.nested = nested

    def scope(self) -> SagaScope:
        """Return the boundary."""
        open_scope = saga_scope if self._kit is None else self._kit.transaction
        return open_scope(
            name="langgraph" if self._kit is None else "",
            on_unsettled="warn",
            saga_id=self._saga_id,
            resume=self._saga_id is not None,
            suspendable=bool(self._thread),
        )

    def begin(self, handle: SagaHandle) -> None:
        """Tell the steps of this run what they must know; called inside the boundary."""
        undo_on_failure.set(self._undo_on_failure)
        if not self.nested:
            attempts_of(_engines_saga(handle), self._history)

    def configured(self, config: RunnableConfig | None) -> RunnableConfig | None:
        """Return the run's configuration; its checkpoints will name the saga."""
        if not self._thread:
            return config
        given = config or {}
        metadata = {**(given.get("metadata") or {}), SAGA: self._saga_id}
        return {**given, "metadata": metadata}

    def waits(self, graph: Any, config: RunnableConfig | None) -> bool:
        """Say whether the graph stopped before its end."""
        return bool(self._thread) and threads.stopped_early(graph.get_state(_latest(config)))

    async def waits_async(self, graph: Any, config: RunnableConfig | None) -> bool:
        """Say whether the graph stopped before its end."""
        if not self._thread:
            return False
        return threads.stopped_early(await graph.aget_state(_latest(config)))

    def reason(self) -> str:
        """Return what a suspended saga waits for, in words."""
        return f"the graph waits on thread {self._thread!r}"

    def check_repeated(self, handle: SagaHandle) -> None:
        """See that nothing was passed over that a lost attempt did.

        Raises:
            ReplayConflict: something was.
        """
        if not self.nested:
            saga = _engines_saga(handle)
            attempts_of(saga).check_repeated(saga)


def nested_plan(kit: AgentKit | None, on_tool_failure: str, key: str | None) -> Plan | None:
    """Return the plan of a run inside a boundary; None where there is none.

    Raises:
        ConfigurationError: it was given a key, which only a saga of its own can have.
    """
    undo = _undoes(on_tool_failure)
    if current_scope.get() is None:
        return None
    if key is not None:
        raise ConfigurationError(
            "A run inside another boundary was given a key; it is a part of that saga."
        )
    return Plan(kit, undo_on_failure=undo, nested=True)


def planned(
    graph: Any,
    given: Any,
    config: RunnableConfig | None,
    kit: AgentKit | None,
    key: str | None,
    on_tool_failure: str,
) -> Plan:
    """Return the plan of a run that no boundary is round; blocks.

    Raises:
        ConfigurationError: the run cannot be a boundary as it was asked for.
        SagaClosed: the thread's saga has ended.
    """
    undo = _undoes(on_tool_failure)
    if not _can_wait(graph):
        return Plan(kit, undo_on_failure=undo, saga_id=key)
    thread = Thread(threads.thread_of(config or {}), graph.get_state_history(_latest(config)))
    return _on_thread(thread, given, config or {}, kit, key, undo_on_failure=undo)


async def planned_async(
    graph: Any,
    given: Any,
    config: RunnableConfig | None,
    kit: AgentKit | None,
    key: str | None,
    on_tool_failure: str,
) -> Plan:
    """Return the plan of a run that no boundary is round, without blocking the event loop.

    Raises:
        ConfigurationError: the run cannot be a boundary as it was asked for.
        SagaClosed: the thread's saga has ended.
    """
    undo = _undoes(on_tool_failure)
    if not _can_wait(graph):
        return Plan(kit, undo_on_failure=undo, saga_id=key)
    name = threads.thread_of(config or {})
    thread = Thread(name, [s async for s in graph.aget_state_history(_latest(config))])

    def judged() -> Plan:
        return _on_thread(thread, given, config or {}, kit, key, undo_on_failure=undo)

    return await asyncio.to_thread(judged)


def _on_thread(
    thread: Thread,
    given: Any,
    config: RunnableConfig,
    kit: AgentKit | None,
    key: str | None,
    *,
    undo_on_failure: bool,
) -> Plan:
    threads.check_latest(thread, config)
    runtime = process_runtime() if kit is None else kit.runtime
    resuming = threads.goes_on(given)
    saga = key or _saga_on(thread, runtime, resuming=resuming)
    return Plan(
        kit,
        undo_on_failure=undo_on_failure,
        saga_id=saga,
        history=thread.history(resuming=resuming),
        thread=thread.id,
    )


def _saga_on(thread: Thread, runtime: Runtime, *, resuming: bool) -> str:
    """Return the id of the saga that a run on a thread begins or goes on with."""
    recorded = thread.saga
    if recorded is not None:
        state = _state(runtime, recorded)
        if threads.continued(thread, recorded, state, resuming=resuming):
            return recorded
    number = 1
    while not threads.usable(_state(runtime, thread.begun_at(number))):
        number += 1
    return thread.begun_at(number)


def _state(runtime: Runtime, saga: str) -> SagaState | None:
    wal = runtime.wal
    if not isinstance(wal, FileWAL):
        raise ConfigurationError(
            f"The graph has a checkpointer, so its runs can be interrupted and gone on with by "
            f"another process; that needs a log in files, not {wal.address}.",
            fix="Give the kit wal='a path'.",
        )
    found = look(wal.path, identity.saga_id_of(saga))
    return None if found is None else found.view.state


def _can_wait(graph: Any) -> bool:
    """Say whether a graph can stop and be gone on with: it has a checkpointer of its own.

    Raises:
        ConfigurationError: it would use that of a graph round it, which has no boundary.
    """
    configurable = ensure_config().get("configurable") or {}
    if place.here() is not None and configurable.get("thread_id") is not None:
        raise ConfigurationError(
            "The run is inside another graph, which no boundary is round.",
            fix="Run the outermost graph with saga_run, or make that one a saga_agent.",
        )
    return getattr(graph, "checkpointer", None) not in (None, False)


def _latest(config: RunnableConfig | None) -> RunnableConfig:
    """Return a configuration that names the thread's latest checkpoint."""
    given = config or {}
    configurable = dict(given.get("configurable") or {})
    configurable.pop("checkpoint_id", None)
    return {**given, "configurable": configurable}


def _undoes(on_tool_failure: str) -> bool:
    return one_of("on_tool_failure", on_tool_failure, ON_TOOL_FAILURE) == "rollback"


def _engines_saga(handle: SagaHandle) -> Any:
    return handle._scope.saga  # noqa: SLF001 - the engine's own object, of the same project

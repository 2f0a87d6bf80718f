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
import contextlib
from collections.abc import Iterator
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from agent_saga.controls.waiting import answering
from agent_saga.domain import identity
from agent_saga.domain.effective import facts_of
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.records import Ev
from agent_saga.engine.boundary import current_scope
from agent_saga.engine.handle import SagaHandle, SagaScope
from agent_saga.engine.tool import one_of
from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.scopes import saga_scope
from agent_saga.recovery.survey import Found, look
from agent_saga.runtime.composition import Runtime, process_runtime
from agent_saga.wal.file import FileWAL
from agent_saga_langgraph import place, threads
from agent_saga_langgraph.asking import GraphAnswers, taken, to_keep
from agent_saga_langgraph.attempts import History, attempts_of
from agent_saga_langgraph.effects import failing
from agent_saga_langgraph.threads import SAGA, Thread

ON_TOOL_FAILURE = ("continue", "rollback", "ask")


class Plan:
    """One run as it was asked for.

    Args:
        kit: whose boundary it is, or None.
        given: the run's input, without the answers that are for the gate.
        on_tool_failure: "continue", "rollback" or "ask".
        saga_id: the saga that it begins or goes on with; None is a new one without an id.
        history: what the thread's checkpoints say.
        thread: the thread's id; empty without a checkpointer.
        answers: those that the run was resumed with; None where it cannot wait for any.
        nested: it runs inside another boundary.
    """

    def __init__(
        self,
        kit: AgentKit | None,
        given: Any,
        *,
        on_tool_failure: str,
        saga_id: str | None = None,
        history: History | None = None,
        thread: str = "",
        answers: GraphAnswers | None = None,
        nested: bool = False,
    ) -> None:
        self._kit = kit
        self.given = given
        self._on_tool_failure = on_tool_failure
        self._saga_id = saga_id
        self._history = history or History()
        self._thread = thread
        self._answers = answers
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
            on_crash="hold" if self._thread else None,
        )

    @contextlib.contextmanager
    def entered(self, handle: SagaHandle) -> Iterator[None]:
        """Let the steps of this run know what they must; entered inside the boundary."""
        if not self.nested:
            attempts_of(_engines_saga(handle), self._history)
        with contextlib.ExitStack() as stack:
            stack.enter_context(failing(self._on_tool_failure))
            if self._answers is not None:
                stack.enter_context(answering(self._answers))
            yield

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

    def suspend(self, handle: SagaHandle) -> None:
        """Leave the saga suspended, with the answers that it has.

        Raises:
            SuspendRequested: always.
        """
        awaits = None if self._answers is None else to_keep(self._answers)
        handle.suspend(f"the graph waits on thread {self._thread!r}", awaits=awaits)

    def check_repeated(self, handle: SagaHandle) -> None:
        """See that nothing was passed over that a lost attempt did.

        Raises:
            ReplayConflict: something was.
        """
        if not self.nested:
            saga = _engines_saga(handle)
            attempts_of(saga).check_repeated(saga)


def nested_plan(
    given: Any, kit: AgentKit | None, key: str | None, on_tool_failure: str
) -> Plan | None:
    """Return the plan of a run inside a boundary; None where there is none.

    Raises:
        ConfigurationError: it was given a key, which only a saga of its own can have.
    """
    check_policy(kit, on_tool_failure)
    if current_scope.get() is None:
        return None
    if key is not None:
        raise ConfigurationError(
            "A run inside another boundary was given a key; it is a part of that saga."
        )
    return Plan(kit, given, on_tool_failure=on_tool_failure, nested=True)


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
    if not _can_wait(graph):
        return Plan(kit, given, on_tool_failure=on_tool_failure, saga_id=key)
    thread = Thread(threads.thread_of(config or {}), graph.get_state_history(_latest(config)))
    return _on_thread(thread, given, config or {}, kit, key, on_tool_failure)


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
    if not _can_wait(graph):
        return Plan(kit, given, on_tool_failure=on_tool_failure, saga_id=key)
    name = threads.thread_of(config or {})
    thread = Thread(name, [s async for s in graph.aget_state_history(_latest(config))])

    def judged() -> Plan:
        return _on_thread(thread, given, config or {}, kit, key, on_tool_failure)

    return await asyncio.to_thread(judged)


def _on_thread(
    thread: Thread,
    given: Any,
    config: RunnableConfig,
    kit: AgentKit | None,
    key: str | None,
    on_tool_failure: str,
) -> Plan:
    threads.check_latest(thread, config)
    log = Recorded(process_runtime() if kit is None else kit.runtime)
    resuming = threads.goes_on(given)
    saga = key or _saga_on(thread, log, resuming=resuming)
    answers = GraphAnswers(log.awaits(saga))
    return Plan(
        kit,
        taken(given, thread.interrupts, answers),
        on_tool_failure=on_tool_failure,
        saga_id=saga,
        history=thread.history(resuming=resuming),
        thread=thread.id,
        answers=answers,
    )


def _saga_on(thread: Thread, log: Recorded, *, resuming: bool) -> str:
    """Return the id of the saga that a run on a thread begins or goes on with."""
    recorded = thread.saga
    if recorded is not None and threads.continued(
        thread, recorded, log.state(recorded), resuming=resuming
    ):
        return recorded
    number = 1
    while not threads.usable(log.state(thread.begun_at(number))):
        number += 1
    return thread.begun_at(number)


class Recorded:
    """What the log tells of sagas, by the ids of our own; read once each.

    Args:
        runtime: whose log it is.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._found: dict[str, Found | None] = {}

    def state(self, saga: str) -> SagaState | None:
        """Return where a saga stands; None when it left no record."""
        found = self._look(saga)
        return None if found is None else found.view.state

    def awaits(self, saga: str) -> object:
        """Return what a suspended saga keeps for whoever resumes it, or None."""
        found = self._look(saga)
        records = found.effective.records if found is not None else ()
        suspended = [record for record in records if record.event == Ev.SAGA_SUSPENDED]
        return facts_of(suspended[-1]).get("awaits") if suspended else None

    def _look(self, saga: str) -> Found | None:
        if saga not in self._found:
            wal = self._runtime.wal
            if not isinstance(wal, FileWAL):
                raise ConfigurationError(
                    f"The graph has a checkpointer, so its runs can be interrupted and gone on "
                    f"with by another process; that needs a log in files, not {wal.address}.",
                    fix="Give the kit wal='a path'.",
                )
            self._found[saga] = look(wal.path, identity.saga_id_of(saga))
        return self._found[saga]


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


def check_policy(kit: AgentKit | None, on_tool_failure: str) -> None:
    """Refuse a policy that does not exist, or that needs somebody to ask where there is nobody.

    Raises:
        ConfigurationError: so it is.
    """
    one_of("on_tool_failure", on_tool_failure, ON_TOOL_FAILURE)
    runtime = process_runtime() if kit is None else kit.runtime
    if on_tool_failure == "ask" and runtime.gate.approval_provider is None:
        raise ConfigurationError(
            "on_tool_failure='ask' needs somebody to ask, and the gate has no approval provider.",
            fix="Give the kit gate=PreFlightGate(approval_provider=GraphApprovals()).",
        )


def _engines_saga(handle: SagaHandle) -> Any:
    return handle._scope.saga  # noqa: SLF001 - the engine's own object, of the same project

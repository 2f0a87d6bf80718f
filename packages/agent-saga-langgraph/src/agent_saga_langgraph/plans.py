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
import functools
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from agent_saga.controls.waiting import answering
from agent_saga.engine.boundary import current_scope, last_reports
from agent_saga.engine.handle import SagaHandle, SagaScope
from agent_saga.engine.tool import one_of
from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.recorded import Recorded
from agent_saga.kit.scopes import saga_scope
from agent_saga.runtime.composition import Runtime, process_runtime
from agent_saga_langgraph import place, threads, travel
from agent_saga_langgraph.asking import GraphAnswers, taken, to_keep
from agent_saga_langgraph.attempts import History, attempts_of
from agent_saga_langgraph.effects import failing
from agent_saga_langgraph.lineage import Lineage
from agent_saga_langgraph.threads import SAGA, Thread
from agent_saga_langgraph.unseen import listening

ON_TOOL_FAILURE = ("continue", "rollback", "ask")
ON_BRANCH = ("refuse", "keep")

log = logging.getLogger("agent_saga.langgraph")


class Asked(NamedTuple):
    """How a run was asked for.

    Attributes:
        kit: whose boundary it is, or None.
        key: the saga's id, if its caller names it.
        on_tool_failure: "continue", "rollback" or "ask".
        on_branch: "refuse" to begin where effects of another branch would stand, or "keep" them.
        durability: when the framework stores checkpoints; None is its own default.
    """

    kit: AgentKit | None = None
    key: str | None = None
    on_tool_failure: str = "continue"
    on_branch: str = "refuse"
    durability: str | None = None

    def check(self) -> None:
        """Refuse what does not exist, or needs somebody to ask where there is nobody.

        Raises:
            ConfigurationError: so it is.
        """
        one_of("on_tool_failure", self.on_tool_failure, ON_TOOL_FAILURE)
        one_of("on_branch", self.on_branch, ON_BRANCH)
        if self.on_tool_failure == "ask" and self.runtime.gate.approval_provider is None:
            raise ConfigurationError(
                "on_tool_failure='ask' needs somebody to ask, and the gate has no approval "
                "provider.",
                fix="Give the kit gate=PreFlightGate(approval_provider=GraphApprovals()).",
            )

    @property
    def runtime(self) -> Runtime:
        """What the boundary runs on."""
        return process_runtime() if self.kit is None else self.kit.runtime


class Plan:
    """One run as it was asked for.

    Args:
        asked: how it was asked for.
        given: the run's input, without the answers that are for the gate.
        saga_id: the saga that it begins or goes on with; None is a new one without an id.
        history: what the thread's checkpoints say.
        thread: the thread's id; empty without a checkpointer.
        answers: those that the run was resumed with; None where it cannot wait for any.
        left: effects of other branches that stand beside it, in words.
        nested: it runs inside another boundary.
    """

    def __init__(
        self,
        asked: Asked,
        given: Any,
        *,
        saga_id: str | None = None,
        history: History | None = None,
        thread: str = "",
        answers: GraphAnswers | None = None,
        left: Sequence[str] = (),
        nested: bool = False,
    ) -> None:
        self._kit = asked.kit
        self.given = given
        self._on_tool_failure = asked.on_tool_failure
        self._saga_id = saga_id
        self._history = history or History()
        self._thread = thread
        self._answers = answers
        self._left = left
        self.nested = nested

    @property
    def can_wait(self) -> bool:
        """Whether the run can stop and be gone on with."""
        return bool(self._thread)

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
            stack.enter_context(listening(self._kit))
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
        return bool(self._thread) and threads.stopped_early(
            graph.get_state(threads.latest_of(config))
        )

    async def waits_async(self, graph: Any, config: RunnableConfig | None) -> bool:
        """Say whether the graph stopped before its end."""
        if not self._thread:
            return False
        return threads.stopped_early(await graph.aget_state(threads.latest_of(config)))

    def suspend(self, handle: SagaHandle) -> None:
        """Leave the saga suspended, with the answers that it has.

        Raises:
            SuspendRequested: always.
        """
        awaits = None if self._answers is None else to_keep(self._answers)
        handle.suspend(f"the graph waits on thread {self._thread!r}", awaits=awaits)

    def note(self) -> None:
        """Say in the run's report which effects of other branches stand beside it."""
        report = last_reports.get()
        if report is not None:
            report.notes += [f"beside this branch stands {name}" for name in self._left]

    def check_repeated(self, handle: SagaHandle) -> None:
        """See that nothing was passed over that a lost attempt did.

        Raises:
            ReplayConflict: something was.
        """
        if not self.nested:
            saga = _engines_saga(handle)
            attempts_of(saga).check_repeated(saga)


def nested_plan(given: Any, asked: Asked) -> Plan | None:
    """Return the plan of a run inside a boundary; None where there is none.

    Raises:
        ConfigurationError: it was given a key, which only a saga of its own can have.
    """
    asked.check()
    if current_scope.get() is None:
        return None
    if asked.key is not None:
        raise ConfigurationError(
            "A run inside another boundary was given a key; it is a part of that saga."
        )
    return Plan(asked, given, nested=True)


def planned(graph: Any, given: Any, config: RunnableConfig | None, asked: Asked) -> Plan:
    """Return the plan of a run that no boundary is round; blocks.

    Raises:
        ConfigurationError: the run cannot be a boundary as it was asked for.
        BranchRefused: it would leave effects behind that came after where it begins.
        SagaClosed: the thread's saga has ended.
    """
    if not _can_wait(graph):
        return Plan(asked, given, saga_id=asked.key)
    name = threads.thread_of(config or {})
    snapshots = graph.get_state_history(threads.latest_of(config))
    return _on_thread(Thread(name, snapshots, threads.checkpoint_of(config)), given, asked)


async def planned_async(
    graph: Any, given: Any, config: RunnableConfig | None, asked: Asked
) -> Plan:
    """Return the plan of a run that no boundary is round, without blocking the event loop.

    Raises:
        ConfigurationError: the run cannot be a boundary as it was asked for.
        BranchRefused: it would leave effects behind that came after where it begins.
        SagaClosed: the thread's saga has ended.
    """
    if not _can_wait(graph):
        return Plan(asked, given, saga_id=asked.key)
    name = threads.thread_of(config or {})
    snapshots = [s async for s in graph.aget_state_history(threads.latest_of(config))]
    thread = Thread(name, snapshots, threads.checkpoint_of(config))
    return await asyncio.to_thread(_on_thread, thread, given, asked)


def _on_thread(thread: Thread, given: Any, asked: Asked) -> Plan:
    if asked.durability == "exit":
        _say_exit()
    log = Recorded(asked.runtime)
    resuming = threads.goes_on(given)
    saga = asked.key or _saga_on(thread, log, resuming=resuming)
    lineage = Lineage(thread.snapshots, thread.line)
    left = travel.check_begin(thread, lineage, log, on_branch=asked.on_branch, named=asked.key)
    answers = GraphAnswers(log.awaits(saga))
    return Plan(
        asked,
        taken(given, thread.interrupts, answers),
        saga_id=saga,
        history=thread.history(lineage.done, resuming=resuming),
        thread=thread.id,
        answers=answers,
        left=left,
    )


@functools.cache
def _say_exit() -> None:
    log.warning(
        "durability='exit' stores nothing before a run ends: after a crash the graph begins anew, "
        "and a model may then take another way, so that all is undone. durability='sync' keeps "
        "each checkpoint before the next effect. (Said once.)"
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


def _engines_saga(handle: SagaHandle) -> Any:
    return handle._scope.saga  # noqa: SLF001 - the engine's own object, of the same project

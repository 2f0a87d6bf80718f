"""What a run is: which saga it belongs to, and how its boundary behaves.

Rules of this part:

- A run inside another boundary is a savepoint of it. If it is one on a thread, its checkpoints name
  the saga that it is a part of; and it cannot wait, since that saga does not wait with it.
- A run that stops at an interrupt and has no thread cannot be gone on with: it fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

from agent_saga.controls.waiting import answering
from agent_saga.engine.boundary import last_reports
from agent_saga.engine.handle import SagaHandle, SagaScope
from agent_saga.engine.tool import one_of
from agent_saga.errors import ConfigurationError, NotSuspendable
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.naming import naming
from agent_saga.kit.scopes import saga_scope
from agent_saga.runtime.composition import Runtime, process_runtime
from agent_saga_langgraph import threads
from agent_saga_langgraph.asking import GraphAnswers, to_keep
from agent_saga_langgraph.attempts import attempts_of
from agent_saga_langgraph.called import stand_in
from agent_saga_langgraph.effects import blind, calling, failing
from agent_saga_langgraph.met import Notes
from agent_saga_langgraph.place import here
from agent_saga_langgraph.threads import INSIDE, LABEL, LOG, SAGA
from agent_saga_langgraph.unseen import listening
from agent_saga_langgraph.wishes import History
from agent_saga_langgraph.witness import Turn, Witness, seen_by, turns, watched

ON_TOOL_FAILURE = ("continue", "rollback", "ask")
ON_BRANCH = ("refuse", "keep")
ATTEMPTS = "attempts"


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


def durability_of(options: Mapping[str, Any]) -> str | None:
    """Return the durability that a run's options ask for, also by its older name."""
    if options.get("checkpoint_during") is False:
        return "exit"
    return options.get("durability")


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
        inside: the id of the saga of that boundary, if the run has a thread of its own.
        graph: what tells the graph from others; recorded with the saga.
        log: what tells the log from others; noted in the run's checkpoints.
        notes: where is kept what the run meets again; None where nobody goes on after a crash.
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
        inside: str = "",
        graph: str = "",
        log: str = "",
        notes: Notes | None = None,
    ) -> None:
        self._kit = asked.kit
        self._notes = notes
        self._log = log
        self._inside = inside
        self._graph = graph
        self.given = given
        self._on_tool_failure = asked.on_tool_failure
        self._stores_one = asked.durability == "exit"
        self._stopped_at = ""
        self._saga_id = saga_id
        self._history = history or History()
        self._thread = thread
        self._answers = answers
        self._left = left
        self._not_repeated: list[str] = []
        self._passed_over: list[str] = []
        self._witness: Witness | None = None
        self._round: tuple[Turn, ...] = ()
        self._stops = 0
        self.nested = nested

    @property
    def can_wait(self) -> bool:
        """Whether the run can stop and be gone on with."""
        return bool(self._thread) and not self.nested

    @property
    def on_thread(self) -> bool:
        """Whether the graph can be gone on with, by whomever."""
        return bool(self._thread)

    def scope(self) -> SagaScope:
        """Return the boundary."""
        open_scope = saga_scope if self._kit is None else self._kit.transaction
        if self._inside:
            return open_scope(name=threads.scope_of(self._thread))
        return open_scope(
            name="langgraph" if self._kit is None else "",
            labels={LABEL: {"thread": self._thread, "graph": self._graph}} if self._graph else None,
            on_unsettled="warn",
            saga_id=self._saga_id,
            resume=self._saga_id is not None,
            suspendable=self.can_wait,
            on_crash="hold" if self.can_wait else None,
        )

    @contextlib.contextmanager
    def entered(self, handle: SagaHandle) -> Iterator[None]:
        """Let the steps of this run know what they must; entered inside the boundary."""
        saga = _engines_saga(handle)
        if not self.nested:
            attempts_of(saga, self._history, self._notes)
        stand_in()
        with contextlib.ExitStack() as stack:
            stack.enter_context(naming(saga, _naming(saga)))
            if not (self.nested and here() is not None):
                stack.enter_context(blind(not self._thread))
            self._witness = stack.enter_context(watched())
            self._round, self._stops = turns.get(), len(self._witness.stops)
            stack.enter_context(failing(self._on_tool_failure))
            stack.enter_context(listening(self._kit))
            if self._answers is not None:
                stack.enter_context(answering(self._answers))
            yield

    def configured(self, config: RunnableConfig | None) -> RunnableConfig:
        """Return the run's configuration; its checkpoints will name the saga.

        A graph tells of its stops those handlers only that it is given.
        """
        given = seen_by(self._witness, config)
        if not self._thread:
            return given
        owner = {INSIDE: self._inside} if self._inside else {SAGA: self._saga_id}
        metadata = {**(given.get("metadata") or {}), **owner, LOG: self._log}
        return {**given, "metadata": metadata}

    def waits(self, graph: Any, config: RunnableConfig | None) -> bool:
        """Say whether the graph stopped before its end."""
        return bool(self._thread) and self._stopped(graph.get_state(threads.latest_of(config)))

    async def waits_async(self, graph: Any, config: RunnableConfig | None) -> bool:
        """Say whether the graph stopped before its end."""
        if not self._thread:
            return False
        return self._stopped(await graph.aget_state(threads.latest_of(config)))

    def _stopped(self, snapshot: StateSnapshot) -> bool:
        if self._stores_one:
            self._stopped_at = threads.checkpoint_of(snapshot.config)
        return threads.stopped_early(snapshot)

    def check_stopped(self, handle: SagaHandle) -> None:
        """See that no graph stopped at an interrupt with which the saga does not wait.

        Raises:
            NotSuspendable: the run has no thread, and stopped; or a graph stopped that the run
                called on a thread of its own, in the midst of work that it will do again.
        """
        witness = self._witness
        if witness is None:
            return
        if not self._thread and self._round in [at for _, at in witness.stops[self._stops :]]:
            raise NotSuspendable(
                "The graph stopped at an interrupt, and has no checkpointer that is known here: "
                "nothing can go on with it; what the run did is undone.",
                fix="Compile the graph with a checkpointer, name a thread_id, and give saga_run "
                "the compiled graph itself.",
            )
        saga = _engines_saga(handle)
        left = attempts_of(saga).left_waiting(saga, witness) if witness.stops else []
        if left:
            raise NotSuspendable(
                f"A graph that was called inside the run waits, and called {', '.join(left)} in "
                "work that it would do again when it is gone on with, in another saga; what the "
                "run did is undone.",
                fix="Make that graph a node of the outer one, which then waits with it; or let it "
                "interrupt in a node of its own, behind its effects.",
            )

    def suspend(self, handle: SagaHandle) -> None:
        """Leave the saga suspended, with the answers that it has.

        Raises:
            SuspendRequested: always, but:
            NotSuspendable: the saga is that of a boundary round it, which does not wait.
        """
        if self._inside:
            raise NotSuspendable(
                f"The graph waits on thread {self._thread!r}, inside another boundary, which would "
                "be committed meanwhile; what the run did is undone.",
                fix="Let the run be the boundary: call saga_run(graph, …) or the saga_agent where "
                "no other boundary is open, and make what belongs to it a node or a tool of the "
                "graph.",
            )
        awaits = None
        if self._answers is not None:
            saga = _engines_saga(handle)
            kept = attempts_of(saga).to_keep(saga, self._stopped_at)
            awaits = {**to_keep(self._answers), ATTEMPTS: kept}
        handle.suspend(f"the graph waits on thread {self._thread!r}", awaits=awaits)

    def note(self) -> None:
        """Say in the run's report which effects of other branches stand beside it."""
        report = last_reports.get()
        if report is not None:
            report.notes += [f"beside this branch stands {name}" for name in self._left]
            report.notes += [
                f"the last attempt at a node did not repeat what an earlier one did: {name} stands"
                for name in self._not_repeated
            ]
            report.notes += [
                f"something failed inside the run and was passed over; what it did stands: {name}"
                for name in self._passed_over
            ]

    def look_back(self, handle: SagaHandle) -> None:
        """Take in what attempts at nodes did that the last of them did not repeat."""
        if not self.nested and self._witness is not None:
            saga = _engines_saga(handle)
            attempts = attempts_of(saga)
            self._not_repeated = attempts.not_repeated(saga, self._witness)
            self._passed_over = attempts.passed_over(saga, self._witness)

    def check_repeated(self, handle: SagaHandle) -> None:
        """See that nothing was passed over that a lost attempt did.

        Raises:
            ReplayConflict: something was.
        """
        if not self.nested:
            saga = _engines_saga(handle)
            attempts_of(saga).check_repeated(saga)


def _naming(saga: Any) -> Callable[[Any, bytes], str | None]:
    """Return what names the calls of a node that are none of LangChain's tools."""

    def name(tool: Any, mac: bytes) -> str | None:
        if tool.reversible:
            return None
        attempts = attempts_of(saga)
        key = attempts.asked(saga, tool, calling.get(), mac)[0]
        attempts.save()  # that it was met again, before its result is given
        return key

    return name


def _engines_saga(handle: SagaHandle) -> Any:
    return handle._scope.saga  # noqa: SLF001 - the engine's own object, of the same project

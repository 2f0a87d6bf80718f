"""What a run is: which saga it belongs to, and how its boundary behaves.

Rules of this part:

- A run with a key can be gone on with: after a crash, or when it waits for a human. So can a flow
  that keeps its state or asks humans, under its own id. Both need a log in files, and refuse an
  effect whose inverse has no name.
- Any other run is a saga of its own, which is committed or undone when it ends.
- A saga that was undone is not gone on with: a flow's state tells of effects that the world no
  longer has. A flow whose saga was committed begins a new one when it is run again with its id.
- A run inside another boundary is a savepoint of it, and needs none of this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from agent_saga.controls.waiting import answering
from agent_saga.domain.lifecycle import SagaState
from agent_saga.engine.boundary import current_scope
from agent_saga.engine.handle import SagaHandle, SagaScope
from agent_saga.errors import ConfigurationError, SagaClosed
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.boundaries import boundary, runtime_of, saga_of
from agent_saga.kit.frameworks.declarations import Declarations
from agent_saga.kit.frameworks.failures import check_policy
from agent_saga.kit.frameworks.naming import naming
from agent_saga.kit.frameworks.recorded import RecordedSaga, lasts
from agent_saga.runtime.composition import Runtime
from agent_saga_crewai.asking import RunAnswers
from agent_saga_crewai.attempts import attempts_of, began_again
from agent_saga_crewai.effects import effects_of
from agent_saga_crewai.gate import Gate
from agent_saga_crewai.runs import Run, current_run, entered, in_a_body
from agent_saga_crewai.works import Work, tools_of

_GOES_ON = frozenset({None, SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED})


class Asked(NamedTuple):
    """How a run was asked for.

    Attributes:
        kit: whose boundary it is, or None.
        key: the saga's id, if its caller names it.
        on_tool_failure: "continue", "rollback" or "ask".
        resume: the answer that it is gone on with, or None.
        declared: declarations of tools that are met only while it runs.
    """

    kit: AgentKit | None = None
    key: str | None = None
    on_tool_failure: str = "continue"
    resume: object = None
    declared: Declarations = MappingProxyType({})

    def check(self) -> None:
        """Refuse what does not exist, or needs somebody to ask where there is nobody.

        Raises:
            ConfigurationError: so it is.
        """
        check_policy(self.kit, self.on_tool_failure, "CrewApprovals()")

    @property
    def runtime(self) -> Runtime:
        """What the boundary runs on."""
        return runtime_of(self.kit)


class Plan:
    """One run as it was asked for.

    Args:
        asked: how it was asked for.
        work: what runs.
        saga_id: the saga that it begins or goes on with; None is a new one without an id.
        answers: those that the run has; None where it cannot wait for any.
        again: the keys of recorded steps that it will come to again; None for all of them.
        nested: it runs inside another boundary.
    """

    def __init__(
        self,
        asked: Asked,
        work: Work,
        *,
        saga_id: str | None = None,
        answers: RunAnswers | None = None,
        again: list[str] | None = None,
        nested: bool = False,
    ) -> None:
        self.work = work
        self.nested = nested
        self.saga_id = saga_id
        self._asked = asked
        self._answers = answers
        self._again = again

    def scope(self) -> SagaScope:
        """Return the boundary."""
        can_wait = self.saga_id is not None
        return boundary(
            self._asked.kit,
            "crewai",
            saga_id=self.saga_id,
            holds=can_wait,
            suspendable=can_wait,
        )

    @contextlib.contextmanager
    def entered(self, handle: SagaHandle) -> Iterator[Run]:
        """Let the steps of this run know what they must; entered inside the boundary."""
        scope = handle._scope  # noqa: SLF001 - the engine's own object, of the same project
        if not self.nested and self.saga_id is not None:
            began_again(scope.saga, self._again)
        run = Run(
            scope,
            kit=self._asked.kit,
            on_tool_failure=self._asked.on_tool_failure,
            declared=self._asked.declared,
            records=bool(scope.saga.key),
        )
        run.effects = {id(one) for tool in tools_of(self.work.agent) for one in effects_of(tool)}
        with contextlib.ExitStack() as stack:
            stack.enter_context(naming(scope.saga, _naming(scope.saga)))
            stack.enter_context(entered(run))
            stack.enter_context(Gate(run).closed())
            if self._answers is not None:
                stack.enter_context(answering(self._answers))
            yield run

    def suspend(self, handle: SagaHandle, question: Mapping[str, Any]) -> None:
        """Leave the saga suspended, with the answers that it has.

        Raises:
            SuspendRequested: always.
        """
        saga = saga_of(handle)
        answers = self._answers or RunAnswers()
        awaits = {**answers.to_keep(question), "left": attempts_of(saga).left(saga)}
        what = question.get("reason") or question.get("text") or question.get("message")
        handle.suspend(f"a human was asked: {what}", awaits=awaits)

    def check_repeated(self, handle: SagaHandle) -> None:
        """See that nothing was passed over that an earlier part of the run did.

        Raises:
            ReplayConflict: something was.
        """
        saga = handle._scope.saga  # noqa: SLF001 - the engine's own object, of the same project
        if self.nested or self.saga_id is None or saga.read_only:
            return
        attempts_of(saga).check_repeated(saga, everywhere=not self.work.is_flow)


def _naming(saga: Any) -> Callable[[Any, bytes], str | None]:
    """Return what names the calls in a tool's body that are none of this package's tools."""

    def name(tool: Any, mac: bytes) -> str | None:
        run = current_run()
        if run is None or tool.reversible or not in_a_body():
            return None
        place, execution = run.place(None, None, None), run.execution(None, None)
        return attempts_of(saga).key(saga, tool, place, execution, mac)

    return name


def planned(work: Work, asked: Asked) -> Plan:
    """Return the plan of a run; blocks, since it reads the log.

    Raises:
        ConfigurationError: the run cannot be a boundary as it was asked for.
        SagaClosed: its saga was undone.
        UndeclaredTool: nothing says what some of its tools do.
    """
    asked.check()
    work.prepare(asked.declared, asked.kit)
    if current_scope.get() is not None:
        return _nested(work, asked)
    if work.streams:
        raise ConfigurationError(
            "The run streams: it would return before it has run.",
            fix="Run it with saga_stream(…) or saga_stream_sync(…), or set stream=False.",
        )
    saga_id = _saga_id(work, asked)
    if saga_id is None:
        if asked.resume is not None:
            raise ConfigurationError(
                "The run was resumed with an answer, and nothing says which run it is.",
                fix="Give the key that it was begun with.",
            )
        return Plan(asked, work)
    log = RecordedSaga.of_key(asked.runtime, saga_id)
    kept = log.awaits if log.state is SagaState.SUSPENDED or work.goes_on else None
    if work.goes_on and log.state is not None:
        _check_feedback(work, saga_id, log.state, kept)
    _check_goes_on(saga_id, log.state)
    answers = RunAnswers(kept)
    if asked.resume is not None and not work.goes_on:
        answers.take(asked.resume)
    again = kept.get("left") if work.goes_on and isinstance(kept, Mapping) else None
    return Plan(asked, work, saga_id=saga_id, answers=answers, again=again)


def _check_feedback(work: Work, saga_id: str, state: SagaState, kept: object) -> None:
    """Refuse feedback that was given already: a flow that was loaded before would go on again.

    Raises:
        SagaClosed: so it was.
    """
    question = kept.get("question") if isinstance(kept, Mapping) else None
    waits = isinstance(question, Mapping) and question.get("asked") == work.answers
    if state not in _GOES_ON or not waits:
        raise SagaClosed(
            f"The flow of the saga {saga_id!r} ({state.value}) does not wait for this feedback: it "
            "was given already.",
            rule="ended",
            reason="feedback is given once",
            fix="Load the flow again with from_pending(…), if it waits.",
        )


def _nested(work: Work, asked: Asked) -> Plan:
    if asked.key is not None or asked.resume is not None:
        raise ConfigurationError(
            "A run inside another boundary was given a key or an answer; it is a part of that saga."
        )
    return Plan(asked, work, nested=True)


def _saga_id(work: Work, asked: Asked) -> str | None:
    """Return the id of the saga that a run begins or goes on with; None is one without an id."""
    if asked.key is not None:
        return asked.key
    own = work.own_id
    if not own or not lasts(asked.runtime):
        return None
    number = 1
    while RecordedSaga.of_key(asked.runtime, _numbered(own, number)).state is SagaState.COMMITTED:
        number += 1
    last = _numbered(own, max(number - 1, 1))
    fresh = RecordedSaga.of_key(asked.runtime, _numbered(own, number)).state is None
    return last if work.goes_on and fresh else _numbered(own, number)


def _numbered(flow: str, number: int) -> str:
    return f"crewai:{flow}" if number == 1 else f"crewai:{flow}:{number}"


def _check_goes_on(saga_id: str, state: SagaState | None) -> None:
    """Refuse to go on in a saga that was undone, or could not be undone.

    Raises:
        SagaClosed: so it was.
    """
    if state in (*_GOES_ON, SagaState.COMMITTED):
        return
    raise SagaClosed(
        f"The saga {saga_id!r} is {state.value if state is not None else 'gone'}; it cannot be "
        "gone on with, and what its run remembers may no longer be true of the world.",
        rule="ended",
        reason="a run cannot go on in a saga that has ended",
        fix="Begin anew under another key; a flow, with another id.",
    )

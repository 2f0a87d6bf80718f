"""What a run is: which saga it belongs to, and how its boundary behaves.

Rules of this part:

- A run without a key is a saga of its own, and if its process dies it is undone.
- A run with a key is that saga, begun or gone on with; a crash holds it for a while, so that its
  program can go on with it.
- A run can wait for a human if the gate's approval provider asks in that way. Then every inverse in
  it must have a name.
- A run that waited is gone on with by its state, once: a state is refused when its saga has gone
  further, or has ended. What a tool failure means to it is what it meant before, unless its caller
  says otherwise.
- A run inside another boundary is a savepoint of that one, has no key, and cannot wait.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agent_saga.controls.waiting import WaitingApprovals, answering
from agent_saga.domain.identity import new_saga_id
from agent_saga.domain.lifecycle import SagaState
from agent_saga.engine.boundary import current_scope
from agent_saga.engine.handle import SagaHandle, SagaScope
from agent_saga.errors import ConfigurationError, SagaClosed
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.boundaries import boundary, runtime_of, saga_of
from agent_saga.kit.frameworks.failures import check_policy
from agent_saga.kit.frameworks.recorded import Recorded
from agent_saga_autogen.asking import RunAnswers, Waiting
from agent_saga_autogen.attempts import attempts_of, standing
from agent_saga_autogen.calls import Run, entered, running
from agent_saga_autogen.states import State, check_digest, digest, read
from agent_saga_autogen.waiting import Turn

_KEPT = ("on_tool_failure",)
"""What a run under a key knows of the waits before it; its models are asked from the beginning."""
_GOES_ON = (SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED)


class Asked(NamedTuple):
    """How a run was asked for.

    Attributes:
        kit: whose boundary it is, or None.
        key: the saga's id, if its caller names it.
        on_tool_failure: "continue", "rollback" or "ask"; None if its caller does not say.
        state: what a run that waited is gone on with, or None.
        resume: the answer that it is gone on with, or None.
        default: what counts if its caller does not say what a tool failure means.
    """

    kit: AgentKit | None
    key: str | None
    on_tool_failure: str | None
    state: object = None
    resume: object = None
    default: str = "continue"

    def policy(self, kept: Mapping[str, Any] | None = None) -> str:
        """Return what a tool failure means: also to a run that waited, what it meant before.

        Raises:
            ConfigurationError: it means nothing, or there is nobody to ask.
        """
        known = (kept or {}).get("on_tool_failure")
        found = self.on_tool_failure or (known if isinstance(known, str) else self.default)
        check_policy(self.kit, found, "AutoGenApprovals()")
        return found


class Plan:
    """One run as it was asked for.

    Args:
        asked: how it was asked for.
        saga_id: the saga that it begins or goes on with; None is a new one without an id.
        answers: those that it has; None where it cannot wait for any.
        kept: what its saga kept when it was suspended.
        state: what it is gone on with.
        nested: it runs inside another boundary.

    Attributes:
        run: the run, as its tools see it.
        state: what it is gone on with, or None.

    Raises:
        ConfigurationError: what a tool failure is to mean does not exist, or nobody can be asked.
    """

    def __init__(
        self,
        asked: Asked,
        *,
        saga_id: str | None = None,
        answers: RunAnswers | None = None,
        kept: Mapping[str, Any] | None = None,
        state: State | None = None,
        nested: bool = False,
    ) -> None:
        known = kept or {}
        self.nested = nested
        outer = running.get() if nested else None
        self.run = Run(asked.policy(kept), outer, known.get("counts") or ())
        self.state = state
        self._asked = asked
        self._saga_id = saga_id
        self._answers = answers
        self._steps = frozenset(map(str, known.get("steps") or ()))

    @property
    def turns(self) -> dict[str, Turn]:
        """What was set aside when it waited, by the agents' names."""
        return {} if self.state is None else self.state.turns

    @property
    def waits(self) -> bool:
        """Whether the run can wait for a human."""
        return self._answers is not None

    def scope(self) -> SagaScope:
        """Return the boundary."""
        return boundary(
            self._asked.kit,
            "autogen",
            saga_id=self._saga_id,
            holds=self._asked.key is not None,
            suspendable=self.waits,
        )

    @contextlib.contextmanager
    def entered(self, handle: SagaHandle) -> Iterator[None]:
        """Let the steps of this run know what they must; entered inside the boundary."""
        if not self.nested:
            attempts_of(saga_of(handle), anew=True, kept=self._steps)
        elif running.get() is None:
            self.run.path = attempts_of(saga_of(handle)).runs.begin(self.run.path)
        with contextlib.ExitStack() as stack:
            if self._answers is not None:
                stack.enter_context(answering(self._answers))
            stack.enter_context(entered(self.run))
            yield

    def check_repeated(self, handle: SagaHandle) -> None:
        """See that nothing was passed over that a lost attempt did.

        Raises:
            ReplayConflict: something was.
        """
        if not self.nested:
            saga = saga_of(handle)
            attempts_of(saga).check_repeated(saga)

    def waiting(self, agent: Mapping[str, Any]) -> Waiting:
        """Return what a run that waits returns.

        Args:
            agent: what the agent remembers.
        """
        asked = [q for of_agent in self.run.waiting.values() for q in of_agent.values()]
        questions = {str(question["id"]): question for question in asked}
        turns = {name: turn.plain() for name, turn in self.run.aside.items()}
        state = {"saga": self._saga_id, "mark": new_saga_id(), "turns": turns, "agent": agent}
        return Waiting(tuple(questions.values()), state)

    def suspend(self, handle: SagaHandle, waiting: Waiting) -> None:
        """Leave the saga suspended, with what whoever resumes it needs.

        Raises:
            SuspendRequested: always.
        """
        saga = saga_of(handle)
        open_ = {((name,), call) for name, calls in self.run.waiting.items() for call in calls}
        awaits = {
            **(self._answers or RunAnswers()).to_keep(waiting.questions),
            "mark": waiting.state["mark"],
            "digest": digest(waiting.state),
            "on_tool_failure": self.run.on_tool_failure,
            "counts": self.run.counts.kept(open_),
            "steps": standing(saga),
        }
        about = [str(one.get("reason") or one.get("text")) for one in waiting.questions]
        handle.suspend(f"a human was asked: {'; '.join(about)}", awaits=awaits)


def planned(asked: Asked) -> Plan:
    """Return the plan of a run; blocks, since it reads the log.

    Raises:
        ConfigurationError: the run cannot be a boundary as it was asked for.
        SagaClosed: the saga of the state has ended, or has gone further.
    """
    asked.policy()
    if current_scope.get() is not None:
        if (asked.key, asked.state, asked.resume) != (None, None, None):
            raise ConfigurationError(
                "A run inside another boundary was given a key, a state or an answer; it is a part "
                "of that saga."
            )
        return Plan(asked, nested=True)
    asks = isinstance(runtime_of(asked.kit).gate.approval_provider, WaitingApprovals)
    if asked.state is not None:
        return _gone_on_with(asked, read(asked.state), asks=asks)
    if asked.resume is not None:
        raise ConfigurationError(
            "The run was given an answer, and nothing says which run it is.",
            fix="Give saga_run the state of what waits, too.",
        )
    if not asks:
        return Plan(asked, saga_id=asked.key)
    awaits = None if asked.key is None else Recorded(runtime_of(asked.kit)).awaits(asked.key)
    saga = asked.key or f"autogen:{new_saga_id()}"
    known = {k: v for k, v in awaits.items() if k in _KEPT} if isinstance(awaits, Mapping) else None
    return Plan(asked, saga_id=saga, answers=RunAnswers(awaits), kept=known)


def _gone_on_with(asked: Asked, state: State, *, asks: bool) -> Plan:
    saga, log = state.saga, Recorded(runtime_of(asked.kit))
    if not asks:
        raise ConfigurationError(
            "The run waited for a human, and the gate asks in another way now.",
            fix="Give the kit gate=PreFlightGate(approval_provider=AutoGenApprovals()).",
        )
    if asked.key not in (None, saga):
        raise ConfigurationError(f"The state is of the saga {saga!r}, and not of {asked.key!r}.")
    kept, where = log.awaits(saga), log.state(saga)
    if not isinstance(kept, Mapping) or kept.get("mark") != state.mark:
        raise _ended(log, saga, "does not wait for what the state waits for: it has gone further")
    if where not in _GOES_ON:
        raise _ended(log, saga, f"is {where.value if where else 'gone'}")
    check_digest(state, kept)
    answers = RunAnswers(kept)
    if asked.resume is not None:
        answers.take(asked.resume)
    return Plan(asked, saga_id=saga, answers=answers, kept=kept, state=state)


def _ended(log: Recorded, saga: str, how: str) -> SagaClosed:
    return SagaClosed(
        f"The saga {saga!r} {how}.",
        rule="ended",
        reason="a state is gone on with once",
        fix=f"Begin a new run. What waits is told by: {log.command('list')}",
    )

"""What a run is: which saga it belongs to, and how its boundary behaves.

Rules of this part:

- A run without a key is a saga of its own, and if its process dies it is undone.
- A run with a key is that saga, begun or gone on with; a crash holds it for a while, so that its
  program can go on with it.
- A run of a `RunState` is the saga that waits for what the state waits for. A state is gone on with
  once: while the saga has gone further, or has ended, the state is refused, or its recorded results
  are all that it gets.
- A run inside another boundary is a savepoint and needs none of this.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agents import RunState

from agent_saga.controls.waiting import WaitingApprovals, answering
from agent_saga.domain.identity import new_saga_id
from agent_saga.domain.lifecycle import SagaState
from agent_saga.engine.boundary import current_scope
from agent_saga.engine.handle import SagaHandle, SagaScope
from agent_saga.errors import ConfigurationError, SagaClosed
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.boundaries import boundary, runtime_of, saga_of
from agent_saga.kit.frameworks.recorded import Recorded
from agent_saga_openai_agents.asking import Answer, RunAnswers, noted, waiting_for
from agent_saga_openai_agents.attempts import attempts_of, standing
from agent_saga_openai_agents.calls import Call, Run, answered, calling, running

_GOES_ON = (SagaState.RUNNING, SagaState.SUSPENDED, SagaState.RELEASED)


class Asked(NamedTuple):
    """How a run was asked for.

    Attributes:
        kit: whose boundary it is, or None.
        key: the saga's id, if its caller names it.
        on_tool_failure: "continue", "rollback" or "ask".
        session: the framework's session that the run goes on in, or None.
        may_wait: tools of the agent may ask for an approval.
    """

    kit: AgentKit | None
    key: str | None
    on_tool_failure: str
    session: Any
    may_wait: bool

    @property
    def waits(self) -> bool:
        """Whether the run can be suspended and gone on with."""
        return self.asks or self.may_wait

    @property
    def asks(self) -> bool:
        """Whether the gate asks by suspending the run."""
        return isinstance(runtime_of(self.kit).gate.approval_provider, WaitingApprovals)


class Plan:
    """One run as it was asked for.

    Args:
        asked: how it was asked for.
        given: the run's input for the framework.
        saga_id: the saga that it begins or goes on with; None is a new one without an id.
        known: how often each call id was answered before the run began.
        answers: those that the run was resumed with; None where it cannot wait for any.
        nested: it runs inside another boundary.
        told: the call ids that are answered in the history of a run inside another boundary, where
            that is gone on with.

    Attributes:
        inside: it runs inside another run.
    """

    def __init__(
        self,
        asked: Asked,
        given: Any,
        *,
        saga_id: str | None = None,
        known: Counter[str] | None = None,
        answers: RunAnswers | None = None,
        nested: bool = False,
        told: Counter[str] | None = None,
    ) -> None:
        self.given = given
        self.nested = nested
        self.asked = asked
        self.run = Run(asked.on_tool_failure, known)
        self.run.waits = answers is not None
        self.run.asks = self.run.waits and asked.asks
        self.run.questions.update({} if answers is None else answers.open)
        self.inside = running.get() is not None
        self._saga_id = saga_id
        self._known = known or Counter()
        self._told = told
        self._answers = answers

    def scope(self) -> SagaScope:
        """Return the boundary."""
        return boundary(
            self.asked.kit,
            "openai-agents",
            saga_id=self._saga_id,
            holds=self.asked.key is not None and not self.nested,
            suspendable=self._answers is not None,
        )

    @contextlib.contextmanager
    def entered(self, handle: SagaHandle) -> Iterator[None]:
        """Let the steps of this run know what they must; entered inside the boundary."""
        outer, call = (running.get(), calling.get()) if self.nested else (None, None)
        goes_on = isinstance(self.given, RunState) and self._answers is not None
        kept = self._answers.steps if goes_on and self._answers is not None else ()
        attempts = attempts_of(saga_of(handle), self._known, kept, anew=not self.nested)
        if self._told is not None:
            attempts.know(self._told)
        if self.nested:
            outside = () if call is None else call.inside
            call = Call.around(attempts.runs.begin(outside), call)
        token, around = running.set(self._run_in(outer)), calling.set(call)
        try:
            with contextlib.ExitStack() as stack:
                if self._answers is not None:
                    stack.enter_context(answering(self._answers))
                yield
        finally:
            calling.reset(around)
            running.reset(token)

    def _run_in(self, outer: Run | None) -> Run:
        """Return what the tools of this run see as their run, inside another one.

        It is the outer one, whose policy holds for all that it leads to; but where only this run is
        to be undone by a tool's failure, it is this one.
        """
        if outer is None:
            return self.run
        if self.run.on_tool_failure != "rollback" or outer.on_tool_failure == "rollback":
            return outer
        self.run.waits, self.run.asks = outer.waits, outer.asks
        self.run.questions = outer.questions
        self.run.before_turn = outer.before_turn
        return self.run

    def denied(self) -> Answer | None:
        """Return a human's no to going on after a tool's failure."""
        return None if self._answers is None else self._answers.denied

    def suspend(self, handle: SagaHandle, reason: str, items: list[Any]) -> None:
        """Leave the saga suspended, with what whoever resumes it needs.

        Raises:
            SuspendRequested: always.
        """
        answers = {} if self._answers is None else self._answers.plain
        questions = {k: q for k, q in self.run.questions.items() if k not in answers}
        awaits = {
            "saga": self._saga_id,
            "calls": waiting_for(items),
            "questions": questions,
            "answers": answers,
            "steps": standing(saga_of(handle)),
        }
        handle.suspend(reason, awaits=awaits)

    def check_repeated(self, handle: SagaHandle, history: Counter[str]) -> None:
        """See that nothing was passed over that a lost attempt did.

        Raises:
            ReplayConflict: something was.
        """
        if not self.nested:
            saga = saga_of(handle)
            attempts_of(saga).check_repeated(saga, history + self._known)


async def planned(given: Any, asked: Asked) -> Plan:
    """Return the plan of a run.

    Raises:
        ConfigurationError: the run cannot be a boundary as it was asked for.
        SagaClosed: the saga of the state has ended, or has gone further.
    """
    scope = current_scope.get()
    if scope is not None:
        is_again = scope.saga.replay is not None
        return _nested(given, asked, await _history(given, asked.session) if is_again else None)
    known = await _history(given, asked.session)
    if isinstance(given, RunState):
        return await asyncio.to_thread(_of_state, given, asked, known)
    if isinstance(given, Answer):
        return await asyncio.to_thread(_of_answer, given, asked, known)
    needs_session = asked.on_tool_failure == "ask" and asked.waits
    if needs_session and (asked.session is None or asked.key is None):
        raise ConfigurationError(
            "A run that asks about a tool's failure by waiting is gone on with from its session.",
            fix="Give saga_run session=… and key=…; or let the gate ask in another way.",
        )
    saga = asked.key or (f"openai-agents:{new_saga_id()}" if asked.waits else None)
    answers = None
    if asked.waits:
        log = Recorded(runtime_of(asked.kit))
        awaits = await asyncio.to_thread(log.awaits, asked.key) if asked.key else None
        answers = RunAnswers(awaits)
    return Plan(asked, given, saga_id=saga, known=known, answers=answers)


def _nested(given: Any, asked: Asked, told: Counter[str] | None) -> Plan:
    if asked.key is not None:
        raise ConfigurationError(
            "A run inside another boundary was given a key; it is a part of that saga."
        )
    if isinstance(given, (Answer, RunState)):
        raise ConfigurationError(
            "A run that waited is gone on with by the outermost run, not inside a boundary."
        )
    return Plan(asked, given, nested=True, told=told)


async def _history(given: Any, session: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    if isinstance(given, RunState):
        found += _answered_in(given)
    elif session is not None:
        found += answered(await session.get_items())
    return found


def _answered_in(state: Any) -> Counter[str]:
    told: Mapping[str, Any] = state.to_json()
    items = [one.get("raw_item") for one in told.get("generated_items") or []]
    original = told.get("original_input")
    return answered([*items, *(original if isinstance(original, list) else [])])


def _of_state(state: Any, asked: Asked, known: Counter[str]) -> Plan:
    log, calls = Recorded(runtime_of(asked.kit)), waiting_for(state.get_interruptions())
    saga = asked.key or _saga_waiting_for(calls, log)
    awaits = log.awaits(saga)
    _check_state(saga, log.state(saga), calls, awaits)
    answers = RunAnswers(awaits, noted(state))
    return Plan(asked, state, saga_id=saga, known=known, answers=answers)


def _saga_waiting_for(calls: list[str], log: Recorded) -> str:
    waiting = [one for one in log.waiting() if isinstance(one, Mapping)]
    found = [one["saga"] for one in waiting if one.get("calls") == calls and one.get("saga")]
    if len(found) == 1:
        return str(found[0])
    if found:
        raise ConfigurationError(
            "Several sagas wait for calls with the ids that the state waits for.",
            fix="Give saga_run the key of the saga, and give every run a key of its own.",
        )
    raise SagaClosed(
        "No saga waits for what the state waits for.",
        rule="ended",
        reason="it was gone on with already and has ended, or it is a state of another log",
        fix=f"A state is gone on with once. What waits is told by: {log.command('list')}",
    )


def _check_state(saga: str, state: SagaState | None, calls: list[str], awaits: object) -> None:
    """Refuse a state that is not the one that the saga was suspended with."""
    kept = awaits.get("calls") if isinstance(awaits, Mapping) else None
    if kept == calls and (state in _GOES_ON or state is SagaState.COMMITTED):
        return
    if kept == calls and state is not None:
        how = f"is {state.value}; the state tells of effects that the world no longer has"
    else:
        how = "does not wait for what the state waits for: it has gone further, or never waited"
    raise SagaClosed(
        f"The saga {saga!r} {how}.",
        rule="ended",
        reason="a state is gone on with once",
        fix="Begin a new run.",
    )


def _of_answer(answer: Answer, asked: Asked, known: Counter[str]) -> Plan:
    if asked.key is None or asked.session is None:
        raise ConfigurationError(
            "An answer about a tool's failure goes on with a run of a session.",
            fix="Give saga_run the session=… and the key=… of the run that asked.",
        )
    log = Recorded(runtime_of(asked.kit))
    awaits = log.awaits(asked.key)
    state = log.state(asked.key)
    if state is not SagaState.SUSPENDED:
        how = "left no record" if state is None else f"is {state.value}"
        raise SagaClosed(
            f"The saga {asked.key!r} waits for no answer: it {how}.",
            rule="ended",
            reason="an answer is taken once",
        )
    answers = RunAnswers(awaits, {"": answer})
    return Plan(asked, [], saga_id=asked.key, known=known, answers=answers)

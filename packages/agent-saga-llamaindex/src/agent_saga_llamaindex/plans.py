"""What a run is: which saga it belongs to, and how its boundary behaves.

Rules of this part:

- A run without a key is a saga of its own, and if its process dies it is undone.
- A run with a key is that saga, begun or gone on with; a crash holds it for a while, so that its
  program can go on with it.
- A run of a context that waits, or whose process died, is the saga that is noted in the context. A
  context is gone on with once: that is looked at before the saga is taken over, and after it.
- A run inside another boundary is a savepoint of that one. It has no key, and cannot wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

from agent_saga.controls.waiting import WaitingApprovals, answering
from agent_saga.engine.boundary import current_scope
from agent_saga.engine.handle import SagaHandle, SagaScope
from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.boundaries import boundary, runtime_of, saga_of
from agent_saga.kit.frameworks.failures import check_policy
from agent_saga.kit.frameworks.naming import naming
from agent_saga.kit.frameworks.recorded import RecordedSaga, lasts
from agent_saga.runtime.composition import Runtime
from agent_saga_llamaindex.asking import APPROVALS, RunAnswers
from agent_saga_llamaindex.attempts import Attempts, attempts_of, standing
from agent_saga_llamaindex.calls import Execution, Path, Run, entered, executing, running
from agent_saga_llamaindex.contexts import Taken


class Asked(NamedTuple):
    """How a run was asked for.

    Attributes:
        kit: whose boundary it is, or None.
        key: the saga's id, if its caller names it.
        on_tool_failure: "continue", "rollback" or "ask".
    """

    kit: AgentKit | None
    key: str | None
    on_tool_failure: str


class Plan:
    """One run as it was asked for.

    Args:
        asked: how it was asked for.
        found: the context that it goes on with, or None.

    Attributes:
        run: the run, as its tools see it.
        asked: what it asked before its context was taken, as text.
        nested: it runs inside another boundary.

    Raises:
        ConfigurationError: it cannot be a boundary as it was asked for.
    """

    def __init__(self, asked: Asked, found: Taken | None) -> None:
        check_policy(asked.kit, asked.on_tool_failure, APPROVALS)
        self.nested = current_scope.get() is not None
        if self.nested and (asked.key is not None or found is not None):
            what = "a key" if found is None else "a context of a run that waits"
            raise ConfigurationError(
                f"A run inside another boundary was given {what}; it is a part of that saga."
            )
        self.found = found
        self.run = Run(asked.on_tool_failure)
        self.asked: tuple[str, ...] = ()
        self._asked = asked
        self._kept: frozenset[str] = frozenset()
        self._asked_about: list[Any] = []
        self._moved: list[Any] = []
        self._saga_id = asked.key if found is None else found.saga

    @property
    def _runtime(self) -> Runtime:
        return runtime_of(self._asked.kit)

    def _recorded(self) -> RecordedSaga | None:
        if self.found is not None:
            return RecordedSaga(self._runtime, self.found.saga)
        key = self._asked.key
        return None if key is None else RecordedSaga.of_key(self._runtime, key)

    async def look(self) -> None:
        """Read what the log tells of the saga.

        Raises:
            SagaClosed: it is not where the context is.
            ConfigurationError: the context is that of another workflow.
        """
        if self.nested:
            return
        log = await asyncio.to_thread(self._recorded)
        if self.found is not None and log is not None:
            self.found.check(log)
        awaits = {} if log is None else log.awaits
        self._kept = frozenset(map(str, awaits.get("steps") or ()))
        self.asked = tuple(map(str, awaits.get("events") or ()))
        self._moved = list(awaits.get("moved") or ()) if self.found is not None else []
        if self.found is not None and self.found.is_idle and not self.asked:
            raise ConfigurationError(
                "The context has nothing to go on with here: it is that of another workflow.",
                fix="Restore it with the workflow, or the agent, that it was taken from.",
            )
        questions = (awaits.get("questions") or {}).values()
        self._asked_about = [one["step"] for one in questions if one.get("step")]
        if lasts(self._runtime):
            self.run.answers = RunAnswers(awaits)
            self.run.failures.update(awaits.get("failures") or {})

    async def look_again(self, handle: SagaHandle) -> BaseException | None:
        """Say why nothing may run, now that the saga is taken over; None if it may.

        Somebody else may have gone on from the same context between the first look and that.
        """
        if self.found is None:
            return None
        log = await asyncio.to_thread(RecordedSaga, self._runtime, self.found.saga)
        try:
            self.found.check(log)
        except Exception as error:
            if not saga_of(handle).read_only:
                with contextlib.suppress(Exception):
                    handle.suspend(log.reason, awaits=dict(log.awaits))
            return error
        return None

    def scope(self) -> SagaScope:
        """Return the boundary."""
        asks = isinstance(self._runtime.gate.approval_provider, WaitingApprovals)
        return boundary(
            self._asked.kit,
            "llamaindex",
            saga_id=self._saga_id,
            holds=self._saga_id is not None,
            suspendable=self.run.answers is not None and (asks or self.found is not None),
        )

    @contextlib.contextmanager
    def entered(self, handle: SagaHandle) -> Iterator[None]:
        """Let the steps of this run know what they must; entered inside the boundary."""
        saga = saga_of(handle)
        if not self.nested:
            attempts = attempts_of(saga, lambda: Attempts(saga, self._knows, self._blurs))
            for work, at in self._moved:
                self.run.lineage.settle(tuple(work), tuple(at), "")
            for step in self._asked_about:
                attempts.expect(*step)
        else:
            outer = running.get()
            self.run.root = _inside(executing.get(), attempts_of(saga).run(()))
            self.run.counts = self.run.counts if outer is None else outer.counts
        with (
            naming(saga, functools.partial(_name, saga)),
            answering(self.run.answers),
            entered(self.run),
        ):
            yield

    def _knows(self, step: str, place: Path) -> bool:
        return self.found is not None and self.found.knows(self._kept, step, place)

    def _blurs(self, place: Path) -> bool:
        return self.found is not None and self.found.blurs(place)

    def suspend(self, handle: SagaHandle, mark: str, events: list[str]) -> None:
        """Leave the saga suspended, with what whoever resumes it needs.

        Args:
            handle: the saga.
            mark: the one of the context that goes on with it.
            events: what the run asked, as text.

        Raises:
            SuspendRequested: always.
        """
        answers = self.run.answers or RunAnswers()
        what = [str(question["reason"]) for question in answers.open.values()]
        awaits = {
            "mark": mark,
            "questions": dict(answers.open),
            "answers": answers.plain,
            "failures": self.run.failures,
            "steps": standing(saga_of(handle)),
            "events": events,
            "moved": self.run.lineage.moved(),
        }
        handle.suspend(f"the run waits for {'; '.join(what) or 'an event'}", awaits=awaits)

    def end(self, handle: SagaHandle) -> None:
        """See that the run may end well.

        Raises:
            Exception: what stopped it, whoever caught that on the way.
            ReplayConflict: a lost attempt did what this one did not repeat.
        """
        if self.run.stop is not None:
            raise self.run.stop
        if not self.nested:
            saga = saga_of(handle)
            attempts_of(saga).check_repeated(saga)


def _inside(around: Execution | None, number: int) -> Execution:
    """Return the place of a run inside another boundary."""
    if around is not None and around.place:
        return around.run_inside()
    return Execution((f"run {number}",), around)


def _name(saga: Any, tool: Any, mac: bytes) -> str | None:
    """Return the key of a call in a step that is none of this package's tools."""
    run, here = running.get(), executing.get()
    if run is None or here is None or not here.place:
        return None
    return attempts_of(saga).key(saga, tool, run, mac)

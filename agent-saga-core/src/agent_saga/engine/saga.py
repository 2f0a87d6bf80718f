"""One saga in memory: its scopes, its steps, and who may still act on it.

Rules of this part:

- A saga is a tree of scopes: the root boundary, and savepoints inside it. Steps belong to a scope.
- A step is registered before the fence is read, and a scope is fenced before its steps are read: so
  either the unwinder sees the step, or the step sees the fence.
- Nothing here is bound to an event loop or a thread; one lock protects the lists.
- REVERSIBLE steps that ended well and have no inverse are forgotten: nothing will ask for them.
- SAGA_BEGIN is written with the first record: a boundary without steps leaves no trace.
"""

from __future__ import annotations

import itertools
import operator
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import STEP_STANDS, SagaState, StepState, saga_after
from agent_saga.domain.report import RollbackReport, StepLine
from agent_saga.engine.scope import Scope
from agent_saga.errors import SagaClosed, SagaForked, SagaUnwinding
from agent_saga.wal.os_port import FORKS, fork_generation

if TYPE_CHECKING:
    from agent_saga.engine.in_hand import InHand
    from agent_saga.engine.ports import Engine
    from agent_saga.engine.replay import Calls, Replay
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool
    from agent_saga.errors import SuspendRequested

    Names = Callable[[Tool, bytes], str | None]

NAMED_BY: Final[list[Callable[[Saga], Names]]] = []
"""What gives a new saga its `names`: the last one, where a framework's package is loaded."""

NOWHERE: Final = -1
"""No fork generation: where a saga has begun of which nothing is recorded."""


class Saga:
    """One saga.

    Attributes:
        begun_in: the fork generation in which its beginning was recorded: who looks whether that is
            the current one sees in one that it has begun and that this is no forked child.
        abandoned: what becomes of the recorded steps of ways that were left: "undo" or "keep", by
            step; forked_at: after which step the last one was, "" before the first; or None.
        committed: how many calls took effect here, as far as they said so.
        calls_made: how many calls of a tool in a scope the recorded run made, where it says so.
        names: gives a call without a key one, from its tool and its arguments' MAC; None for none.
        undoings: what undoes it, or savepoints of it, now.
        only, undo_to: undoing it is about these steps, those after this one; None for all of them.

    Args:
        engine: the parts that it runs on.
        name: how people call it.
        labels: plain data that is recorded with it.
        is_async: its boundary was entered with `async with`.
    """

    __slots__ = (
        "__weakref__",
        "abandoned",
        "abort_reason",
        "began",
        "begun_in",
        "calls_made",
        "committed",
        "durable",
        "engine",
        "epoch",
        "fork",
        "forked_at",
        "hold",
        "id",
        "key",
        "keyed",
        "kit",
        "labels",
        "lock",
        "name",
        "names",
        "only",
        "opened",
        "order",
        "read_only",
        "released",
        "replay",
        "report",
        "root",
        "salt",
        "state",
        "steps",
        "suspend_request",
        "suspendable",
        "undo_to",
        "undoings",
        "unsettled",
    )

    def __init__(
        self,
        engine: Engine,
        name: str = "",
        labels: Mapping[str, Any] | None = None,
        *,
        is_async: bool,
    ) -> None:
        self.engine = engine
        self.id = identity.new_saga_id()
        self.name = name
        self.labels = dict(labels or {})
        self.epoch = 1
        self.salt = os.urandom(16)
        self.fork = fork_generation()
        self.lock = threading.Lock()
        self.state = SagaState.NEW
        self.begun_in = NOWHERE
        self.began = engine.clock.now_us()
        self.opened = time.monotonic()
        self.root = Scope(self, None, name, (), is_async=is_async)
        self.steps: dict[str, Step] = {}
        self.keyed: dict[identity.StepKey, Step] = {}
        self.unsettled: dict[str, Step] = {}
        self.order = itertools.count(1).__next__
        self.committed = 0
        self.report: RollbackReport | None = None
        self.released = False
        self.abort_reason: str | None = None
        self.suspend_request: SuspendRequested | None = None
        self.kit: object = None
        self.durable = False
        self.key = ""
        self.replay: Replay | None = None
        self.suspendable = False
        self.hold: float | None = None
        self.abandoned: dict[str, str] = {}
        self.calls_made: dict[Calls, int] = {}
        self.forked_at: str | None = None
        self.only: frozenset[str] | None = None
        self.undo_to = ""
        self.undoings: list[InHand] = []
        self.read_only = False
        self.names: Names | None = NAMED_BY[-1](self) if NAMED_BY else None

    def move(self, event: str) -> None:
        """Change the state as the lifecycle table says."""
        self.state = saga_after(self.state, event)

    @property
    def begun(self) -> bool:
        """Whether its beginning is recorded."""
        return self.begun_in != NOWHERE

    @property
    def ended(self) -> bool:
        """Whether the boundary has ended, one way or another."""
        return self.report is not None

    @property
    def in_flight(self) -> bool:
        """Whether a step of it is in flight."""
        with self.lock:
            return any(step.in_flight for step in self.steps.values())

    def ended_with(self, report: RollbackReport) -> None:
        """Note how the boundary ended; what ended well needs its steps no more.

        Those that run, or whose savepoint was not left yet, are needed still.
        """
        self.report = report
        if report.clean and self.state in (SagaState.COMMITTED, SagaState.ROLLED_BACK):
            root = self.root
            with self.lock:  # each step holds the saga: only the collector would part them
                self.steps = {
                    key: step
                    for key, step in self.steps.items()
                    if step.in_flight or (step.scope is not root and not step.scope.left)
                }
                self.keyed = {}

    def new_report(self) -> RollbackReport:
        """Return an empty report of this saga."""
        return RollbackReport(self.id, self.name, self.engine.wal.address)

    # --- scopes ----------------------------------------------------------------------------------

    def open_savepoint(self, parent: Scope, name: str, *, is_async: bool) -> Scope:
        """Return a new savepoint inside a scope.

        Raises:
            SagaClosed, SagaUnwinding, SagaForked: the scope takes nothing more.
        """
        if not self.read_only:
            self.check_open(parent)
        with self.lock:
            label = name or "savepoint"
            ordinal = parent.ordinals[label] = parent.ordinals.get(label, 0) + 1
            path = (*parent.path, f"{label}#{ordinal}")
            scope = self._recorded_scope(path, is_async=is_async)
            recorded = scope is not None
            if scope is None:
                scope = Scope(self, parent, name, path, is_async=is_async)
                parent.children.append(scope)
        if self.read_only and recorded:
            return scope
        try:
            self.check_open(parent)
        except BaseException:
            scope.fence()
            raise
        return scope

    def _recorded_scope(self, path: tuple[str, ...], *, is_async: bool) -> Scope | None:
        scope = self.replay.scopes.get(path) if self.replay is not None else None
        if scope is not None and not self.read_only:
            scope.open, scope.fenced, scope.is_async = True, False, is_async
        return scope

    def check_open(self, scope: Scope) -> None:
        """Refuse when nothing more may start in this scope.

        Raises:
            SagaForked: this is a forked child of the saga's process.
            SagaUnwinding: the scope is being undone.
            SagaClosed: the scope has ended.
        """
        if self.fork != FORKS.generation:
            self.check_fork()
        if scope.open:
            return
        if scope.fenced:
            raise SagaUnwinding(
                f"Saga {self.id} is being undone; no further step of it may start.",
                rule="unwinding",
                reason="the boundary failed",
            )
        if self.suspend_request is not None:
            raise SagaClosed(
                f"Saga {self.id} is being suspended; no further step of it may start.",
                rule="suspended",
                reason=self.suspend_request.message,
                fix="Leave the boundary; the run that resumes the saga goes on.",
            ) from self.suspend_request
        if self.read_only:
            raise SagaClosed(
                f"Saga {self.id} ended in an earlier run; only its recorded results are given.",
                rule="closed",
                reason="the saga has ended",
                fix="Begin another saga, with a saga_id of its own.",
            )
        raise SagaClosed(
            f"The boundary of saga {self.id} has ended; no further step of it may start.",
            rule="closed",
            reason="the call came after the end of its boundary",
            fix="Await every call inside the boundary, or open a new one.",
        )

    def check_fork(self) -> None:
        """Refuse in a forked child: the saga, its steps and its undoing are the parent's.

        Raises:
            SagaForked: this is a forked child of the saga's process.
        """
        if self.fork != fork_generation():
            raise SagaForked(
                f"Saga {self.id} belongs to the parent process.",
                fix="Open one of its own in the child process, with detached=True.",
            )

    # --- steps -----------------------------------------------------------------------------------

    def rejoin(self, step: Step) -> bool:
        """Put an earlier step in flight again; False when somebody else just did."""
        with self.lock:
            if step.in_flight:
                return False
            step.in_flight = True
            self.steps[step.id] = step
            if step.keyed:
                self.keyed[step.key] = step
            return True

    def left(self, step: Step) -> None:
        """Note that a step's protocol ended; it stays in flight while its call still runs."""
        with self.lock:
            if step.running:
                step.parked = True
                self._keep_unsettled(step)
                return
            step.in_flight = False
            if step.state is not StepState.COMMITTED or self.unsettled:
                self._keep_unsettled(step)
            over = step.tool.reversible or step.state is StepState.NEW
            if over and step.compensation is None and not step.keyed:
                self.steps.pop(step.id, None)
        if step.waiters:
            step.settled()

    def _keep_unsettled(self, step: Step) -> None:
        if step.state is StepState.UNKNOWN and not step.tool.reversible:
            self.unsettled[step.id] = step
        elif self.unsettled:
            self.unsettled.pop(step.id, None)

    def forget(self, step: Step) -> None:
        """Drop a step that never came to a record."""
        with self.lock:
            if step.state is StepState.NEW:
                self.steps.pop(step.id, None)
                self.keyed.pop(step.key, None)
        self.left(step)

    def call_when_settled(self, step: Step | InHand, wake: Callable[[], None]) -> bool:
        """Have a function called when the step is no longer in flight; False when it is not now."""
        with self.lock:
            if not step.in_flight:
                return False
            if step.waiters is None:
                step.waiters = []
            step.waiters.append(wake)
            return True

    def steps_of(self, scope: Scope) -> list[Step]:
        """Return the steps of a scope and of every scope inside it, oldest admission first."""
        with self.lock:
            if scope.parent is None:
                return list(self.steps.values())
            return [step for step in self.steps.values() if step.scope.within(scope)]

    def to_undo(self, scope: Scope) -> list[Step]:
        """Return the steps of a scope that undoing it is about."""
        steps, only = self.steps_of(scope), self.only
        return steps if only is None else [step for step in steps if step.id in only]

    def kept_ways(self) -> list[StepLine]:
        """Return the steps that stand of ways that were left, as whoever forked said."""
        kept = [self.steps[step] for step, what in self.abandoned.items() if what == "keep"]
        return [step.line() for step in kept if step.state in STEP_STANDS or step.order is not None]

    def in_flight_of(self, scope: Scope) -> list[Step]:
        """Return the steps of a scope that are in flight."""
        with self.lock:
            return [s for s in self.steps.values() if s.in_flight and s.scope.within(scope)]


_by_intent = operator.attrgetter("intent_order")
_by_outcome = operator.attrgetter("order")


def undo_order(steps: Sequence[Step]) -> list[Step]:
    """Return steps in the order in which they must be undone.

    Those without an outcome come first, latest intent first; then latest outcome first. This
    reverses happens-before for parallel steps too.
    """
    unknown = [step for step in steps if step.order is None]
    ended = [step for step in steps if step.order is not None]
    unknown.sort(key=_by_intent, reverse=True)
    ended.sort(key=_by_outcome, reverse=True)
    return [*unknown, *ended]

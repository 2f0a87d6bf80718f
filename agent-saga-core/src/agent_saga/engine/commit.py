"""Leaving a boundary well: settle what is in flight, probe what is unknown, commit durably.

Rules of this part:

- The scope is shut first; steps in flight, and savepoints that are being undone, are waited for,
  bounded. One of these may still ask for the saga to be undone.
- A resumed run that left recorded effects out has changed: it fails, and all is undone.
- Every unknown ending is probed. What remains unknown, and what a savepoint left standing, is
  carried by the commit as unsettled: the boundary is then committed and not clean.
- Success is returned only when SAGA_COMMITTED is durable and the fence was checked after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.domain.lifecycle import STEP_GONE, STEP_STANDS, SagaState, StepState
from agent_saga.domain.records import Ev
from agent_saga.engine import in_hand, journal
from agent_saga.engine.known import tell_empty, tell_ended
from agent_saga.engine.releasing import release
from agent_saga.engine.requests import Durable, Protocol
from agent_saga.engine.settle import settle_unknown
from agent_saga.errors import (
    AbortRequested,
    RefusedError,
    ReplayConflict,
    SagaUnwinding,
    WALError,
    said_by,
)
from agent_saga.observe.logger import logger
from agent_saga.observe.metrics import UNSETTLED_STEPS

if TYPE_CHECKING:
    from agent_saga.domain.report import RollbackReport
    from agent_saga.engine.replay import Replay
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.scope import Scope
    from agent_saga.engine.step import Step

log = logger("agent_saga.engine")

_OPEN_ENDED = (StepState.UNKNOWN, StepState.INTENT)
"""States without a known outcome; of a resumed saga the process may have died in a call."""


class Committed:
    """How leaving a boundary went.

    Attributes:
        report: the report of the boundary.
        cut: what came in the way; before the commit it makes the boundary fail, after it it is
            passed on.
        done: the commit stands.
    """

    __slots__ = ("cut", "done", "report")

    def __init__(
        self, report: RollbackReport, cut: BaseException | None = None, *, done: bool = True
    ) -> None:
        self.report = report
        self.cut = cut
        self.done = done


def commit(saga: Saga) -> Protocol[Committed]:
    """Commit a saga whose boundary ended well."""
    saga.root.shut()
    report = saga.new_report()
    report.outcome = "COMMITTED"
    if saga.released:
        return _not_durable(saga, report, SagaUnwinding("The saga was left to recovery before."))
    if saga.state not in (SagaState.NEW, SagaState.RUNNING):
        return Committed(report)
    if not (saga.begun or saga.in_flight):
        yield from tell_empty(saga)
        return Committed(report)
    cut = yield from _settled(saga.root)
    cut = cut or _aborted(saga)
    if cut is None and saga.replay is not None:
        cut = _left_out(saga, saga.replay)
    if cut is not None:
        return Committed(report, cut, done=False)
    _list(saga, report)
    report.notes += [f"kept of a way that was left: {line}" for line in saga.kept_ways()]
    try:
        in_hand.check_kept(saga)
        seq = journal.saga_event(
            saga,
            Ev.SAGA_COMMITTED,
            unsettled=[line.step for line in report.unsettled],
            counts={"committed": saga.committed} if saga.committed else {},
        )
        cut = yield Durable(seq)
        if isinstance(cut, WALError):
            raise cut
        saga.engine.wal.check_fence(saga.id, saga.epoch, seq)
    except (WALError, RefusedError) as trouble:
        return _not_durable(saga, report, trouble)
    yield from tell_ended(saga, seq, settled=report.clean)
    return Committed(report, cut)


def _aborted(saga: Saga) -> AbortRequested | None:
    """Return what a step has asked for that was waited for: that the saga is undone after all."""
    return None if saga.abort_reason is None else AbortRequested(saga.abort_reason)


def _settled(scope: Scope) -> Protocol[BaseException | None]:
    """Wait for steps in flight, then ask about the unknown ones."""
    saga = scope.saga
    cut = yield from in_hand.going_on(scope)
    if cut is not None:
        return cut
    for step in saga.steps_of(scope):
        if step.state in _OPEN_ENDED and not (step.tool.reversible or step.in_flight):
            try:
                if step.state is StepState.INTENT:
                    journal.unknown(step, "its process ended")
                cut = yield from settle_unknown(step, patient=False)
            except WALError as trouble:
                log.error("a settled step could not be recorded: %s", trouble)  # noqa: TRY400
                return None
            if cut is not None:
                return cut
    return None


def _left_out(saga: Saga, replay: Replay) -> ReplayConflict | None:
    """Return a conflict if a resumed run did not make what it made before, and that stands."""
    steps = replay.left_out(saga)
    if not steps:
        return None
    names = ", ".join(f"{step.tool.name} [{step.id[:8]}]" for step in steps)
    return ReplayConflict(
        f"The resumed run ended without calls that the recorded run had made: {names}.",
        fix="Let it make them again (it gets their recorded results), give steps keys that a later "
        "run need not repeat (tool.keyed), or go another way on purpose (fork_at=…, "
        "abandoned='keep').",
    )


def _list(saga: Saga, report: RollbackReport) -> None:
    for step in saga.steps_of(saga.root):
        if step.state is StepState.COMMITTED and not (step.in_flight or step.scope.fenced):
            continue  # most of them
        if step.tool.reversible or step.state is StepState.NEW:
            continue
        if step.state in STEP_STANDS or step.in_flight:
            report.unsettled.append(step.line(_why(step), step.error))
            saga.engine.metrics.count(UNSETTLED_STEPS)
        elif step.state is StepState.COMPENSATED:
            way = step.id in saga.abandoned
            where = "with the way that was left" if way else "in a savepoint"
            report.compensated.append(step.line(f"undone {where}"))
        elif _needs_no_undoing(step):
            report.left.append(step.line("nothing to undo in its savepoint"))
        elif step.state is StepState.COMMITTED and step.scope.fenced:
            report.unsettled.append(step.line("took effect after its savepoint had been undone"))
        elif step.state is StepState.KEPT:
            report.kept.append(
                step.line(f"approved by {step.approved_by}; its savepoint was undone")
            )


def _needs_no_undoing(step: Step) -> bool:
    inverse = step.compensation
    if not step.scope.fenced or inverse is None or not inverse.nothing:
        return False
    return not _came_too_late(step)


def _came_too_late(step: Step) -> bool:
    """Say whether a savepoint was given up because of it; the log tells of that for good."""
    scope: Scope | None = step.scope
    while scope is not None:
        if scope.report is not None and any(line.step == step.id for line in scope.report.standing):
            return True
        scope = scope.parent
    return False


def _why(step: Step) -> str:
    if step.in_flight:
        return "its call is still running"
    if step.state is StepState.UNKNOWN:
        return "no known outcome"
    return f"left {step.state.value} in a savepoint"


def _not_durable(saga: Saga, report: RollbackReport, trouble: BaseException) -> Committed:
    """The commit cannot be promised: say so, and leave the saga to recovery."""
    for step in saga.steps_of(saga.root):
        if not step.tool.reversible and step.state not in STEP_GONE:
            what = "it may have happened" if step.order is None else "it happened"
            report.unresolved.append(step.line(f"{what}, and the commit is not durable"))
    report.unsettled.clear()
    report.outcome = "RELEASED"
    report.notes.append(f"the commit could not be made durable: {said_by(trouble)}")
    release(saga.root, type(trouble).__name__)
    return Committed(report, trouble, done=False)

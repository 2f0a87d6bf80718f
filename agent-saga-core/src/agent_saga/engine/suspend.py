"""Suspending a saga: neither committed nor failed, until somebody resumes it or its time is over.

Rules of this part:

- From the request on no new step starts. Whatever the program makes of the request on its way to
  the boundary, the saga is suspended; only an error of another cause makes it fail.
- A savepoint that is left on the way stays as it is: open, to be gone on with.
- A log that ends with this process holds nothing that could be resumed.
- Steps in flight, and savepoints that are being undone, are waited for, bounded. What still goes
  on then, or a step whose inverse has no name, cannot be suspended: another process could not
  undo it.
- SAGA_SUSPENDED is durable, and the fence is checked after it, before the store and the caller are
  told.
- A request without a time that comes, or without a known thing to happen then, makes the boundary
  fail: such a saga would wait for ever, and nobody would see it.
- The record holds the deadline and what happens at it; the resume and the deadline race on one
  atomic claim.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from agent_saga.domain.durations import at_most
from agent_saga.domain.lifecycle import StepState
from agent_saga.domain.records import Ev
from agent_saga.engine import in_hand, journal
from agent_saga.engine.endings import origins
from agent_saga.engine.known import tell_suspended
from agent_saga.engine.releasing import release
from agent_saga.engine.requests import Durable, Protocol
from agent_saga.engine.tool import one_of
from agent_saga.errors import (
    ConfigurationError,
    NotSuspendable,
    RefusedError,
    SuspendRequested,
    WALError,
    said_by,
)

if TYPE_CHECKING:
    from agent_saga.domain.report import RollbackReport
    from agent_saga.engine.replay import Calls
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step


def asked_for(saga: Saga, error: BaseException | None) -> SuspendRequested | None:
    """Return the request to suspend this saga that an error is, or was made from; or None.

    Code between the request and the boundary may have wrapped it, or met the refusal of a further
    step; an error of another cause makes the boundary fail.
    """
    if isinstance(error, SuspendRequested) and error.saga in ("", saga.id):
        saga.suspend_request = error
        saga.root.shut()
    request = saga.suspend_request
    if request is None or saga.abort_reason is not None or not isinstance(error, Exception):
        return None
    return request if any(origin is request for origin in origins(error)) else None


def left_to_recovery(saga: Saga, trouble: BaseException) -> RollbackReport:
    """Return the report of a saga of which it is not certain that it is suspended."""
    report = saga.new_report()
    report.outcome = "RELEASED"
    report.notes.append(f"that it is suspended could not be made durable: {said_by(trouble)}")
    for step in saga.steps_of(saga.root):
        if not step.tool.reversible and step.state is not StepState.NOT_APPLIED:
            report.unresolved.append(step.line("it is not certain that it is suspended"))
    release(saga.root, type(trouble).__name__)
    return report


def suspend(saga: Saga, request: SuspendRequested) -> Protocol[BaseException | None]:
    """Suspend a saga; return what came in the way, or None."""
    saga.root.shut()
    wrong = _wrong_with(request)
    if wrong is not None:
        return wrong
    if not saga.engine.wal.capabilities.survives_kill:
        return NotSuspendable(
            f"Saga {saga.id} cannot be suspended: its log ({saga.engine.wal.address}) ends with "
            "this process.",
            fix="Give the kit a log in files: wal='a path'.",
        )
    cut = yield from in_hand.going_on(saga.root)
    if cut is not None:
        return cut
    if saga.released:
        return NotSuspendable(f"Saga {saga.id} was left to recovery meanwhile.")
    reasons = [
        f"{step.tool.name}: {why}" for step in saga.steps_of(saga.root) if (why := _why_not(step))
    ]
    reasons += [
        f"{'/'.join(o.scope.path)}: it is being undone" for o in in_hand.undoings_in(saga.root)
    ]
    if reasons:
        return NotSuspendable(
            f"Saga {saga.id} cannot be suspended: {'; '.join(reasons)}.",
            fix="Give these tools a named inverse: @tool.undo, or compensate=handler.using(…).",
        )
    return (yield from _recorded(saga, request))


def _wrong_with(request: SuspendRequested) -> ConfigurationError | None:
    """Return what is wrong with a request; one that the program made itself was not checked."""
    try:
        request.deadline = at_most("deadline", request.deadline)
        one_of("at_deadline", request.at_deadline, ("undo", "hold"))
    except ConfigurationError as error:
        return error
    return None


def _recorded(saga: Saga, request: SuspendRequested) -> Protocol[BaseException | None]:
    deadline = clock_us(saga) + int(request.deadline * 1_000_000)
    try:
        seq = journal.saga_event(
            saga,
            Ev.SAGA_SUSPENDED,
            reason=request.message,
            deadline=deadline,
            at_deadline=request.at_deadline,
            awaits=request.awaits,
            **_calls_told(saga),
        )
        cut: BaseException | None = yield Durable(seq)
        if cut is None:
            saga.engine.wal.check_fence(saga.id, saga.epoch)
    except (WALError, RefusedError) as trouble:
        return trouble
    if cut is None:
        yield from tell_suspended(saga, seq, deadline)
    return cut


def _calls_told(saga: Saga) -> dict[str, Any]:
    """Return how many calls of each tool were made, where the last of them left no step.

    The resumed run may make them in another order; see `engine.replay`.
    """
    last: Counter[Calls] = Counter()
    for step in saga.steps.values():
        if step.key and not step.keyed:
            place = (step.scope.path, step.tool.name)
            last[place] = max(last[place], int(step.key[-1]))
    made = {
        (scope.path, tool): ordinals.count
        for scope in saga.root.subtree()
        for tool, ordinals in scope.calls.items()
    }
    told = [[list(at[0]), at[1], count] for at, count in made.items() if count > last[at]]
    return {"calls": told} if told else {}


def clock_us(saga: Saga) -> int:
    """Return the wall clock: deadlines outlive the process, so they are wall-clock times."""
    return saga.engine.clock.now_us()


def _why_not(step: Step) -> str:
    """Return why another process could not undo a step, or an empty string."""
    if step.in_flight:
        return "its call is still running"
    if step.hand is not None and step.hand.in_flight:
        return "it is being undone"
    if step.tool.reversible or step.tool.irreversible or step.state is not StepState.COMMITTED:
        return ""
    inverse = step.compensation
    if inverse is None:
        return step.missing or "it has no inverse"
    if inverse.nothing or (inverse.handler and inverse.recorded is not None):
        return ""
    return "its inverse has no name that another process could find"

"""Undoing a boundary: fence, settle, resolve, undo in order, report.

Rules of this part:

1. Fence: no step of this scope may start any more. 2. Settle: wait, bounded, for those in flight.
3. Resolve unknown endings: the prober, else a provisional inverse once nothing can arrive late,
   else the step is orphaned. 4. Undo, in `undo_order`; each inverse by `run_inverse`.
5. A step without an inverse is an orphan, never skipped silently. An inverse that fails for good,
   or that is not registered here, makes the saga STUCK; by default the rest is left UNRESOLVED. A
   call that is still running halts before its step. An inverse that was announced again and again
   by processes that died is a human's case too: it may be what they die of.
6. A savepoint can be undone beside this, one of both at each step, and is waited for, bounded; if
   it gives the saga up to recovery, nothing more is done here.
7. The terminal record is durable, and the fence is checked once more, before a verdict is returned.

A log that fails, or a fence, ends it at once: nothing more is run, what is left is listed
UNRESOLVED, and the saga is released to recovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.domain.compensation import Compensation
from agent_saga.domain.lifecycle import STEP_GONE, SagaState, ScopeState, StepState
from agent_saga.domain.records import Ev
from agent_saga.domain.report import RollbackReport, StepLine
from agent_saga.domain.secrets import mask_text
from agent_saga.domain.words import CLOSED_BY_HAND
from agent_saga.engine import in_hand, interrupts, journal
from agent_saga.engine.inverse import Attempted, Undone, run_inverse, tried_before
from agent_saga.engine.judging import kept_from_undoing
from agent_saga.engine.known import tell_empty, tell_ended
from agent_saga.engine.outcome import unusable
from agent_saga.engine.releasing import release
from agent_saga.engine.requests import Durable, Protocol
from agent_saga.engine.saga import undo_order
from agent_saga.engine.settle import quiet, settle_unknown, wait_until_quiet
from agent_saga.errors import AgentSagaError, OutcomeUnknown, RefusedError, WALError, said_by
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.scope import Scope
    from agent_saga.engine.step import Step

log = logger("agent_saga.engine")

_TERMINAL = {
    "ROLLED_BACK": Ev.SAGA_ROLLED_BACK,
    "PARTIAL": Ev.SAGA_PARTIAL,
    "STUCK": Ev.SAGA_STUCK,
}
_ANNOUNCED = (StepState.INTENT, StepState.COMPENSATING)
_FORWARD_OPEN = (StepState.UNKNOWN, StepState.UNRESOLVED, StepState.ORPHANED)
_SAYS_MORE = (
    StepState.UNRESOLVED,
    StepState.COMPENSATION_UNKNOWN,
    StepState.COMPENSATION_FAILED,
    StepState.COMPENSATION_NOT_APPLIED,
)
"""States that a halt must not hide: they tell what became of an inverse."""

TAKEOVERS: Final = 3
"""Over how many processes the attempts at one inverse may go on; then a human decides."""


def unwind(scope: Scope, cause: str, *, retry: bool = False) -> Protocol[RollbackReport]:
    """Undo a boundary and report what stands.

    Args:
        scope: the root boundary or a savepoint.
        cause: why, for the record.
        retry: an operator asks again: look at orphans too.
    """
    scope.fence()
    saga = scope.saga
    report = saga.new_report()
    report.savepoint = "/".join(scope.path)
    report.undone_to = _point(saga) if scope.parent is None else ""
    if not (saga.begun or saga.in_flight):
        report.outcome = "ROLLED_BACK"
        scope.report = report
        if scope.parent is None:
            yield from tell_empty(saga)
        return report
    unwinding = Unwinding(scope, report, retry=retry)
    if saga.released:
        unwinding.leave_to_recovery()
        return report
    going = in_hand.undoing(scope)
    try:
        yield from unwinding.run(cause)
    except (WALError, RefusedError) as trouble:
        unwinding.give_up(trouble)
    except Exception as trouble:
        log.exception("undoing saga %s met an error of its own", saga.id)
        unwinding.give_up(trouble)
    finally:
        going.ended()
    scope.report = report
    return report


class Unwinding:
    """One run of undoing a scope; it fills the report as it goes."""

    __slots__ = ("done", "halted", "report", "retry", "scope", "timing")

    def __init__(self, scope: Scope, report: RollbackReport, *, retry: bool = False) -> None:
        self.scope = scope
        self.report = report
        self.retry = retry
        self.halted = ""
        self.timing = scope.saga.engine.timing
        self.done: set[str] = set()

    def run(self, cause: str) -> Protocol[None]:
        """Carry the unwinding out to its terminal record."""
        saga = self.scope.saga
        saga.engine.wal.check_fence(saga.id, saga.epoch)
        cut = yield from kept_from_undoing(saga)
        if cut is not None:
            self.give_up(cut)
            return
        if not self._announced():
            journal.unwinding(self.scope, cause)
        cut = yield from in_hand.ended(saga.in_flight_of(self.scope), saga)
        if cut is not None:
            self.give_up(cut)
            return
        for step in undo_order(saga.to_undo(self.scope)):
            cut = yield from self.visit(step)
            if cut is not None:
                self.give_up(cut)
                return
        cut = yield from in_hand.ended(in_hand.undoings_in(self.scope), saga)
        if cut is not None:
            self.give_up(cut)
            return
        in_hand.check_kept(saga)
        yield from self._terminal()

    def _announced(self) -> bool:
        if self.scope.parent is not None:
            return self.scope.state is ScopeState.UNWINDING
        return self.scope.saga.state is SagaState.UNWINDING

    def visit(self, step: Step) -> Protocol[BaseException | None]:
        """Undo one step, or say why not; return what cuts the whole unwinding short."""
        mine = in_hand.InHand(self.scope)
        other = in_hand.taken(step, mine)
        if other is not None:
            cut = yield from in_hand.take(step, mine, other)
            if cut is not None:
                return cut
            if step.hand is not mine:
                self._list(self.report.unresolved, step, "it is being undone elsewhere")
                self.halted = self.halted or f"unwinding halted at {step.tool.name}"
                return None
        try:
            in_hand.check_kept(self.scope.saga)
            if self.timing.undo_stops and interrupts.asked_to_stop():
                return interrupts.Stopped("an end was asked for")
            undoing = self._visited(step)
            return None if undoing is None else (yield from undoing)
        finally:
            mine.ended()

    def _visited(self, step: Step) -> Protocol[BaseException | None] | None:
        """Say what a step is, and list it; return what undoes it where that is to be tried."""
        if step.state in _ANNOUNCED and not step.in_flight:
            _found_open(step)
        if step.state in STEP_GONE:
            self._gone(step)
        elif step.tool.reversible:
            return self._reversible(step)
        elif step.state is StepState.KEPT:
            self._list(self.report.kept, step, f"approved by {step.approved_by}")
        elif step.state is StepState.ORPHANED and not self.retry:
            self._list(self.report.orphaned, step, step.missing)
        elif self.halted:
            self._unresolved(step, self.halted)
        elif step.in_flight:
            self._halt(step, "its call is still running")
        elif step.order is None and step.state in _FORWARD_OPEN:
            return self._resolve(step)
        else:
            return self._undo(step)
        return None

    def _gone(self, step: Step) -> None:
        if step.state is StepState.NOT_APPLIED:
            self._list(self.report.not_applied, step, "", step.error)
        elif step.state is StepState.COMPENSATED:
            self._list(self.report.compensated, step, "undone before")
        elif step.state is StepState.CLOSED:
            self._list(self.report.left, step, CLOSED_BY_HAND)

    def _undo(self, step: Step) -> Protocol[BaseException | None] | None:
        """Return what undoes a step that took effect, or list why nothing does."""
        if step.tool.irreversible:
            self._keep(step)
            return None
        inverse = step.compensation
        if inverse is None:
            self._orphan(step, step.missing or "it has no inverse")
            return None
        if inverse.nothing:
            self._list(self.report.left, step, inverse.nothing)
            return None
        missing = unusable(inverse, self.scope.saga.engine)
        if missing:
            self._halt(step, missing)
            if self.timing.after_stuck != "halt":
                self.halted = ""
            return None
        return self._run(step, inverse)

    def _resolve(self, step: Step) -> Protocol[BaseException | None]:
        """Find out about an unknown ending, or decide what to do without knowing."""
        cut = yield from settle_unknown(step, patient=self.timing.wait_to_settle)
        if cut is not None:
            return cut
        if step.state is StepState.NOT_APPLIED:
            self._list(self.report.not_applied, step, "as its prober says")
            return None
        if not _took_effect(step):
            return (yield from self._without_knowing(step))
        undoing = self._undo(step)
        return None if undoing is None else (yield from undoing)

    def _without_knowing(self, step: Step) -> Protocol[BaseException | None]:
        if not self.timing.wait_to_settle and not quiet(step):
            return OutcomeUnknown(f"whether {step.tool.name} took effect cannot be told yet")
        inverse = step.provisional
        if inverse is None:
            who = "it has no prober" if step.tool.prober is None else step.missing
            self._orphan(step, f"it is unknown whether it took effect, and {who}")
            return None
        missing = unusable(inverse, self.scope.saga.engine)
        if missing:
            self._orphan(step, missing)
            return None
        cut = yield from wait_until_quiet(step)
        if cut is not None:
            return cut
        step.compensation = inverse
        return (yield from self._run(step, inverse))

    def _reversible(self, step: Step) -> Protocol[BaseException | None]:
        inverse = step.compensation
        idle = inverse is None or inverse.nothing or step.in_flight or self.halted
        if inverse is None or idle or unusable(inverse, self.scope.saga.engine):
            self._list(self.report.left, step, "REVERSIBLE")
            return None
        undone, error = yield from self._tried(step, inverse)
        if undone is Undone.CUT:
            return error
        lines = self.report.compensated if undone is Undone.COMPENSATED else self.report.left
        lines.append(step.line("" if undone is Undone.COMPENSATED else "left as it is", error))
        self.done.add(step.id)
        return None

    def _tried(self, step: Step, inverse: Compensation) -> Protocol[Attempted]:
        """Return what runs an inverse, unless an earlier attempt at it forbids that."""
        if step.doubt or step.undo_tries:
            return self._tried_again(step, inverse)
        return run_inverse(step, inverse)

    def _tried_again(self, step: Step, inverse: Compensation) -> Protocol[Attempted]:
        undone = yield from tried_before(step, inverse)
        observed = undone is Undone.NOT_YET
        if undone is not None and not observed:
            return undone, None
        if not self.retry and step.undo_tries >= TAKEOVERS * self.timing.undo_attempts:
            # Whoever calls it seems to die of it.
            return Undone.UNKNOWN if step.doubt else Undone.FAILED, None
        return (yield from run_inverse(step, inverse, observed=observed))

    def _run(self, step: Step, inverse: Compensation) -> Protocol[BaseException | None]:
        undone, error = yield from self._tried(step, inverse)
        if undone is Undone.COMPENSATED:
            self._list(self.report.compensated, step, _how_known(step, inverse))
            return None
        if undone is Undone.CUT:
            return error
        self.done.add(step.id)
        word = "failed" if undone is Undone.FAILED else "may or may not have succeeded"
        self.report.failed.append(step.line(f"its inverse {word}", error))
        if error is not None and not isinstance(error, Exception):
            return error  # the loop is torn down, or the process is to end
        if self.timing.after_stuck == "halt":
            self.halted = f"unwinding halted at {step.tool.name}"
        return None

    # --- what is said of a step ------------------------------------------------------------------

    def _list(
        self, lines: list[StepLine], step: Step, detail: str, error: BaseException | None = None
    ) -> None:
        lines.append(step.line(detail, error))
        self.done.add(step.id)

    def _keep(self, step: Step) -> None:
        journal.step_event(step, Ev.STEP_KEPT, approved_by=step.approved_by)
        self._list(self.report.kept, step, f"approved by {step.approved_by or 'nobody'}")

    def _orphan(self, step: Step, reason: str) -> None:
        if step.state is not StepState.ORPHANED:
            journal.step_event(step, Ev.STEP_ORPHANED, reason=reason)
        step.missing = reason
        self._list(self.report.orphaned, step, reason, step.error)

    def _halt(self, step: Step, reason: str) -> None:
        self._unresolved(step, reason)
        self.halted = f"unwinding halted at {step.tool.name}: {reason}"

    def _unresolved(self, step: Step, reason: str) -> None:
        if step.state not in _SAYS_MORE:
            journal.step_event(step, Ev.STEP_UNRESOLVED, reason=reason)
        self._list(self.report.unresolved, step, reason)

    # --- the end ---------------------------------------------------------------------------------

    def _terminal(self) -> Protocol[None]:
        saga = self.scope.saga
        outcome = self.report.verdict()
        if self.scope.parent is None:
            lists = {n: [line.step for line in getattr(self.report, n)] for n in _LISTS}
            event = _TERMINAL[outcome]
            if saga.only is not None and not self.report.standing:
                event, outcome = Ev.SAGA_UNDONE_TO, "COMMITTED"
            seq = journal.saga_event(saga, event, **lists)
        else:
            seq = journal.scope_closed(self.scope, _SCOPE_RESULT[outcome])
        cut = yield Durable(seq)
        if cut is not None:
            raise _as_trouble(cut)
        saga.engine.wal.check_fence(saga.id, saga.epoch, seq)
        self.report.outcome = outcome
        if self.scope.parent is None:
            yield from tell_ended(saga, seq, settled=self.report.clean)

    def give_up(self, trouble: BaseException) -> None:
        """List everything that was not reached, and release the saga to recovery."""
        saga = self.scope.saga
        self.report.notes.append(f"undoing stopped: {mask_text(said_by(trouble))}")
        release(self.scope, f"{type(trouble).__name__}")
        self.leave_to_recovery()
        log.error("saga %s could not be undone here: %s", saga.id, said_by(trouble))

    def leave_to_recovery(self) -> None:
        """List every step that may stand; nothing in this process acts on the saga any more."""
        for step in undo_order(self.scope.saga.to_undo(self.scope)):
            if step.id in self.done or step.tool.reversible:
                continue
            if step.state in STEP_GONE:
                self._gone(step)
            else:
                self._list(self.report.unresolved, step, "not reached")
        self.report.outcome = "RELEASED"
        self.scope.report = self.report


_LISTS = ("compensated", "failed", "orphaned", "unresolved", "kept")
_SCOPE_RESULT = {"ROLLED_BACK": "UNDONE", "PARTIAL": "PARTIAL", "STUCK": "STUCK"}


def _point(saga: Saga) -> str:
    """Return how people call the step after which a saga is undone; empty for all of it."""
    step = saga.steps.get(saga.undo_to)
    return "" if step is None else f"{step.tool.name} [{step.id[:8]}]"


def _how_known(step: Step, inverse: Compensation) -> str:
    if step.via == "prober":
        return "its answer was lost; its prober found the effect"
    return (
        "its answer was lost; undone in case it took effect" if inverse is step.provisional else ""
    )


def _found_open(step: Step) -> None:
    """Record what an announcement without an ending means, when nothing of it is in flight here."""
    if step.state is StepState.INTENT:
        journal.unknown(step, "its protocol was interrupted")
    else:
        journal.step_event(step, Ev.STEP_COMPENSATION_UNKNOWN, error=None, ending="interrupted")


def _took_effect(step: Step) -> bool:
    return step.state is StepState.COMMITTED


def _as_trouble(cut: BaseException) -> AgentSagaError:
    if isinstance(cut, (WALError, RefusedError)):
        return cut
    return WALError(f"waiting for the terminal record was cut short by {type(cut).__name__}")

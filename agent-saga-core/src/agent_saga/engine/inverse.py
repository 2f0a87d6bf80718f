"""Running one inverse: announced durably, bounded, and never twice.

Rules of this part:

- Every attempt is announced before it is made, then the fence is checked. All attempts carry the
  same idempotency key, here and in recovery.
- A further attempt is made only when every earlier one is known not to have taken effect (the
  handler raised `NotApplied`, or its reconciler saw that it does not hold and nothing can arrive
  late), or when the handler is declared idempotent, was so at the earlier attempts, and its window
  is open. Anything else is a human's case. What is in doubt of earlier attempts is a fact of the
  log (`domain.doubt`), so it counts in whichever process goes on.
- A registered handler wins over `fn`, so that this process and recovery run the same code.
- An inverse that says of every attempt that it had no effect may be tried again by whoever asks
  for it: it is left so, unless an earlier attempt may still have had one.
- What an inverse raises on a thread of its own to end the process or a loop ends neither: it is a
  failure like any other.
- A REVERSIBLE step's inverse is announced too, but nothing waits for the disk.
"""

from __future__ import annotations

import functools
from enum import Enum
from typing import TYPE_CHECKING, Any

from agent_saga.domain import identity
from agent_saga.domain.compensation import Compensation
from agent_saga.domain.doubt import OBSERVED, Doubt
from agent_saga.domain.lifecycle import StepState
from agent_saga.domain.outcomes import Observation, read_observation
from agent_saga.domain.records import Ev
from agent_saga.engine import journal
from agent_saga.engine.derive import called
from agent_saga.engine.endings import answered
from agent_saga.engine.forms import Form, never_ran
from agent_saga.engine.judging import kept_from_undoing
from agent_saga.engine.payloads import error_text
from agent_saga.engine.pool import NoThread
from agent_saga.engine.requests import Call, Durable, Ending, Protocol, Sleep
from agent_saga.engine.saying import denied, says_no
from agent_saga.errors import (
    CompensationError,
    NotApplied,
    RefusedError,
    UnknownHandler,
    one_line,
)
from agent_saga.observe.logger import logger
from agent_saga.plugins.registry import Handler
from agent_saga.wal.encoding import decode

if TYPE_CHECKING:
    from agent_saga.engine.step import Step

log = logger("agent_saga.engine")


class Undone(Enum):
    """How the attempts at one inverse ended."""

    COMPENSATED = "compensated"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_YET = "seen not to hold"
    CUT = "cut short"


Attempted = tuple[Undone, BaseException | None]
"""How the attempts at one inverse ended, and the error of the last one."""


class Attempt:
    """The inverse of one step, ready to be called.

    Attributes:
        handler: the registered handler, or None when only a function of this process is known.
        form, kwargs, key: the call and its idempotency key.
        idempotent: its handler is declared so.
        error: how the last attempt ended.
        over: a call that was given up while it ran has ended since.
    """

    __slots__ = (
        "error",
        "form",
        "handler",
        "idempotent",
        "inverse",
        "key",
        "kwargs",
        "over",
        "step",
    )

    def __init__(self, step: Step, inverse: Compensation) -> None:
        self.step = step
        self.inverse = inverse
        handler: Handler | None = inverse.bound
        if handler is None and inverse.handler is not None:
            handler = step.saga.engine.handlers.compensators.find(inverse.handler)
        if handler is not None:
            self.form = _form_of(handler)
        elif inverse.fn is not None:
            self.form = Form(inverse.fn, "compensator")
        else:
            raise UnknownHandler(f"The inverse of {step.tool.name} has no function here.")
        self.handler = handler
        self.idempotent = handler is not None and handler.idempotent
        self.key = step.idempotency_key(identity.INVERSE)
        given: Any = inverse.kwargs if inverse.recorded is None else decode(inverse.recorded)
        self.kwargs: dict[str, Any] = dict(given)
        if self.form.takes_key:
            self.kwargs.setdefault("idempotency_key", self.key)
        self.error: BaseException | None = None
        self.over = False
        if step.undo_since is None:
            step.undo_since = step.saga.engine.clock.monotonic()

    def repeats_safely(self) -> bool:
        """Say whether the handler may be called again although an attempt's ending is unknown."""
        handler = self.handler
        if handler is None or not self.idempotent:
            return False
        if self.step.doubt is Doubt.MISSED or self.step.undo_once:
            return False
        elapsed = self.step.saga.engine.clock.monotonic() - (self.step.undo_since or 0.0)
        return handler.window is None or elapsed < handler.window

    def call(self) -> Call:
        """Return the call of one attempt."""
        timing = self.step.saga.engine.timing
        own = self.step.tool.undo_timeout
        bound = timing.undo_timeout if own is None else own
        return Call(
            self.form.fn,
            (),
            self.kwargs,
            is_async=self.form.is_async,
            timeout=bound,
            late=self._ended_late,
            pooled=own is not None or timing.undo_bounded,
            loop_free=True,
            what=f"the inverse of {self.step.tool.name}",
        )

    def _ended_late(self, ending: Ending) -> None:
        """Note that a call which was given up has ended; from now on it can be judged."""
        self.step.ended_at = self.step.saga.engine.clock.monotonic()
        self.over = True


@functools.lru_cache(maxsize=1024)
def _form_of(handler: Handler) -> Form:
    """How a registered handler is called; read once, since reading a signature takes long."""
    return Form(handler.fn, "compensator")


def run_inverse(
    step: Step, inverse: Compensation, *, observed: bool = False
) -> Protocol[Attempted]:
    """Undo one step, in as many attempts as are allowed and safe.

    Args:
        step: the step.
        inverse: what undoes it.
        observed: earlier attempts were finally seen not to hold.

    Returns:
        How it ended, and the error of the last attempt.
    """
    attempt = Attempt(step, inverse)
    timing = step.saga.engine.timing
    for number in range(1, timing.undo_attempts + 1):
        cut = yield from _announced(attempt, number, observed=observed and number == 1)
        if cut is not None:
            return Undone.CUT, cut
        ending = yield attempt.call()
        if _succeeded(ending):
            journal.compensated(step, number)
            return Undone.COMPENSATED, None
        if isinstance(ending.error, NoThread):
            return Undone.CUT, _not_started(step, ending.error)
        result = yield from _after_failure(step, attempt, ending)
        if result is not None:
            return result, attempt.error
        if number < timing.undo_attempts:
            cut = yield Sleep(timing.undo_delay * 2 ** (number - 1))
            if cut is not None:
                return Undone.CUT, cut
            if step.doubt and not attempt.repeats_safely():
                break  # the window closed meanwhile
    return _given_up(step, attempt), attempt.error


def _announced(attempt: Attempt, number: int, *, observed: bool) -> Protocol[BaseException | None]:
    step = attempt.step
    saga = step.saga
    once = not attempt.idempotent
    seq = journal.compensating(
        step, attempt.inverse, number, attempt.key, observed=observed, once=once
    )
    cut = None
    if not step.tool.reversible:
        cut = yield Durable(seq)
    if cut is None:
        cut = yield from kept_from_undoing(saga)
    if cut is None:
        # Last: nothing waits between it and the call.
        try:
            saga.engine.wal.check_fence(saga.id, saga.epoch, seq)
        except RefusedError as refusal:
            cut = refusal
    return None if cut is None else _not_started(step, cut)


def _not_started(step: Step, cut: BaseException) -> BaseException:
    evidence = "it was not started"
    journal.step_event(step, Ev.STEP_COMPENSATION_NOT_APPLIED, by="engine", evidence=evidence)
    return cut


def _succeeded(ending: Ending) -> bool:
    return ending.error is None and (ending.value is None or denied(ending.value) is None)


def _after_failure(  # noqa: PLR0911 - each way an attempt can end is one line
    step: Step, attempt: Attempt, ending: Ending
) -> Protocol[Undone | None]:
    """Judge a failed attempt and record it; None when another attempt may be made."""
    error = ending.error
    if error is None:  # an error may count as false
        error = denied(ending.value) or NotApplied()
    attempt.error = _contained(error, step) if ending.apart else error
    log.warning("the inverse of %s failed: %r", step.tool.name, error)
    if not ending.started or says_no(error) or _refused_arguments(attempt, error):
        return _known_not_applied(step, attempt, error)
    returned = answered(error, step.tool.no_answer_on, running=ending.running)
    seen = yield from _observed(step, attempt)
    if seen.reversed_ is True:
        journal.step_event(
            step, Ev.STEP_COMPENSATED, by="reconciler", observation=seen.detail or "it holds"
        )
        return Undone.COMPENSATED
    if ending.running:
        step.undo_left = attempt
        return _unknown(step, error, running=True)
    if seen.reversed_ is False and returned:
        return _known_not_applied(step, attempt, error, observed=_inverse_quiet(step))
    if attempt.repeats_safely():
        step.ended_at = step.saga.engine.clock.monotonic()
        journal.step_event(
            step, Ev.STEP_COMPENSATION_UNKNOWN, error=error_text(error), repeats=True
        )
        return None
    if not returned or ending.error is None:
        return _unknown(step, error)
    journal.step_event(step, Ev.STEP_COMPENSATION_FAILED, error=error_text(error))
    return Undone.FAILED


def _contained(error: BaseException, step: Step) -> BaseException:
    """Return what an inverse raised on a thread of its own, as an error that ends nothing else."""
    if isinstance(error, Exception):
        return error
    return CompensationError(f"The inverse of {step.tool.name} raised {one_line(error)}.")


def _refused_arguments(attempt: Attempt, error: BaseException) -> bool:
    return never_ran(attempt.form.fn, error, (), attempt.kwargs)


def _known_not_applied(
    step: Step, attempt: Attempt, error: BaseException, *, observed: bool = False
) -> Undone | None:
    told: dict[str, object] = {"by": "handler", "error": error_text(error)}
    if observed:
        told |= {"by": "reconciler", OBSERVED: True}
    journal.step_event(step, Ev.STEP_COMPENSATION_NOT_APPLIED, **told)
    return Undone.FAILED if _refused_arguments(attempt, error) else None


def _unknown(step: Step, error: BaseException, *, running: bool = False) -> Undone:
    step.ended_at = step.saga.engine.clock.monotonic()
    told = error_text(error)
    journal.step_event(step, Ev.STEP_COMPENSATION_UNKNOWN, error=told, running=running)
    return Undone.UNKNOWN


def _given_up(step: Step, attempt: Attempt) -> Undone:
    """Every attempt is used up; what the last one says of itself settles none before it."""
    if step.state is StepState.COMPENSATION_UNKNOWN:
        return Undone.UNKNOWN
    if not step.doubt:
        return Undone.FAILED
    if step.state is StepState.COMPENSATION_NOT_APPLIED:
        told = error_text(attempt.error)
        journal.step_event(step, Ev.STEP_COMPENSATION_FAILED, error=told)
    return Undone.UNKNOWN


def tried_before(step: Step, inverse: Compensation) -> Protocol[Undone | None]:
    """Judge a step whose inverse was tried before, here, in a savepoint or in a process that died.

    Returns:
        None when the inverse may be tried, NOT_YET when that is because its reconciler finally saw
        that it does not hold; COMPENSATED when it saw that it holds; otherwise how it ended, which
        is a human's case.
    """
    if not step.doubt:
        return None
    attempt = Attempt(step, inverse)
    seen = yield from _observed(step, attempt)
    if seen.reversed_ is not True and _still_runs(step):
        return Undone.UNKNOWN
    if seen.reversed_ is False and not _inverse_quiet(step):
        yield Sleep(_inverse_remaining(step))
        seen = yield from _observed(step, attempt)
    if seen.reversed_ is True:
        journal.step_event(
            step, Ev.STEP_COMPENSATED, by="reconciler", observation=seen.detail or "it holds"
        )
        return Undone.COMPENSATED
    if seen.reversed_ is False and _inverse_quiet(step):
        return Undone.NOT_YET
    if attempt.repeats_safely():
        return None
    return Undone.FAILED if step.state is StepState.COMPENSATION_FAILED else Undone.UNKNOWN


def _still_runs(step: Step) -> bool:
    """Say whether an earlier call of the inverse, which was given up, has not ended yet."""
    return step.undo_left is not None and not step.undo_left.over


def _inverse_remaining(step: Step) -> float:
    """Return for how long an attempt at the inverse without an answer may still arrive."""
    if step.doubt < Doubt.OPEN:
        return 0.0
    engine = step.saga.engine
    bound = step.tool.settle_after
    if bound is None:
        bound = engine.timing.settle_after
    return bound - (engine.clock.monotonic() - step.ended_at)


def _inverse_quiet(step: Step) -> bool:
    return _inverse_remaining(step) <= 0


def _observed(step: Step, attempt: Attempt) -> Protocol[Observation]:
    """Ask the reconciler whether the inverse holds, where there is one."""
    call = _observation(step, attempt)
    if call is None:
        return Observation()
    ending = yield call
    if ending.error is not None:
        return Observation(detail=f"the reconciler raised {type(ending.error).__name__}")
    return read_observation(ending.value)


def _observation(step: Step, attempt: Attempt) -> Call | None:
    """Return the call of the tool's own reconciler, or of the one that has the handler's name."""
    form = step.tool.reconciler
    engine = step.saga.engine
    if form is not None:
        args, kwargs = called(form, step.sources())
    else:
        reconciler = engine.handlers.reconcilers.find(attempt.inverse.handler or "")
        if reconciler is None:
            return None
        form = Form(reconciler.fn, "reconciler")
        args, kwargs = (), {n: v for n, v in attempt.kwargs.items() if reconciler.takes(n)}
    return Call(
        form.fn,
        args,
        kwargs,
        is_async=form.is_async,
        timeout=engine.timing.undo_timeout,
        pooled=engine.timing.undo_bounded,
        loop_free=True,
        what=f"the reconciler of {step.tool.name}",
    )

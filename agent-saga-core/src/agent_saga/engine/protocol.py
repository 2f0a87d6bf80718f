"""The protocol of one step: judge, prepare, announce, call, record. Written once, driven twice.

Rules of this part:

1. Judge: the gate; after any wait everything is judged again. A refusal is recorded and raises.
2. Prepare: read what the inverse will need, before anything is announced.
3. Intent: durable before the effect, unless the tool is REVERSIBLE, which is one record afterwards.
4. Fence: after the announcement and before the call. Who is fenced writes "not started".
5. Effect: attempts within the step share its idempotency key.
6. Outcome: handed to the operating system before the caller sees the result; its sync starts at
   the end of the loop's turn, at once where no loop runs.

A call whose tool and arguments equal an unsettled step *is* that step: it is settled first, and
runs again only when it is known not to have happened, or when the tool is idempotent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from agent_saga.controls.control import Wait
from agent_saga.controls.gate import Ask
from agent_saga.domain import identity
from agent_saga.domain.lifecycle import StepState
from agent_saga.engine import journal, late
from agent_saga.engine.derive import called
from agent_saga.engine.earlier import earlier, read, repeats_safely, window_closed
from agent_saga.engine.endings import Kind, answered, evidence, kind_of, may_fall_back, may_retry
from agent_saga.engine.judging import (
    carried_out,
    changed,
    decided,
    handed_back,
    judged,
    judged_again,
    rechecked,
    stopped,
    told,
)
from agent_saga.engine.outcome import applied, record_inverse_problem
from agent_saga.engine.requests import (
    Call,
    Durable,
    Ending,
    HandedOver,
    Outcome,
    Protocol,
    Sleep,
)
from agent_saga.engine.within import made_effects
from agent_saga.errors import (
    NotApplied,
    RefusedError,
    StepTimeout,
    WALError,
)
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.engine.forms import Form
    from agent_saga.engine.step import Step
    from agent_saga.engine.wrap import Invocation

log = logger("agent_saga.engine")
_APPLIED = Kind.APPLIED.value


def repeated(step: Step, call: Invocation) -> Protocol[Outcome]:
    """Carry out a call that is an earlier step: of the same key, or of the same arguments."""
    if step.scope.saga.read_only:
        return read(step, call)
    outcome = yield from earlier(step, call)
    return outcome or (yield from step_protocol(step, again=True))


def step_protocol(step: Step, *, again: bool = False) -> Protocol[Outcome]:
    """Carry out one call of a step that was admitted; `again`: it was carried out before."""
    saga, tool = step.scope.saga, step.tool
    try:
        harmless = step.state is not StepState.UNKNOWN
        cut: BaseException | None = None
        verdict = judged(step)
        if verdict is not None or tool.prepare is not None or not tool.reversible:
            cut = yield from _made_ready(step, verdict)
        if cut is None and again and tool.reversible:
            cut = _reopened(step)
        if cut is not None:
            return (yield from _forbidden(step, cut))
        call = _call(step, tool.form, identity.FORWARD)
        ending = yield call
        if ending.error is not None:
            return (yield from _failed(step, call, ending, harmless=harmless))
        if saga.engine.gate.endings and (uses := told(step, _APPLIED)):
            yield from carried_out(step, uses)
        outcome, seq = _committed(step, ending.value)
        return (yield from _waited(step, outcome, seq)) if seq else outcome
    finally:
        saga.left(step)
        if step.running:
            late.take_kept(step)


# --- the step ------------------------------------------------------------------------------------


def _made_ready(
    step: Step, verdict: Wait | Ask | BaseException | None
) -> Protocol[BaseException | None]:
    """Do what a verdict and a tool ask for before the call; return what forbids it."""
    cut = None if verdict is None else (yield from decided(step, verdict))
    if cut is None and step.tool.prepare is not None and not _has_been_ready(step):
        cut = yield from _prepared(step, step.tool.prepare)
    if cut is None and not step.tool.reversible:
        try:
            cut = yield from _announced(step)
        except Exception as error:
            cut = error  # the call did not start; what was taken for it is handed back
    elif cut is None and step.call is not None:
        cut = (yield from rechecked(step)) or changed(step)
    return cut


def _has_been_ready(step: Step) -> bool:
    """Say whether an earlier attempt may have had an effect: what was read before it stays."""
    return step.state is StepState.UNKNOWN


def _forbidden(step: Step, cut: BaseException) -> Protocol[Outcome]:
    """Give back what was taken for a call that did not start."""
    if step.call is not None and step.call.held is not None:
        yield from handed_back(step)
    return Outcome(error=cut)


def _prepared(step: Step, form: Form) -> Protocol[BaseException | None]:
    sources = step.sources()
    asked = {name: sources[name] for name in ("args", "idempotency_key")}
    args, kwargs = called(form, asked)
    ending: Ending = yield Call(
        form.fn,
        args,
        kwargs,
        is_async=form.is_async,
        timeout=step.tool.timeout,
        loop_free=step.tool.loop_free,
        what=f"prepare of {step.tool.name}",
    )
    if ending.error is None:
        step.prepared = ending.value
        return None
    return ending.error


def _announced(step: Step) -> Protocol[BaseException | None]:
    """Write the intent, wait until it is durable, look at the switch, check the fence."""
    saga = step.scope.saga
    tool = step.tool
    again = step.state is StepState.UNKNOWN
    step.order = None
    step.intent_order = saga.order()
    provisional = tool.provisional
    if provisional is not None and not (again and step.provisional is not None):
        sources = step.sources(keyed=provisional.asks_key, args=provisional.asks_args)
        step.provisional = provisional.derive(sources)
    if again:
        seq = journal.attempt(step, 0, "repeated with the same idempotency key", step.error)
    else:
        seq = journal.intent(step)
    cut = yield Durable(seq)
    if cut is None and (saga.engine.gate.rechecks or step.requests):
        cut = yield from rechecked(step, saga.engine.wal.synced_at)
    if cut is None:
        # Last, since looking at the switch may take a while: nothing waits between it and the call.
        cut = fence_cut(step, seq) or changed(step)
    if cut is None and again:
        cut = window_closed(step)
    if cut is None:
        return None
    return (yield from _not_started(step, cut, again=again))


def _reopened(step: Step) -> BaseException | None:
    """Announce a REVERSIBLE step that runs again: no outcome can follow an outcome."""
    try:
        if step.state is StepState.UNKNOWN:
            journal.attempt(step, 0, "repeated with the same idempotency key", step.error)
        elif step.state is not StepState.NEW:
            journal.intent(step)
    except RefusedError as refusal:
        return refusal
    return None


def fence_cut(step: Step, announced: int | None = None) -> BaseException | None:
    """Return what forbids the call now that it is announced: a fence, a fork, an unwinding."""
    saga = step.scope.saga
    try:
        saga.check_open(step.scope)
        saga.engine.wal.check_fence(saga.id, saga.epoch, announced)
    except RefusedError as refusal:
        return refusal
    return None


def _not_started(step: Step, cut: BaseException, *, again: bool) -> Protocol[BaseException]:
    try:
        if again:
            seq = journal.unknown(step, "not repeated")
        else:
            seq = journal.not_applied(step, "engine", _why_not(cut), final=True)
    except WALError:
        log.warning("that %s was not started could not be recorded", step.tool.name)
        return cut
    # Else a process that is killed leaves an announcement that may have taken effect.
    yield HandedOver(seq, sync=False)
    return cut


def _why_not(cut: BaseException) -> str:
    reason = f": {cut.reason}" if isinstance(cut, RefusedError) and cut.reason else ""
    return f"the call was not started{reason}"


def _call(step: Step, form: Form, purpose: str) -> Call:
    kwargs, tool = step.kwargs, step.tool
    if form.takes_key and "idempotency_key" not in kwargs:
        kwargs = {**kwargs, "idempotency_key": step.idempotency_key(purpose)}
    if tool.window is not None and step.first_at is None:
        step.first_at = step.scope.saga.engine.clock.monotonic()
    engine = step.scope.saga.engine
    return Call(
        form.fn,
        step.args,
        kwargs,
        form.is_async,
        tool.timeout or engine.timing.step_timeout,
        partial(late.arrived, step, form),
        tool.loop_free,
        what=tool.name,
        stopped=partial(stopped, step) if engine.gate.stops or step.requests else None,
    )


def _failed(step: Step, call: Call, ending: Ending, *, harmless: bool) -> Protocol[Outcome]:
    """Judge an attempt that failed; make another one where that is allowed.

    Args:
        step: the step.
        call: the first attempt.
        ending: how it ended.
        harmless: no earlier call had an effect.
    """
    tool = step.tool
    policy = tool.retry
    number = 1
    while True:
        error = ending.error
        if error is None:
            yield from carried_out(step, told(step, _APPLIED))
            return (yield from _succeeded(step, ending.value))
        kind = kind_of(step, tool.form, ending, call.args, call.kwargs)
        yield from carried_out(step, told(step, kind.value, error))
        step.alone = harmless
        harmless = harmless and kind is Kind.NOT_APPLIED
        _note(step, ending)
        if policy is None or number > policy.max_retries or ending.running:
            break
        if made_effects(step):
            break
        if not may_retry(policy, error, kind, repeats_safely=repeats_safely(step)):
            break
        cut = yield from _between(step, number, kind, error, policy.delay(number))
        if cut is not None:
            return (yield from _ended(step, cut, Kind.NOT_APPLIED if harmless else Kind.UNKNOWN))
        if not may_retry(policy, error, kind, repeats_safely=repeats_safely(step)):
            break  # the window closed during the pause
        number += 1
        call = _call(step, tool.form, identity.FORWARD)
        ending = yield call
    falls_back = tool.fallback is not None and may_fall_back(error, harmless=harmless)
    if tool.fallback is not None and falls_back and not made_effects(step):
        step.alone = harmless
        return (yield from _fallback(step, tool.fallback, error))
    return (yield from _ended(step, error, Kind.NOT_APPLIED if harmless else Kind.UNKNOWN))


def _succeeded(step: Step, value: Any) -> Protocol[Outcome]:
    outcome, seq = _committed(step, value)
    return (yield from _waited(step, outcome, seq)) if seq else outcome


def _note(step: Step, ending: Ending) -> None:
    step.error = ending.error
    step.running = ending.running
    if ending.started and not ending.running:  # what still runs is folded in when it arrives
        last = answered(ending.error, step.tool.no_answer_on, running=ending.running)
        step.answered = step.answered and last
    step.ended_at = step.scope.saga.engine.clock.monotonic()


def _between(
    step: Step, number: int, kind: Kind, error: BaseException, delay: float
) -> Protocol[BaseException | None]:
    """Record an attempt, pause, and judge everything again."""
    if not step.tool.reversible:
        seq = journal.attempt(step, number, kind.value, error)
        yield HandedOver(seq)
    cut: BaseException | None = yield Sleep(delay)
    if cut is not None:
        return cut
    cut = fence_cut(step) or (yield from judged_again(step))
    return cut or changed(step, again=True)


def _told_of_fallback(step: Step, error: BaseException) -> Protocol[BaseException | None]:
    """Announce that the call goes another way: its effect is found under another key.

    An inverse that was made for the first key would undo nothing there, and is dropped.
    """
    tool = step.tool
    if tool.reversible:
        return None
    way: dict[str, object] = {"via": identity.FALLBACK}
    if tool.provisional is not None and tool.provisional.asks_key:
        step.provisional = None
        way["provisional"] = False
    try:
        seq = journal.attempt(step, 0, "not applied", error, **way)
    except WALError as trouble:
        return trouble
    cut: BaseException | None = yield Durable(seq)
    return cut


def _fallback(step: Step, form: Form, error: BaseException) -> Protocol[Outcome]:
    cut = (yield from _told_of_fallback(step, error)) or fence_cut(step)
    cut = cut or (yield from rechecked(step)) or changed(step, again=True)
    if cut is not None:
        return (yield from _ended(step, cut, Kind.NOT_APPLIED))
    step.via, step.fell_back = identity.FALLBACK, True
    call = _call(step, form, identity.FALLBACK)
    ending = yield call
    kind = kind_of(step, form, ending, call.args, call.kwargs)
    if kind is Kind.APPLIED:
        return (yield from _succeeded(step, ending.value))
    _note(step, ending)
    return (yield from _ended(step, ending.error or error, kind))


# --- outcomes --------------------------------------------------------------------------------


def _committed(step: Step, value: Any) -> tuple[Outcome, int]:
    """Record an effect that happened.

    Returns:
        What the caller gets, and the record that it has to wait for before; 0 for none.
    """
    saga, tool = step.scope.saga, step.tool
    applied(step, value)
    try:
        seq, problem = journal.committed(step)
    except WALError as error:
        return Outcome(error=error), 0
    step.call = None  # what was judged is of no more use; a saga may hold many steps
    saga.counts["committed"] += 1
    raised = None if problem is None else record_inverse_problem(step, problem)
    outcome = Outcome(value) if raised is None else Outcome(error=raised)
    try:
        out = saga.engine.wal.hand_over(sync=not tool.reversible)
    except WALError as error:
        return Outcome(error=error), 0
    if out and (tool.reversible or not _durably(step)):
        return outcome, 0
    return outcome, seq


def _durably(step: Step) -> bool:
    """Say whether the caller sees the result only when the outcome is durable."""
    tool = step.tool
    return not tool.reversible and (tool.durable or step.scope.saga.durable)


def _waited(step: Step, outcome: Outcome, seq: int) -> Protocol[Outcome]:
    """Wait for an outcome's record; return what the caller gets then."""
    cut = yield Durable(seq) if _durably(step) else HandedOver(seq, asked=True)
    return outcome if cut is None else Outcome(error=cut)


def _ended(step: Step, error: BaseException, kind: Kind) -> Protocol[Outcome]:
    """Record an ending that was no success, and give its error to the caller."""
    saga = step.scope.saga
    try:
        if kind is Kind.NOT_APPLIED:
            step.running = False
            step.spent = isinstance(step.error, NotApplied) and step.error.final
            seq = journal.not_applied(step, "tool", evidence(step.error), final=True)
        else:
            seq = journal.unknown(step, _ending_name(step))
            saga.engine.metrics.count("steps_unknown")
    except WALError as trouble:
        log.warning("the ending of %s could not be recorded: %s", step.tool.name, trouble)
        return Outcome(error=error)
    cut = yield HandedOver(seq, sync=not step.tool.reversible)
    return Outcome(error=error if cut is None else cut)


def _ending_name(step: Step) -> str:
    if isinstance(step.error, StepTimeout):
        return "timeout"
    if step.answered and not step.running:
        return "exception"
    return "no answer"

"""The attempts of one step: the call, its retries, and the other way if there is one.

Rules of this part:

- All attempts share the step's idempotency key; the fallback has a key of its own.
- Between two attempts there is a record and a pause, and then everything is judged again.
- A step had no effect only if none of its attempts had one; only then it falls back.
- A step of which no call was ever made (it was cancelled, halted or given up while it waited for
  its turn) hands back what the gate took for it, as one that was refused does.
- An attempt that made steps of its own that took effect is the last one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from agent_saga.domain import identity
from agent_saga.domain.effective import NOT_STARTED
from agent_saga.engine import journal, late
from agent_saga.engine.earlier import repeats_safely
from agent_saga.engine.endings import Kind, answered, kind_of, may_fall_back, may_retry
from agent_saga.engine.judging import (
    carried_out,
    changed,
    handed_back,
    judged_again,
    rechecked,
    stopped,
    told,
    told_of_success,
)
from agent_saga.engine.recording import committed, ended, waited
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
from agent_saga.errors import RefusedError, WALError

if TYPE_CHECKING:
    from agent_saga.engine.forms import Form
    from agent_saga.engine.retry import RetryPolicy
    from agent_saga.engine.step import Step


def call_of(step: Step, form: Form, purpose: str) -> Call:
    """Return the next attempt at a call: forward, or as its fallback."""
    args, kwargs, tool = step.args, step.kwargs, step.tool
    if form.takes_key:
        args, kwargs = form.with_key(args, kwargs, step.effect_key(purpose))
    if tool.window is not None and step.first_at is None:
        step.first_at = step.saga.engine.clock.monotonic()
    engine = step.saga.engine
    timeout = tool.timeout or engine.timing.step_timeout
    if timeout is None and form.is_async:  # nobody gives it up, and it waits for no thread
        return Call(form.fn, args, kwargs, True, None, None, tool.loop_free, what=tool.name)
    return Call(
        form.fn,
        args,
        kwargs,
        form.is_async,
        timeout,
        partial(late.arrived, step, form),
        tool.loop_free,
        what=tool.name,
        stopped=partial(stopped, step) if engine.gate.stops or step.requests else None,
    )


def fence_cut(step: Step, announced: int | None = None) -> BaseException | None:
    """Return what forbids the call now that it is announced: a fence, a fork, an unwinding."""
    saga = step.saga
    try:
        saga.check_open(step.scope)
        saga.engine.wal.check_fence(saga.id, saga.epoch, announced)
    except RefusedError as refusal:
        return refusal
    return None


def failed(step: Step, call: Call, ending: Ending, *, harmless: bool) -> Protocol[Outcome]:
    """Judge an attempt that failed; make another one where that is allowed.

    Args:
        step: the step.
        call: the first attempt.
        ending: how it ended.
        harmless: no earlier call had an effect.
    """
    policy = step.tool.retry
    number = 1
    made = not harmless
    while (error := ending.error) is not None:
        kind = kind_of(step, step.tool.form, ending, call.args, call.kwargs)
        made = made or ending.started
        if made:
            yield from carried_out(step, told(step, kind.value, error))
        step.alone = harmless
        harmless = harmless and kind is Kind.NOT_APPLIED
        _note(step, ending)
        if policy is None or not _may_try_again(step, policy, number, kind, ending):
            return (yield from _given_up(step, error, harmless=harmless, made=made))
        cut = yield from _between(step, number, kind, error, policy.delay(number))
        if cut is not None:
            return (yield from _over(step, cut, _kind_of_all(harmless=harmless), made=made))
        if not may_retry(policy, error, kind, repeats_safely=repeats_safely(step)):
            # The window closed during the pause.
            return (yield from _given_up(step, error, harmless=harmless, made=made))
        number += 1
        call = call_of(step, step.tool.form, identity.FORWARD)
        ending = yield call
    yield from carried_out(step, told_of_success(step))
    return (yield from _succeeded(step, ending.value))


def _may_try_again(
    step: Step, policy: RetryPolicy, number: int, kind: Kind, ending: Ending
) -> bool:
    error = ending.error
    if error is None or number > policy.max_retries or ending.running or made_effects(step):
        return False
    return may_retry(policy, error, kind, repeats_safely=repeats_safely(step))


def _kind_of_all(*, harmless: bool) -> Kind:
    """Return how all attempts together ended, of which none is known to have taken effect."""
    return Kind.NOT_APPLIED if harmless else Kind.UNKNOWN


def _given_up(step: Step, error: BaseException, *, harmless: bool, made: bool) -> Protocol[Outcome]:
    """Go another way if there is one, after the last attempt; else the step ends so."""
    fallback = step.tool.fallback
    if fallback is not None and may_fall_back(error, harmless=harmless) and not made_effects(step):
        step.alone = harmless
        return (yield from _fallback(step, fallback, error, made=made))
    return (yield from _over(step, error, _kind_of_all(harmless=harmless), made=made))


def _over(step: Step, error: BaseException, kind: Kind, *, made: bool) -> Protocol[Outcome]:
    """Record that a step took no effect, as far as is known; `made`: a call of it was made."""
    if made:
        return (yield from ended(step, error, kind))
    outcome = yield from ended(step, error, kind, by=NOT_STARTED)
    yield from handed_back(step)
    return outcome


def _succeeded(step: Step, value: Any) -> Protocol[Outcome]:
    outcome, seq = committed(step, value)
    return (yield from waited(step, outcome, seq)) if seq else outcome


def _note(step: Step, ending: Ending) -> None:
    step.error = ending.error
    step.running = ending.running
    if ending.started and not ending.running:  # what still runs is folded in when it arrives
        last = answered(ending.error, step.tool.no_answer_on, running=ending.running)
        step.answered = step.answered and last
    step.ended_at = step.saga.engine.clock.monotonic()


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


def _fallback(step: Step, form: Form, error: BaseException, *, made: bool) -> Protocol[Outcome]:
    cut = (yield from _told_of_fallback(step, error)) or fence_cut(step)
    cut = cut or (yield from rechecked(step)) or changed(step, again=True)
    if cut is not None:
        return (yield from _over(step, cut, Kind.NOT_APPLIED, made=made))
    step.via, step.fell_back = identity.FALLBACK, True
    call = call_of(step, form, identity.FALLBACK)
    ending = yield call
    kind = kind_of(step, form, ending, call.args, call.kwargs)
    if kind is Kind.APPLIED:
        return (yield from _succeeded(step, ending.value))
    _note(step, ending)
    told_error = error if ending.error is None else ending.error
    return (yield from _over(step, told_error, kind, made=made or ending.started))

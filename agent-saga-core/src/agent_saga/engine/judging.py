"""Asking the gate about a step, and whoever the gate names.

Rules of this part:

- `judged` is the quick way: what answers at once is judged without a request to the driver, and a
  step that nothing concerns costs one look. Whatever else it returns is for `decided`.
- Arguments are frozen by their MAC: if they changed between the verdict and the effect, the call is
  refused.
- After every answer the boundary is looked at again and the gate judges again.
- A refusal is recorded, with its decision; then what the call took is handed back; then its caller
  is told.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from agent_saga.controls.control import CallView, Evaluate, Use, Wait
from agent_saga.controls.gate import APPROVALS, Ask
from agent_saga.domain.lifecycle import StepState
from agent_saga.engine import journal
from agent_saga.engine.as_called import FIXED
from agent_saga.engine.asking import (
    asked,
    asked_about_failure,
    consumed,
    given_back,
    stands,
)
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.endings import Kind
from agent_saga.engine.requests import Call, Ending, HandedOver, Protocol
from agent_saga.errors import ApprovalPending, RefusedError, WALError, one_line
from agent_saga.observe.logger import logger
from agent_saga.wal.encoding import mac, same_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step

__all__ = [
    "asked_about_failure",
    "carried_out",
    "changed",
    "decided",
    "handed_back",
    "judged",
    "judged_again",
    "kept_from_undoing",
    "rechecked",
    "stopped",
    "told",
    "told_of_success",
]

log = logger("agent_saga.engine")
_APPLIED = Kind.APPLIED.value
Verdict = Wait | Ask | BaseException | None


def judged(step: Step) -> Verdict:
    """Judge a step that nobody was asked about; None lets it go on."""
    gate = step.saga.engine.gate
    tool = step.tool
    if gate.calm is not None and not tool.asks_human and gate.calm(look=tool.reversible):
        step.call = None
        return None
    call = step.call = _view(step)
    step.requests = ()
    try:
        return gate.judge(call)
    except Exception as error:
        return _refusal_of(error)


def _view(step: Step) -> CallView:
    tool, saga = step.tool, step.saga
    view = CallView(
        tool.name,
        tool.semantics,
        step.arguments,
        tool.tags,
        step.named,
        tool.declares,
        saga.id,
        step.id,
        step.generation,
        began=saga.began,
        opened=saga.opened,
        risky_inverse=tool.risky_inverse,
        repeated=step.state is StepState.UNKNOWN,
    )
    declared = saga.engine.gate.declared
    if declared and tool.name in declared:
        declared[tool.name].complete(view)
    return view


def decided(step: Step, verdict: Verdict) -> Protocol[BaseException | None]:
    """Ask whoever must be asked; return what keeps the step from going on, or None."""
    while True:
        if isinstance(verdict, Wait):
            verdict = yield from _waited(step, verdict)
        if isinstance(verdict, Ask):
            cut = yield from asked(step, verdict)
            verdict = _anew(step) if cut is None else cut
        elif isinstance(verdict, BaseException):
            return (yield from _refused(step, verdict))
        elif verdict is None:
            cut = yield from consumed(step)
            return cut if cut is None else (yield from _refused(step, cut))


def pending_question(step: Step) -> Protocol[ApprovalPending | None]:
    """Ask about a step that is not made; return the question that waits for a human, or None."""
    verdict: Verdict = judged(step)
    while isinstance(verdict, (Wait, Ask)):
        if isinstance(verdict, Wait):
            verdict = yield from _waited(step, verdict)
        else:
            cut = yield from asked(step, verdict)
            verdict = _anew(step) if cut is None else cut
    return verdict if isinstance(verdict, ApprovalPending) else None


def judged_again(step: Step) -> Protocol[BaseException | None]:
    """Judge a step once more after a wait; approvals that it has keep counting."""
    if step.call is None:
        return (yield from rechecked(step))
    verdict = _anew(step)
    found = (yield from _waited(step, verdict)) if isinstance(verdict, Wait) else verdict
    if isinstance(found, Ask):
        return RefusedError(
            f"{step.tool.name} needs a new approval after a pause.",
            rule=found.rule,
            reason=found.reason,
            control=APPROVALS,
        )
    return (yield from stands(step)) if found is None and step.requests else found


def rechecked(step: Step, announced: float = math.inf) -> Protocol[BaseException | None]:
    """Have the controls that ask for it judge directly before the call.

    Args:
        step: the step.
        announced: see `CallView`.
    """
    call, gate = step.call, step.saga.engine.gate
    if call is None:
        if gate.calm is not None and gate.calm(look=True):
            return None
        call = _view(step)  # every control of such a gate judges here as it judged before
    call.announced = announced
    cut = yield from _all_of(gate.rechecks, call)
    call.announced = math.inf  # a later attempt, or a call that waited for a thread, looks anew
    return (yield from stands(step)) if cut is None and step.requests else cut


def stopped(step: Step) -> BaseException | None:
    """Return what keeps a call from being made that waited for a thread; on that thread."""
    if step.saga.engine.gate.quiet(look=True) and not step.requests:
        return None
    return SyncDriver(step.saga.engine).drive(_kept_from_starting(step))


def _kept_from_starting(step: Step) -> Protocol[BaseException | None]:
    stops = step.saga.engine.gate.stops
    cut = yield from _all_of(stops, step.call or _view(step))
    return (yield from stands(step)) if cut is None and step.requests else cut


def kept_from_undoing(saga: Saga) -> Protocol[BaseException | None]:
    """Return what keeps a saga from being undone further: a quarantine."""
    for judge in saga.engine.gate.undoings:
        try:
            wait = judge(saga.id)
        except RefusedError as refusal:
            return refusal
        cut = None if wait is None else (yield from _answered(wait))
        if cut is not None:
            return cut
    return None


def handed_back(step: Step) -> Protocol[None]:
    """Hand back what the gate took for a call that did not start; the log says so already."""
    call = step.call
    if call is None:
        return
    gate = step.saga.engine.gate
    yield from given_back(step, (call.held or {}).get(APPROVALS, ()))
    for release in gate.releases:
        ending = Ending()
        try:
            use = release(call)
        except Exception as error:
            use, ending = None, Ending(error=error)
        if use is not None:
            ending = yield use
        _not_raised("what it had taken was not handed back", step, ending)
    call.held = None


def carried_out(step: Step, uses: Iterable[Use]) -> Protocol[None]:
    """Carry out what controls want done now that an attempt has ended; see `told`."""
    for use in uses:
        ending: Ending = yield use
        _not_raised("a control did not learn how it ended", step, ending)


def told_of_success(step: Step) -> Sequence[Use]:
    """Tell the controls, if one has to hear of it, that an attempt took effect; see `told`."""
    name = step.tool.name
    for tools in step.saga.engine.gate.hears:
        if tools is None or name in tools:
            return told(step, _APPLIED)
    return ()


def told(step: Step, how: str, error: BaseException | None = None) -> Sequence[Use]:
    """Tell the controls that ask for it how an attempt ended; return what they want done."""
    call = step.call
    uses: list[Use] = []
    if call is None:
        return uses
    for ended in step.saga.engine.gate.endings:
        try:
            use = ended(call, how, error)
        except Exception as trouble:
            _not_raised("a control did not learn how it ended", step, Ending(error=trouble))
            continue
        if use is not None:
            uses.append(use)
    return uses


def changed(step: Step, *, again: bool = False) -> RefusedError | None:
    """Return a refusal if the arguments are no longer those that were judged.

    Args:
        step: the step.
        again: a further attempt would be made with them; the log holds others, and whoever undoes
            it would go by those.
    """
    if not step.shown and FIXED.issuperset(map(type, step.arguments.values())):
        return None  # nobody else had their dict, and what is in it cannot change
    reads = again or step.saga.engine.gate.reads_arguments or step.tool.irreversible
    if not reads and not step.approved_rules:
        return None
    if _as_judged(step):
        return None
    return RefusedError(
        f"The arguments of {step.tool.name} changed after they had been judged; it was not run.",
        rule="arguments",
        reason="a verdict counts for the arguments that it was given for",
        fix="Give the call values that nobody changes meanwhile.",
    )


def _as_judged(step: Step) -> bool:
    """Say whether the arguments are still those of the call, as far as that can be told."""
    if step.encoded is not None and not step.known_mac:
        return same_arguments(step.encoded, step.arguments)
    salt = step.saga.salt
    now = mac(salt, step.arguments)
    # An object without a state never equals itself: it cannot be told whether it changed.
    return now == step.mac or (not step.approved_rules and mac(salt, step.arguments) != now)


# --- waiting for stores and rules ----------------------------------------------------------------


def _anew(step: Step) -> Verdict:
    """Judge a call from the beginning, with what was approved so far."""
    call = step.call
    if call is None:
        return judged(step)
    call.asks = None
    try:
        return step.saga.engine.gate.judge(call)
    except Exception as error:
        return _refusal_of(error)


def _waited(step: Step, wait: Wait) -> Protocol[Ask | BaseException | None]:
    """Get the answers that controls wait for, until the gate has judged."""
    call, gate = step.call, step.saga.engine.gate
    pending: Wait | None = wait
    while pending is not None and call is not None:
        at = pending.at
        cut = yield from _answered(pending)
        if cut is not None:
            return cut
        try:
            found = gate.judge(call, at + 1)
        except Exception as error:
            return _refusal_of(error)
        if not isinstance(found, Wait):
            return found
        pending = found
    return None


def _answered(wait: Wait | None) -> Protocol[BaseException | None]:
    """Get what one control waits for, until it has judged."""
    while wait is not None:
        ending: Ending = yield _request_of(wait.request)
        error = ending.error
        if error is not None and not isinstance(error, Exception):
            return error
        try:
            wait = wait.then(ending.value, error)
        except Exception as trouble:
            return _refusal_of(trouble)
    return None


def _refusal_of(error: Exception) -> RefusedError:
    """Return a refusal as it is; whatever else a control raises refuses too."""
    if isinstance(error, RefusedError):
        return error
    refusal = RefusedError(
        f"A control of the gate could not judge the call, so it was refused: {one_line(error)}.",
        rule="gate",
        reason="what cannot be judged is refused",
        fix="Mend the control, or take it away.",
    )
    refusal.__cause__ = error
    return refusal


def _all_of(
    judges: Sequence[Callable[[CallView], Wait | None]], call: CallView
) -> Protocol[BaseException | None]:
    for judge in judges:
        try:
            wait = judge(call)
        except Exception as error:
            return _refusal_of(error)
        cut = None if wait is None else (yield from _answered(wait))
        if cut is not None:
            return cut
    return None


def _request_of(request: Use | Evaluate) -> Use | Call:
    if isinstance(request, Use):
        return request
    return Call(
        request.fn,
        request.args,
        is_async=request.is_async,
        timeout=request.timeout,
        loop_free=True,
        what=request.what,
    )


def _not_raised(what: str, step: Step, ending: Ending) -> None:
    if ending.error is not None:
        log.warning("%s: %s (%s)", step.tool.name, what, one_line(ending.error))


def _refused(step: Step, cut: BaseException) -> Protocol[BaseException]:
    """Record a refusal; what is no refusal passes as it came."""
    if not isinstance(cut, RefusedError):
        return cut
    step.saga.engine.metrics.count("steps_refused")
    try:
        seq = journal.refused(step, cut)
    except WALError:
        log.warning("a refusal of %s could not be recorded", step.tool.name)
        return cut
    yield HandedOver(seq, sync=False)
    return cut

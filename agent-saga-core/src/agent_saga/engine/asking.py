"""Asking a human about a step, and what follows from the answer.

Rules of this part:

- That a question is put is in the log before it is put, and the answer after it came.
- Arguments are frozen by their MAC: if they changed while a human was asked, the answer counts for
  nothing.
- A yes may be taken back until the effect begins; so it is looked at directly before, and before
  every further attempt. What cannot be read refuses.
- A question that waits for its answer elsewhere (`ApprovalPending`) is no refusal: the call has not
  begun, and is made again when the saga is resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.controls.approvals import ApprovalRequest, approver_of, denied
from agent_saga.controls.gate import APPROVALS, FAILURE_RULE, Ask
from agent_saga.engine import journal
from agent_saga.engine.requests import Call, Ending, HandedOver, Protocol
from agent_saga.errors import ApprovalDenied, ApprovalPending, RefusedError, WALError, one_line
from agent_saga.observe.logger import logger
from agent_saga.plugins.callables import is_async_callable
from agent_saga.wal.encoding import mac

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step

log = logger("agent_saga.engine")


def asked(step: Step, ask: Ask) -> Protocol[BaseException | None]:
    """Ask a human; return what forbids the call, or None after a yes."""
    call = step.call
    request = _request(step, ask)
    if call is not None:  # what it takes is handed back, however the asking ends
        call.hold(APPROVALS, (*(call.held or {}).get(APPROVALS, ()), request))
    ending = yield from _answer_to(step, ask, request)
    try:
        by = _approver(step, request, ending)
    except RefusedError as refusal:
        _note_answer(step, request, ending, "")
        return refusal
    if ending.error is not None:
        return ending.error
    step.approved_by = by
    _note_answer(step, request, ending, by)
    step.requests = (*step.requests, request)
    step.approved_rules |= {ask.rule}
    if call is not None:
        call.approved = step.approved_rules
    try:
        step.saga.check_open(step.scope)
    except RefusedError as refusal:
        return refusal
    return None


def asked_about_failure(step: Step, reason: str) -> Protocol[BaseException | None]:
    """Ask whether a run may go on after a step of it failed; fails closed.

    Args:
        step: the step that failed.
        reason: how, in words.

    Returns:
        None if it may go on, else what keeps it from that: a denial, or a question that waits.
    """
    gate = step.saga.engine.gate
    if gate.provider is None:
        return ApprovalDenied(
            f"Nobody can be asked whether to go on after {step.tool.name} failed.",
            rule=FAILURE_RULE,
            reason=reason,
        )
    ask = Ask(FAILURE_RULE, reason, gate.provider, gate.timeout)
    request = _request(step, ask)
    ending = yield from _answer_to(step, ask, request)
    try:
        by = _approver(step, request, ending)
    except RefusedError as refusal:
        _note_answer(step, request, ending, "")
        yield from given_back(step, (request,))
        return refusal
    if ending.error is None:
        _note_answer(step, request, ending, by)
    else:
        yield from given_back(step, (request,))
    return ending.error


def given_back(step: Step, requests: Iterable[ApprovalRequest]) -> Protocol[None]:
    """Give back what requests took of standing grants; nothing begins by them any more."""
    giving = getattr(step.saga.engine.gate.provider, "release", None)
    for request in requests:
        use = None if giving is None else giving(request)
        if use is None:
            continue
        ending: Ending = yield use
        if ending.error is not None:
            told = one_line(ending.error)
            log.warning("%s: its share of a grant was not given back (%s)", step.tool.name, told)


def _answer_to(step: Step, ask: Ask, request: ApprovalRequest) -> Protocol[Ending]:
    """Put a question to whoever can be asked; that it was put is in the log before."""
    try:
        seq = journal.asked(step, request.id, ask.rule, ask.reason)
    except WALError as trouble:
        return Ending(error=trouble)
    cut: BaseException | None = yield HandedOver(seq, sync=False)
    if cut is not None:
        return Ending(error=cut, started=False)
    ending: Ending = yield _question(step, ask, request)
    return ending


def _note_answer(step: Step, request: ApprovalRequest, ending: Ending, by: str) -> None:
    """Record how a question ended; the decision counts also where that cannot be recorded."""
    note = str(getattr(ending.value, "note", "") or "")
    expired = isinstance(ending.error, TimeoutError) or getattr(ending.value, "expired", False)
    try:
        journal.answered(step, request.id, request.rule, by, note, expired=expired is True)
    except WALError:
        log.warning("the answer about %s could not be recorded", step.tool.name)


def consumed(step: Step) -> Protocol[BaseException | None]:
    """Have the approvals of a step used up, now that nothing else keeps it from starting."""
    provider = step.saga.engine.gate.provider
    consume = getattr(provider, "consume", None)
    for request in step.requests:
        use = None if consume is None else consume(request)
        if use is None:
            continue
        ending: Ending = yield use
        if ending.error is not None:
            return denied(request, f"it could not be used ({one_line(ending.error)})")
        if ending.value != "":
            return denied(request, f"it cannot be used: {ending.value}")
    return None


def stands(step: Step) -> Protocol[BaseException | None]:
    """Return what forbids a call that was approved: somebody has taken the yes back meanwhile."""
    looks = getattr(step.saga.engine.gate.provider, "stands", None)
    if looks is None:
        return None
    for request in step.requests:
        ending: Ending = yield looks(request)
        if ending.error is not None:
            return denied(request, f"whether it still counts is unknown ({one_line(ending.error)})")
        if ending.value != "":
            return denied(request, f"it counts no more: {ending.value}")
    return None


def _request(step: Step, ask: Ask) -> ApprovalRequest:
    step.shown = True
    request = ApprovalRequest(
        step.saga.id,
        step.id,
        step.generation,
        step.tool.name,
        ask.rule,
        ask.reason,
        step.arguments,
        step.mac,
        _requesters(step.saga),
    )
    if step.call is not None:  # a policy may read an amount from elsewhere than the call names it
        request.exact = step.call.arguments
    return request


def _requesters(saga: Saga) -> tuple[str, ...]:
    """Return who asks: the kit, and for whom it acts if the boundary's labels say so."""
    names = [getattr(saga.kit, "name", None) or "agent"]
    told = saga.labels.get("requester")
    names += told if isinstance(told, list | tuple) else [told]
    return tuple(name for name in names if isinstance(name, str) and name.strip())


def _question(step: Step, ask: Ask, request: ApprovalRequest) -> Call:
    bound = ask.timeout
    if bound is None:
        bound = getattr(ask.provider, "timeout", None)
    if bound is None:
        bound = step.saga.engine.timing.approval
    return Call(
        ask.provider.ask,
        (request,),
        is_async=is_async_callable(ask.provider.ask),
        timeout=bound,
        loop_free=True,
        what="the question to a human",
    )


def _approver(step: Step, request: ApprovalRequest, ending: Ending) -> str:
    error = ending.error
    if isinstance(error, ApprovalPending):
        return ""
    if isinstance(error, TimeoutError):
        raise denied(request, "nobody answered in time")
    if isinstance(error, Exception):
        raise denied(request, f"asking failed ({one_line(error)})")
    if error is not None:
        return ""
    by = approver_of(ending.value, request)
    if mac(step.saga.salt, step.arguments) != step.mac:
        raise denied(
            request,
            "its arguments changed while the human was asked, or hold an object without a state, "
            "to which no approval can be bound",
        )
    return by

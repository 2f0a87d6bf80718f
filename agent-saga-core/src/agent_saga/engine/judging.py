"""Asking the gate about a step, and a human if the gate says so.

Rules of this part:

- Arguments are frozen by their MAC: if they changed while a human was asked, or between the
  verdict and the effect, the call is refused.
- After every answer the boundary is looked at again and the gate judges again.
- A refusal is recorded and then given to the caller.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from agent_saga.controls.approvals import ApprovalRequest, approver_of, denied
from agent_saga.controls.gate import Ask
from agent_saga.controls.rules import CallView
from agent_saga.engine import journal
from agent_saga.engine.requests import Call, Ending, Protocol
from agent_saga.errors import RefusedError, WALError, one_line
from agent_saga.plugins.callables import is_async_callable
from agent_saga.wal.encoding import mac

if TYPE_CHECKING:
    from agent_saga.engine.step import Step

log = logging.getLogger("agent_saga.engine")
_NOTHING: Final[frozenset[str]] = frozenset()


def judged(step: Step) -> Ask | RefusedError | None:
    """Judge a step that nobody was asked about: None lets it go on, an `Ask` is for `asked`."""
    gate = step.scope.saga.engine.gate
    tool = step.tool
    step.approved_rules = _NOTHING
    if not gate.rules and not tool.irreversible:
        return None
    try:
        return gate.judge(
            CallView(tool.name, tool.semantics, step.arguments, tool.tags, named=step.named)
        )
    except RefusedError as refusal:
        return _refused(step, refusal)


def asked(step: Step, ask: Ask) -> Protocol[BaseException | None]:
    """Ask, as long as the gate wants it; return what keeps the step from going on, or None."""
    approved: frozenset[str] = frozenset()
    while True:
        request = _request(step, ask)
        ending: Ending = yield _question(step, ask, request)
        try:
            step.approved_by = _approver(step, request, ending)
        except RefusedError as refusal:
            return _refused(step, refusal)
        if ending.error is not None:
            return ending.error
        approved |= {ask.rule}
        try:
            step.scope.saga.check_open(step.scope)
            further = step.scope.saga.engine.gate.judge(_view(step), approved)
        except RefusedError as refusal:
            return _refused(step, refusal)
        if further is None:
            step.approved_rules = approved
            return None
        ask = further


def judged_again(step: Step) -> BaseException | None:
    """Judge a step once more after a wait; approvals that it has keep counting."""
    gate = step.scope.saga.engine.gate
    if not gate.concerns(step.tool.semantics):
        return None
    try:
        ask = gate.judge(_view(step), step.approved_rules)
    except RefusedError as refusal:
        return refusal
    if ask is None:
        return None
    return RefusedError(
        f"{step.tool.name} needs a new approval after a pause.", rule=ask.rule, reason=ask.reason
    )


def changed(step: Step) -> RefusedError | None:
    """Return a refusal if the arguments are no longer those that were judged."""
    saga = step.scope.saga
    if not saga.engine.gate.concerns(step.tool.semantics):
        return None
    now = mac(saga.salt, step.arguments)
    if now == step.mac or (not step.approved_rules and mac(saga.salt, step.arguments) != now):
        return None  # the same, or an object without a state, which never equals itself
    return RefusedError(
        f"The arguments of {step.tool.name} changed after they had been judged; it was not run.",
        rule="arguments",
        reason="a verdict counts for the arguments that it was given for",
        fix="Give the call values that nobody changes meanwhile.",
    )


def _view(step: Step) -> CallView:
    tool = step.tool
    return CallView(tool.name, tool.semantics, step.arguments, tool.tags, named=step.named)


def _request(step: Step, ask: Ask) -> ApprovalRequest:
    return ApprovalRequest(
        step.scope.saga.id,
        step.id,
        step.generation,
        step.tool.name,
        ask.rule,
        ask.reason,
        step.arguments,
        step.mac,
    )


def _question(step: Step, ask: Ask, request: ApprovalRequest) -> Call:
    bound = ask.timeout
    if bound is None:
        bound = step.scope.saga.engine.timing.approval
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
    if isinstance(error, TimeoutError):
        raise denied(request, "nobody answered in time")
    if isinstance(error, Exception):
        raise denied(request, f"asking failed ({one_line(error)})")
    if error is not None:
        return ""
    by = approver_of(ending.value, request)
    if mac(step.scope.saga.salt, step.arguments) != step.mac:
        raise denied(
            request,
            "its arguments changed while the human was asked, or hold an object without a state, "
            "to which no approval can be bound",
        )
    return by


def _refused(step: Step, refusal: RefusedError) -> RefusedError:
    step.scope.saga.engine.metrics.count("steps_refused")
    try:
        journal.refused(step, refusal.rule, refusal.reason)
    except WALError:
        log.warning("a refusal of %s could not be recorded", step.tool.name)
    return refusal

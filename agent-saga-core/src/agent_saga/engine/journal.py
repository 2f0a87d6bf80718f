"""What the engine writes: one function for each record, and the one place that appends them.

Rules of this part:

- A function here asks the lifecycle table first, then appends, then changes the state: what the
  table forbids is never written, and a state in memory is never ahead of the log.
- Forward arguments and results are masked; an inverse's arguments and prepared data are exact.
- Whoever needs a record out or durable waits for the sequence number that is returned.
- A forked child writes nothing of its parent's sagas: `SagaForked`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from agent_saga.domain.compensation import Compensation
from agent_saga.domain.doubt import OBSERVED, ONCE, Doubt, doubt_after, once_after
from agent_saga.domain.lifecycle import SagaState, StepState, saga_after, scope_after, step_after
from agent_saga.domain.records import Ev
from agent_saga.engine.as_called import FIXED
from agent_saga.engine.payloads import (
    b64,
    call_fields,
    error_text,
    inverse_of,
    recipe,
    recorded_inverse,
    taken,
)
from agent_saga.errors import AgentSagaError
from agent_saga.wal.encoding import (
    EMPTY,
    Fragment,
    compose,
    composed,
    count,
    decode,
    exact,
    literal,
    masked,
    opaque,
)
from agent_saga.wal.os_port import FORKS

if TYPE_CHECKING:
    from agent_saga.domain.fold import Fork
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.scope import Scope
    from agent_saga.engine.step import Step
    from agent_saga.errors import RefusedError

_TRUE = literal(True)
_FALSE = literal(False)


def write(saga: Saga, event: str, payload: Fragment = EMPTY, step: Step | None = None) -> int:
    """Append a record of a saga, its beginning first; return the sequence number."""
    if saga.begun_in != FORKS.generation:
        _begin(saga)
    if step is None:
        return saga.engine.wal.append(event, saga=saga.id, epoch=saga.epoch, payload=payload)
    return saga.engine.wal.append(
        event,
        saga=saga.id,
        epoch=saga.epoch,
        step=step.id,
        generation=step.generation,
        payload=payload,
    )


def _begin(saga: Saga) -> None:
    """Record the beginning of a saga, unless it is recorded; refuse in a forked child."""
    saga.check_fork()
    with saga.lock:
        if saga.begun:
            return
        about: dict[str, Any] = {"name": saga.name, "labels": saga.labels}
        if saga.key:
            about["key"] = saga.key
        if saga.hold is not None:
            about |= {"on_crash": "hold", "resume_grace": saga.hold}
        payload, _ = masked(about)
        saga.engine.wal.append(
            Ev.SAGA_BEGIN, saga=saga.id, epoch=saga.epoch, payload=_with_salt(payload, saga.salt)
        )
        saga.move(Ev.SAGA_BEGIN)
        saga.begun_in = saga.fork


def _with_salt(payload: Fragment, salt: bytes) -> Fragment:
    return compose(about=payload, salt=literal(b64(salt)))


# --- the saga and its scopes ---------------------------------------------------------------------


def saga_event(saga: Saga, event: str, **fields: Any) -> int:
    """Record a change of the whole saga."""
    return _saga_record(saga, event, masked(fields)[0])


def _saga_record(saga: Saga, event: str, payload: Fragment) -> int:
    if saga.begun_in != FORKS.generation:
        _begin(saga)
    following = saga_after(saga.state, event)
    seq = write(saga, event, payload)
    saga.state = following
    return seq


def resumed(saga: Saga, fork: Fork | None = None) -> int:
    """Record that a saga goes on, and which of its steps are left for another way, if any."""
    if fork is None:
        return _saga_record(saga, Ev.SAGA_RESUMED, EMPTY)
    left = step_list(fork.abandoned)
    told = compose(at=literal(fork.at), abandoned=left, what=literal(fork.what))
    return _saga_record(saga, Ev.SAGA_RESUMED, compose(fork=told))


def step_list(steps: Collection[str]) -> Fragment:
    """Encode the ids of steps that a record is about; all of them, or none.

    Raises:
        NotRecordable: there are too many for one record.
    """
    return literal(sorted(steps))


def step_record(step: Step, event: str, payload: Fragment) -> int:
    """Append a record of a step and change its state."""
    following = step_after(step.state, event)
    saga = step.saga
    if saga.begun_in != FORKS.generation:
        _begin(saga)
    seq = saga.engine.wal.append(
        event,
        saga=saga.id,
        epoch=saga.epoch,
        step=step.id,
        generation=step.generation,
        payload=payload,
    )
    step.state = following
    return seq


def unwinding(scope: Scope, cause: str) -> int:
    """Record that a scope is being undone."""
    fields = {"cause": masked(cause)[0], "scope": masked(list(scope.path))[0]}
    saga = scope.saga
    if scope.parent is None:
        if saga.state is SagaState.COMMITTED:
            fields["after_commit"] = _TRUE
        if saga.only is not None:
            fields |= {"to": literal(saga.undo_to), "only": step_list(saga.only)}
        return _saga_record(saga, Ev.SAGA_UNWINDING, composed(fields))
    following = scope_after(scope.state, "UNWINDING")
    seq = write(scope.saga, Ev.SAGA_UNWINDING, composed(fields))
    scope.state = following
    return seq


def scope_opened(scope: Scope) -> int:
    """Record that a savepoint was entered."""
    following = scope_after(scope.state, "OPEN")
    seq = write(scope.saga, Ev.SCOPE_OPEN, masked({"path": list(scope.path)})[0])
    scope.state = following
    return seq


def scope_closed(scope: Scope, result: str) -> int:
    """Record how a savepoint ended."""
    following = scope_after(scope.state, result)
    fields = {"path": list(scope.path), "result": result}
    seq = write(scope.saga, Ev.SCOPE_CLOSED, masked(fields)[0])
    scope.state = following
    return seq


# --- steps going forward -------------------------------------------------------------------------


def refused(step: Step, refusal: RefusedError) -> int:
    """Record that a call was refused before its effect, by what, why, and what would change it."""
    about = {"tool": step.tool.name, "rule": refusal.rule, "reason": refusal.reason}
    payload, _ = masked({**about, "decision": refusal.decision()})
    return write(step.saga, Ev.STEP_REFUSED, payload, step)


def asked(step: Step, request: str, rule: str, reason: str) -> int:
    """Record that people are asked about a call."""
    about = {"tool": step.tool.name, "id": request, "rule": rule, "reason": reason}
    return write(step.saga, Ev.APPROVAL_ASKED, masked(about)[0], step)


def answered(step: Step, request: str, rule: str, by: str, note: str, *, expired: bool) -> int:
    """Record how a question to people ended; nobody is named where it was not approved."""
    event = Ev.APPROVAL_EXPIRED if expired else Ev.APPROVAL_DECIDED
    about: dict[str, Any] = {"tool": step.tool.name, "id": request, "rule": rule, "note": note}
    payload, _ = masked(about if expired else {**about, "approved": bool(by), "by": by})
    return write(step.saga, event, payload, step)


def intent(step: Step) -> int:
    """Announce an effect; everything that recovery will need is in this record.

    Raises:
        SecretLeak, NotRecordable: prepared data or the provisional inverse cannot be recorded.
        WALError: the log refuses the announcement; nothing has happened.
        SagaUnwinding, SagaClosed: its boundary has closed meanwhile.
    """
    fields, faithful = call_fields(step)
    saga, tool = step.saga, step.tool
    if tool.prepare is not None:
        told = fields["prepared"] = exact(step.prepared, what=f"the prepared data of {tool.name}")
        if type(step.prepared) not in FIXED:
            step.prepared = decode(told)  # a tool may hold the very thing that was read
    if step.provisional is not None:
        fields["provisional"] = inverse_of(step.provisional, tool.name)
    if tool.prober_name is not None:
        fields["prober"] = literal(tool.prober_name)
        fields.update(recipe(tool, faithful=faithful))
    if tool.settle_after is not None:
        fields["settle_after"] = literal(tool.settle_after)
    step.once = not tool.idempotent
    if tool.idempotent:
        fields["idempotent"] = literal({"window": tool.window})
    if step.approved_by:
        fields["approved_by"] = masked(step.approved_by)[0]
    if step.requests:
        fields["approvals"] = masked([request.id for request in step.requests])[0]
    if saga.engine.gate.records:
        fields |= taken(step)
    return _while_open(step, Ev.STEP_INTENT, composed(fields))


def _while_open(step: Step, event: str, payload: Fragment) -> int:
    """Append an announcement, unless its boundary has closed: none stands behind the end."""
    saga = step.saga
    if saga.begun_in != FORKS.generation:
        _begin(saga)
    with saga.lock:
        saga.check_open(step.scope)
        return step_record(step, event, payload)


def attempt(
    step: Step, number: int, ending: str, error: BaseException | None, **way: object
) -> int:
    """Record that an attempt ended and another one follows within the step, perhaps another way."""
    told = {"number": number, "ending": ending, "error": error_text(error), **way}
    payload, _ = masked(told)
    return step_record(step, Ev.STEP_ATTEMPT, payload)


def committed(step: Step, event: str = Ev.STEP_COMMITTED) -> tuple[int, AgentSagaError | None]:
    """Record that an effect happened, with its inverse.

    Returns:
        The sequence number, and the reason if the inverse could not be recorded (it is kept in
        memory).
    """
    result, faithful = masked(step.result)
    if step.state is StepState.NEW:
        fields, _ = call_fields(step)
        if step.saga.engine.gate.records:
            fields |= taken(step)
        fields["result"] = result
    else:
        fields = {"result": result}
    if not faithful:
        fields["replayable"] = _FALSE
    problem = None
    if step.compensation is not None:
        fields["inverse"], problem = recorded_inverse(step.compensation, step.tool.name)
    elif step.missing:
        fields["missing"] = masked(step.missing)[0]
    if step.via != "forward":
        fields["via"] = literal(step.via)
    if event == Ev.STEP_LATE:
        step.doubt = doubt_after(step.doubt, step.state, event)
    seq = step_record(step, event, composed(fields))
    step.give_up_encoded()
    return seq, problem


def not_applied(step: Step, by: str, evidence: str, *, final: bool) -> int:
    """Record that a call had no effect, and whether that used its idempotency key up."""
    fields = {"by": by, "evidence": evidence, "final": final}
    payload, _ = masked({**fields, "spent": True} if step.spent else fields)
    return _ending(step, Ev.STEP_NOT_APPLIED, payload)


def unknown(step: Step, ending: str) -> int:
    """Record that it is unknown whether a call took effect."""
    payload, _ = masked(
        {
            "ending": ending,
            "error": error_text(step.error),
            "running": step.running,
            "answered": step.answered and not step.running,
        }
    )
    return _ending(step, Ev.STEP_UNKNOWN, payload)


def _ending(step: Step, event: str, payload: Fragment) -> int:
    if step.state is StepState.NEW:
        payload = composed({**call_fields(step)[0], "about": payload})
    seq = step_record(step, event, payload)
    step.give_up_encoded()
    return seq


# --- steps going back ----------------------------------------------------------------------------


def compensating(
    step: Step,
    inverse: Compensation,
    number: int,
    key: str,
    *,
    observed: bool = False,
    once: bool = False,
) -> int:
    """Announce an attempt of an inverse.

    Args:
        step: the step.
        inverse: what undoes it.
        number: which attempt.
        key: the idempotency key.
        observed: earlier attempts were seen not to hold.
        once: its handler is not declared idempotent.
    """
    record, _ = recorded_inverse(inverse, step.tool.name)
    fields = {"attempt": count(number), "inverse": record, "idempotency_key": opaque(key)}
    if observed:
        fields[OBSERVED] = _TRUE
        step.doubt = Doubt.NONE
    if once:
        fields[ONCE] = _TRUE
    step.undo_once = once_after(step.undo_once, step.doubt, Ev.STEP_COMPENSATING, told=once)
    return step_record(step, Ev.STEP_COMPENSATING, composed(fields))


def compensated(step: Step, number: int) -> int:
    """Record that this attempt of an inverse took effect, as its handler said."""
    return step_record(step, Ev.STEP_COMPENSATED, _by_handler(number))


@functools.lru_cache(maxsize=16)
def _by_handler(number: int) -> Fragment:
    """Say by whom a step was undone; there are few attempts, and many steps."""
    return compose(by=literal("handler"), attempt=count(number))


def step_event(step: Step, event: str, **fields: Any) -> int:
    """Record any other change of a step."""
    doubt = doubt_after(step.doubt, step.state, event, observed=OBSERVED in fields)
    seq = step_record(step, event, masked(fields)[0])
    step.doubt = doubt
    return seq

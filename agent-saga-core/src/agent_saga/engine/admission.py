"""Which step a call is: a new one, or an earlier one of the same saga.

Rules of this part:

- An earlier step is meant by the same key, by a recorded step of a resumed saga, or by arguments
  equal to those of an unsettled step.
- A framework package that knows where in its run the program is names what the program leaves
  unnamed (`Saga.names`): what the framework runs again is then known again.
- A step is registered before the fence is read; see `engine.saga`.
- Arguments count as they were at the call: they are encoded here, once, for the log and for their
  MAC alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import StepState
from agent_saga.engine.as_called import kept
from agent_saga.engine.options import UNDO
from agent_saga.engine.replay import check_same_semantics
from agent_saga.engine.step import RECORDED, Step
from agent_saga.engine.within import WITHIN
from agent_saga.errors import ConfigurationError, ReplayConflict
from agent_saga.wal.encoding import arguments, mac_of
from agent_saga.wal.os_port import FORKS

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.scope import Scope
    from agent_saga.engine.tool import Tool
    from agent_saga.engine.wrap import Invocation
    from agent_saga.wal.encoding import Fragment

_GIVEN_PATH = ("",)


def admit(call: Invocation) -> tuple[Step, bool]:
    """Return the step that a call is, and whether it is a new one.

    Raises:
        ReplayConflict: the key was used with other arguments.
        SagaClosed, SagaUnwinding, SagaForked: the scope takes nothing more.
    """
    scope = call.scope
    saga = scope.saga
    if saga.fork != FORKS.generation:
        saga.check_fork()
    encoded = arguments(saga.salt, call.arguments)
    if saga.suspendable:
        _check_suspendable(call.tool)
    if call.key is None and saga.names is not None:
        call.key = _named(saga, call.tool, encoded[2] or mac_of(saga.salt, encoded[0]))
    with saga.lock:
        step = None
        if call.key is not None or saga.unsettled or saga.replay is not None:
            step = _earlier(saga, call, encoded[2] or mac_of(saga.salt, encoded[0]))
        fresh = step is None
        if step is None:
            step = _new(saga, call, encoded)
    outer = WITHIN.get()
    if outer is not None and outer is not step:
        outer.inner = [*(outer.inner or ()), step]
    if saga.read_only and not fresh:
        return step, fresh
    if not scope.open or saga.fork != FORKS.generation:
        _refuse(scope, step if fresh else None)
    return step, fresh


def _named(saga: Saga, tool: Tool, mac: bytes) -> str | None:
    """Return the key that a framework's package gives a call of the program; None for none."""
    return None if saga.names is None else saga.names(tool, mac)


def _refuse(scope: Scope, step: Step | None) -> None:
    try:
        scope.saga.check_open(scope)
    except BaseException:
        if step is not None:
            scope.saga.forget(step)
        raise


def _earlier(saga: Saga, call: Invocation, mac: bytes) -> Step | None:
    """Return the step that a call is, if it is no new one."""
    if call.key is not None:
        return _of_key(saga, call, call.key, mac)
    if saga.replay is not None:
        recorded = saga.replay.match(call, mac)
        if recorded is not None:
            return recorded
    return None if call.tool.repeatable else _unsettled(saga, call, mac)


def _of_key(saga: Saga, call: Invocation, key: str, mac: bytes) -> Step | None:
    """Return the step of a given key.

    Raises:
        ReplayConflict: it was used with other arguments.
    """
    step = saga.keyed.get(identity.given_key(_GIVEN_PATH, call.tool.name, key))
    known = step is None or (step.mac == mac and _owned_by(step, call.owner))
    if step is not None and not known and not _freed(saga, step, mac):
        raise ReplayConflict(
            f"The key {key!r} of {call.tool.name} was used before with other arguments.",
            fix="Use another key for another effect.",
        )
    return _rebound(saga, step, call)


def _unsettled(saga: Saga, call: Invocation, mac: bytes) -> Step | None:
    """Return the step without a known outcome that a call repeats: a blind retry is that step."""
    name, owner = call.tool.name, call.owner
    for step in saga.unsettled.values():
        if step.mac == mac and step.tool.name == name and _owned_by(step, owner):
            return _rebound(saga, step, call)
    return None


def _freed(saga: Saga, step: Step, mac: bytes) -> bool:
    """Let a key be used with other arguments if its step was undone on a way that was left."""
    gone = step.state in (StepState.COMPENSATED, StepState.NOT_APPLIED)
    if saga.abandoned.get(step.id) != UNDO or not gone:
        return False
    step.known_mac, step.encoded, step.spent = mac, None, True
    return True


def _rebound(saga: Saga, step: Step | None, call: Invocation) -> Step | None:
    """Return the step that a call is, with the functions of the call's tool where it was recorded.

    Raises:
        ReplayConflict: the call means another kind of effect.
    """
    if step is None:
        return None
    check_same_semantics(step, call)
    if step.owner is RECORDED and saga.replay is not None:
        saga.replay.take(step, call)
    return step


def _owned_by(step: Step, owner: object) -> bool:
    """Say whether a step may be a method of this object, or of none."""
    return step.owner is owner or step.owner is RECORDED


def drafted(call: Invocation) -> Step | None:
    """Return a step as a keyed call would make it, and register none; None if the call is one."""
    saga, key = call.scope.saga, call.key
    if key is None:
        return None
    encoded = arguments(saga.salt, call.arguments)
    step_key = identity.given_key(_GIVEN_PATH, call.tool.name, key)
    with saga.lock:
        if step_key in saga.keyed:
            return None
        return _new(saga, call, encoded, draft=True)


def _new(
    saga: Saga, call: Invocation, encoded: tuple[Fragment, bool, bytes], *, draft: bool = False
) -> Step:
    """Make a step, and register it unless it is a draft; the saga's lock is held."""
    scope, tool, key = call.scope, call.tool, call.key
    if key is None:
        ordinals = scope.calls.get(tool.name)
        if ordinals is None:
            ordinals = scope.calls[tool.name] = identity.Ordinals(saga.id, scope.path, tool.name)
            if saga.calls_made:
                ordinals.go_on_after(saga.calls_made.get((scope.path, tool.name), 0))
        number = None if saga.replay is None else saga.replay.free_number(call)
        step_key, step_id = ordinals.take(number)
    else:
        step_key = identity.given_key(_GIVEN_PATH, tool.name, key)
        step_id = identity.step_id(saga.id, step_key)
    data, faithful, mac = encoded
    step = Step(
        saga,
        scope,
        tool,
        step_key,
        step_id,
        call.arguments,
        call.args,
        call.kwargs,
        data,
        faithful,
        mac,
        key is not None,
        call.named,
        call.owner,
        saga.order(),
    )
    if not faithful:  # of what the log cannot hold whole, parts are kept now: they may change
        step.recorded = kept(call.arguments, data, faithful=False)
    if not draft:
        saga.steps[step_id] = step
        if key is not None:
            saga.keyed[step_key] = step
    return step


def _check_suspendable(tool: Tool) -> None:
    """Refuse, before its effect, a call that another process could not undo."""
    if tool.reversible or tool.irreversible:
        return
    if tool.inverse is None or tool.inverse.handler is None:
        raise ConfigurationError(
            f"{tool.name} was refused: this saga can be suspended, and another process could not "
            "undo the call, since its inverse has no name.",
            fix="Give it one: @tool.undo, or compensate=handler.using(…).",
        )

"""A call that is an earlier step: it is settled first, and runs again only when that is safe.

Rules of this part:

- An earlier step is meant by its key, or by arguments equal to those of an unsettled step.
- A result that was recorded faithfully is given again; anything else is refused, never guessed.
- It runs again, as the same step, when it is known not to have happened, when its inverse ran (a
  new generation, with a new key), or when repeating it with the same key is safe.
- A saga that has ended is only read: nothing is run, asked or recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.domain.lifecycle import StepState
from agent_saga.engine import journal
from agent_saga.engine.requests import Outcome, Protocol, StepEnded
from agent_saga.engine.settle import settle_unknown
from agent_saga.engine.within import made_effects
from agent_saga.errors import OutcomeUnknown, RefusedError, ResultNotRecorded

if TYPE_CHECKING:
    from agent_saga.engine.step import Step
    from agent_saga.engine.wrap import Invocation

_HAS_RESULT = (StepState.COMMITTED, StepState.KEPT)
_OPEN_ENDED = (StepState.INTENT, StepState.UNKNOWN)


def earlier(step: Step, call: Invocation) -> Protocol[Outcome | None]:
    """Answer for an earlier step; None when it runs now."""
    saga = step.saga
    while not saga.rejoin(step):
        cut = yield StepEnded(step, saga.engine.timing.settle_after)
        if isinstance(cut, BaseException):
            return Outcome(error=cut)
        if step.running:
            return Outcome(error=_unknown(step))
    outcome: Outcome | None = None
    runs = False
    try:
        outcome = yield from _settled_earlier(step)
        if outcome is None:
            step.retake(call)
            outcome = _refused_again(step)
        elif not (call.key or (call.named and step.named)):
            outcome = Outcome(error=_unknown(step, _UNNAMED))
        runs = outcome is None
    finally:
        if not runs:
            saga.left(step)
    return outcome


def read(step: Step, call: Invocation) -> Outcome:
    """Answer for a step of a saga that has ended: nothing is run, asked or recorded."""
    if step.state in _HAS_RESULT:
        return _recorded(step, call)
    if step.state in _OPEN_ENDED:
        return Outcome(error=_unknown(step))
    return _refused_again(step) or Outcome(error=_unknown(step))


def _recorded(step: Step, call: Invocation) -> Outcome:
    if not (call.key or (call.named and step.named)):
        return Outcome(error=_unknown(step, _UNNAMED))
    return Outcome(step.result) if step.replayable else Outcome(error=_not_replayable(step))


def _refused_again(step: Step) -> Outcome | None:
    try:
        step.saga.check_open(step.scope)
    except RefusedError as refusal:
        return Outcome(error=refusal)
    return None


def _settled_earlier(step: Step) -> Protocol[Outcome | None]:
    if step.state is StepState.INTENT:
        journal.unknown(step, "its process ended")
    if step.state is StepState.UNKNOWN:
        cut = yield from settle_unknown(step, patient=False)
        if cut is not None:
            return Outcome(error=cut)
    if step.state in _HAS_RESULT:
        return Outcome(step.result) if step.replayable else Outcome(error=_not_replayable(step))
    if step.state is StepState.COMPENSATED or step.spent:
        step.new_generation()
        return None
    if step.state in (StepState.NEW, StepState.NOT_APPLIED):
        return None
    if step.state is StepState.UNKNOWN and (step.tool.reversible or repeats_safely(step)):
        return None
    return Outcome(error=_unknown(step))


def _not_replayable(step: Step) -> ResultNotRecorded:
    return ResultNotRecorded(
        f"{step.tool.name} took effect before, and its result could not be recorded faithfully; "
        "it was not run again.",
        fix="Let the tool return plain data without secrets, so that its result can be recorded.",
    )


_PROBED = (
    "Look at the world before going on; a prober (`@tool.probe`) lets agent-saga settle it by "
    "itself, and `idempotent=True` does for calls from then on; `repeatable=True` declares equal "
    "calls to be different."
)
_UNNAMED = "Give execute(…, arguments={…}) or key=…, so that equal calls can be told from others."


def _unknown(step: Step, fix: str = _PROBED) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"An equal call of {step.tool.name} ended without a known outcome; "
        "running it again could do it twice, so it was not run.",
        fix=fix,
    )


def window_closed(step: Step) -> OutcomeUnknown | None:
    """Return what forbids a repetition whose provider no longer knows the key; asked last."""
    return _unknown(step) if step.tool.idempotent and not repeats_safely(step) else None


def repeats_safely(step: Step) -> bool:
    """Say whether the call may be repeated with the same key although its ending is unknown.

    The provider's window counts from the first use of the key. A call that went another way may
    have taken effect there, where this key is unknown; so may steps that were made within it. One
    that was announced when its tool was not declared idempotent may have gone without the key.
    """
    tool = step.tool
    if not tool.idempotent or step.once or step.running:
        return False
    if step.fell_back or made_effects(step):
        return False
    if tool.window is None or step.first_at is None:
        return True
    return step.saga.engine.clock.monotonic() - step.first_at < tool.window

"""What the ending of a call says about the world. Pure judgement, no I/O.

Rules of this part:

- A call that returned took effect. A call that was never started did not.
- Harmless endings: the tool raised `NotApplied` or a class in `not_applied_on`; Python refused the
  arguments before the body ran. Any other ending is UNKNOWN: so is a timeout, whatever the author
  listed, and so is what another step inside the call raised, which speaks for that step only.
- An exception that the tool raised counts as an answer of the provider, so that nothing arrives
  late, unless it or what it was raised from is a timeout, a cancellation, a connection error, an
  interrupt, or listed in `no_answer_on`.
- A retry within the step: a harmless ending may be repeated; an unknown one only if the tool is
  idempotent and its window is open, or if the author listed the error in `retry_on`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from agent_saga.engine.forms import never_ran
from agent_saga.engine.step import ELSEWHERE
from agent_saga.errors import NotApplied, RefusedError, StepTimeout

if TYPE_CHECKING:
    from agent_saga.engine.forms import Form
    from agent_saga.engine.requests import Ending
    from agent_saga.engine.retry import Errors, RetryPolicy
    from agent_saga.engine.step import Elsewhere, Step

NO_ANSWER = (TimeoutError, ConnectionError, asyncio.CancelledError)


class Kind(Enum):
    """What a call did to the world, as far as its ending tells."""

    APPLIED = "applied"
    NOT_APPLIED = "not applied"
    UNKNOWN = "unknown"


def kind_of(
    step: Step, form: Form, ending: Ending, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Kind:
    """Return what the ending of a step's call says about the effect."""
    error = ending.error
    if error is None:
        return Kind.APPLIED
    if not ending.started or _harmless(step, form, ending, error, args, kwargs):
        return Kind.NOT_APPLIED
    return Kind.UNKNOWN


def _harmless(
    step: Step,
    form: Form,
    ending: Ending,
    error: BaseException,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> bool:
    if ending.running or not isinstance(error, Exception) or isinstance(error, StepTimeout):
        return False
    if _from_another_step(step, error):
        return False
    declared: Errors = (NotApplied, *step.tool.not_applied_on)
    return isinstance(error, declared) or never_ran(form.fn, error, args, kwargs)


def leaving(error: BaseException, step: Step | Elsewhere) -> BaseException:
    """Return an error that a call of a tool gives to its caller, marked as that call's."""
    with contextlib.suppress(Exception):  # a class of the user's may refuse it in any way
        error.agent_saga_step = step  # type: ignore[attr-defined]
    return error


def step_of(error: BaseException) -> Step | None:
    """Return the step whose call an error left; None for no step of this process."""
    mark = _mark_of(error)
    return None if mark is ELSEWHERE else mark


def of_a_call(error: BaseException) -> bool:
    """Say whether an error has left a call of a tool: it speaks for that call only."""
    return _mark_of(error) is not None


def _mark_of(error: BaseException) -> Any:
    try:
        return getattr(error, "agent_saga_step", None)
    except Exception:
        return None


def _from_another_step(step: Step, error: BaseException) -> bool:
    other = _mark_of(error)
    if other is None or other is step:
        return False
    if other is ELSEWHERE:
        return True
    began_later: bool = other.intent_order > step.intent_order
    return began_later or other.saga is not step.saga


def answered(error: BaseException | None, no_answer_on: Errors, *, running: bool) -> bool:
    """Say whether an ending was an answer of the provider, so that nothing can arrive late."""
    if error is None:
        return not running
    if running or not isinstance(error, Exception):
        return False
    lost: Errors = (*NO_ANSWER, *no_answer_on)
    try:
        return all(isinstance(c, Exception) and not isinstance(c, lost) for c in _causes(error))
    except Exception:  # code of the error's own; what it came from cannot be told
        return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it was raised from, as a traceback would show them."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        cause = error.__cause__
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        error = cause


def origins(error: BaseException) -> Iterator[BaseException]:
    """Give an exception and everything that it came from, whoever has wrapped it."""
    seen: set[int] = set()
    left: list[BaseException] = [error]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += _behind(one)


def _behind(error: BaseException) -> list[BaseException]:
    """Return what an exception came from; nothing where code of its own gets in the way."""
    try:
        found = [error.__cause__, error.__context__]
        found += error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    except Exception:
        return []
    return [one for one in found if isinstance(one, BaseException)]


def evidence(error: BaseException | None) -> str:
    """Return in words why a call is taken to have had no effect."""
    if isinstance(error, NotApplied):
        return error.reason or "the tool said so"
    if isinstance(error, RefusedError):
        return f"it was not made: {error.reason or error.message}"
    return f"{type(error).__name__} is declared harmless, or came before the effect"


def may_fall_back(error: BaseException, *, harmless: bool) -> bool:
    """Say whether a fallback may run in the same step: only if no attempt had an effect."""
    return harmless and isinstance(error, Exception)


def may_retry(
    policy: RetryPolicy, error: BaseException, kind: Kind, *, repeats_safely: bool
) -> bool:
    """Say whether an attempt with this ending may be repeated within the step."""
    if not isinstance(error, Exception) or isinstance(error, policy.exclude_exceptions):
        return False
    if isinstance(error, RefusedError):
        return False
    listed = isinstance(error, policy.retry_on)
    if kind is Kind.UNKNOWN and not repeats_safely:
        return listed
    return listed or not policy.retry_on

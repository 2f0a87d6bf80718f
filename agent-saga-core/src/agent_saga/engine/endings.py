"""What the ending of a call says about the world. Pure judgement, no I/O.

Rules of this part:

- A call that returned took effect. A call that was never started did not.
- Harmless endings: the tool raised `NotApplied` or a class in `not_applied_on`; Python refused the
  arguments before the body ran. Any other ending is UNKNOWN.
- An exception that the tool raised counts as an answer of the provider, so that nothing arrives
  late, unless it is a timeout, a cancellation, a connection error, an interrupt, or listed in
  `no_answer_on`.
- A retry within the step: a harmless ending may be repeated; an unknown one only if the tool is
  idempotent and its window is open, or if the author listed the error in `retry_on`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from agent_saga.engine.forms import never_ran
from agent_saga.errors import NotApplied, RefusedError

if TYPE_CHECKING:
    from agent_saga.engine.requests import Ending
    from agent_saga.engine.retry import Errors, RetryPolicy
    from agent_saga.engine.tool import Tool

NO_ANSWER = (TimeoutError, ConnectionError, asyncio.CancelledError)


class Kind(Enum):
    """What a call did to the world, as far as its ending tells."""

    APPLIED = "applied"
    NOT_APPLIED = "not applied"
    UNKNOWN = "unknown"


def kind_of(
    tool: Tool,
    fn: Callable[..., Any],
    ending: Ending,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Kind:
    """Return what an ending says about the effect."""
    error = ending.error
    if error is None:
        return Kind.APPLIED
    if not ending.started:
        return Kind.NOT_APPLIED
    if ending.running:
        return Kind.UNKNOWN
    if isinstance(error, (NotApplied, *tool.not_applied_on)):
        return Kind.NOT_APPLIED
    if never_ran(fn, error, args, kwargs):
        return Kind.NOT_APPLIED
    return Kind.UNKNOWN


def answered(error: BaseException | None, no_answer_on: Errors, *, running: bool) -> bool:
    """Say whether an ending was an answer of the provider, so that nothing can arrive late."""
    if error is None:
        return not running
    if running or not isinstance(error, Exception):
        return False
    return not isinstance(error, (*NO_ANSWER, *no_answer_on))


def evidence(error: BaseException | None) -> str:
    """Return in words why a call is taken to have had no effect."""
    if isinstance(error, NotApplied):
        return error.reason or "the tool said so"
    return f"{type(error).__name__} is declared harmless, or came before the effect"


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

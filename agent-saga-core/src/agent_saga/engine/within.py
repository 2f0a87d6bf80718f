"""Steps that were made within the call of another step.

Rules of this part:

- They are steps of their own, with their own records and inverses. Whoever repeats the call around
  them makes them again, under other keys.
- So a call within which effects were made is not repeated inside its step, neither by a retry nor
  by a fallback, nor because it is idempotent: its own key does not reach them. An inner step with a
  key of its own is the same step again, and is no hindrance.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from agent_saga.domain.lifecycle import StepState
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.engine.step import Step

__all__ = ["WITHIN", "made_effects"]

log = logger("agent_saga.engine")

WITHIN: Final[ContextVar[Step | None]] = ContextVar("agent_saga_within", default=None)
"""The step whose call is being made, if it is one that may be made again."""

_NOTHING: Final = (StepState.NEW, StepState.NOT_APPLIED, StepState.COMPENSATED)


def made_effects(step: Step) -> bool:
    """Say whether effects were made within a step's calls that a further call would make again."""
    again = [inner for inner in step.inner or () if _is_made_again(inner, step)]
    if again:
        names = ", ".join(sorted({inner.tool.name for inner in again}))
        log.warning(
            "%s is not called again: within it other steps were made (%s), and they would be made "
            "again (saga %s, step %s)",
            step.tool.name,
            names,
            step.saga.id,
            step.id,
        )
    return bool(again)


def _is_made_again(inner: Step, step: Step) -> bool:
    if inner.tool.reversible or inner.state in _NOTHING:
        return False
    return not (inner.keyed and inner.saga is step.saga)

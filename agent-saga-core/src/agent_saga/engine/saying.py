"""What an inverse says of itself by its answer, or by what it raises.

Rules of this part:

- An answer that is no denial and no doubt is a success: most inverses answer with anything.
- An observation that does not say True is a doubt, and one that says False is a denial. So are the
  classes in place of their values.
- Only the inverse itself says that it had no effect, never a tool that it has called.
"""

from __future__ import annotations

from typing import Final

from agent_saga.domain.outcomes import CannotTell, Observation
from agent_saga.engine.endings import of_a_call
from agent_saga.errors import CompensationError, NotApplied

__all__ = ["denied", "says_no"]

_DOUBTED: Final = "The handler cannot tell whether it took effect"
_NO_REASON: Final = "it did not say why"


def denied(answer: object) -> Exception | None:
    """Return what a handler says by its answer if it is not that the inverse took effect."""
    if answer is CannotTell or isinstance(answer, CannotTell):
        why = getattr(answer, "reason", "")
        return CompensationError(f"{_DOUBTED}: {why if type(why) is str and why else _NO_REASON}.")
    if isinstance(answer, Observation) and answer.reversed_ is not True:
        if answer.reversed_ is None:
            return CompensationError(f"{_DOUBTED}: {answer.detail or _NO_REASON}.")
        return NotApplied("the handler itself observed that it does not hold")
    if isinstance(answer, type) and issubclass(answer, NotApplied):
        return NotApplied()
    return answer if isinstance(answer, NotApplied) else None


def says_no(error: BaseException) -> bool:
    """Say whether an inverse tells that it had no effect: itself, not a tool that it has called."""
    return isinstance(error, NotApplied) and not of_a_call(error)

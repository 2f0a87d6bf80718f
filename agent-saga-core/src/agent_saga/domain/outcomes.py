"""What can be said about an effect: answers of probers, observations of reconcilers.

- A prober answers `Applied(result)`, `NotApplied(final=…)` (see `errors`) or `CannotTell(reason)`.
  Only a final NotApplied settles a step.
- A reconciler answers with an `Observation`, tri-state: True, False, or None for "cannot be seen".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_saga.errors import NotApplied, text_of

__all__ = ["Applied", "CannotTell", "NotApplied", "Observation", "read_observation", "read_probe"]


class Applied:
    """A prober's answer: the effect happened, with this result.

    Args:
        result: what the forward call would have returned; the inverse is derived from it.
    """

    __slots__ = ("result",)
    __match_args__ = ("result",)

    def __init__(self, result: Any = None) -> None:
        self.result = result

    def __repr__(self) -> str:
        return f"Applied({self.result!r})"


class CannotTell:
    """A prober's answer: the world does not show whether the effect happened.

    Args:
        reason: why not, for the report.
    """

    __slots__ = ("reason",)
    __match_args__ = ("reason",)

    def __init__(self, reason: str = "") -> None:
        self.reason = text_of(reason)

    def __repr__(self) -> str:
        return f"CannotTell({self.reason!r})"


class Observation:
    """What a reconciler saw of an inverse, each question answered True, False or None.

    Args:
        reversed_: does the inverse hold?
        exists: does the thing still exist?
        detail: what was seen, in words.
        amount: the amount that was seen, where there is one.
    """

    __slots__ = ("amount", "detail", "exists", "reversed_")

    def __init__(
        self,
        reversed_: bool | None = None,
        exists: bool | None = None,
        detail: str = "",
        amount: Any = None,
    ) -> None:
        for name, value in (("reversed_", reversed_), ("exists", exists)):
            if value is not None and type(value) is not bool:
                raise TypeError(f"Observation({name}=…) is True, False or None, not {value!r}")
        self.reversed_ = reversed_
        self.exists = exists
        self.detail = text_of(detail)
        self.amount = amount

    def __repr__(self) -> str:
        return (
            f"Observation(reversed_={self.reversed_}, exists={self.exists}, "
            f"detail={self.detail!r}, amount={self.amount!r})"
        )


ProbeAnswer = Applied | NotApplied | CannotTell


def read_probe(answer: object) -> ProbeAnswer:
    """Return a prober's answer; whatever is no answer is a CannotTell."""
    if isinstance(answer, (Applied, NotApplied, CannotTell)):
        return answer
    if answer is Applied or answer is NotApplied or answer is CannotTell:
        return answer()
    return CannotTell(f"it answered {type(answer).__name__}")


def read_observation(answer: object) -> Observation:
    """Return a reconciler's answer; whatever is no answer is an Observation of nothing."""
    if isinstance(answer, Observation):
        return answer
    if isinstance(answer, Mapping) and "reversed_" in answer:
        value = answer["reversed_"]
        return Observation(value if type(value) is bool else None)
    return Observation(detail=f"the reconciler answered {type(answer).__name__}")

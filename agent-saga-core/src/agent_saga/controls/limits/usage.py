"""What is told of limits: how much is used, and why a call does not fit.

Rules of this part:

- A refusal says how much there is, how much is used, what the call wanted, and what would change
  the verdict: a smaller amount, a time to wait, or another limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from agent_saga.controls.amounts import Number, add, text_of
from agent_saga.controls.control import CallView
from agent_saga.controls.limits.limit import LIMITS, Limit
from agent_saga.controls.limits.window import Window, negative
from agent_saga.errors import LimitExceeded

__all__ = ["Over", "Usage", "over", "refusal"]


class Usage(Struct, frozen=True):
    """How much of one limit and scope is used.

    Attributes:
        limit, scope: what is counted; the scope is empty where all calls count together.
        used, most: what is in the window, and the most; None when the most is not known.
        window: seconds.
        held: how many calls have taken of it and were not yet announced, as far as is known.
    """

    limit: str
    scope: str
    used: Number
    most: Number | None
    window: float
    held: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data; amounts are texts, so that nothing is rounded."""
        most = None if self.most is None else text_of(self.most)
        left = None if self.most is None else add(self.most, negative(self.used))
        return {
            **asdict(self),
            "used": text_of(self.used),
            "most": most,
            "left": None if left is None else text_of(max(0, left)),
        }


class Over(Struct, frozen=True):
    """A limit that a call does not fit into.

    Attributes:
        limit, scope: which.
        amount, used: what the call wants, and what is used.
        free_after: the seconds until it fits; None when it never does.
    """

    limit: Limit
    scope: str
    amount: Number
    used: Number
    free_after: float | None

    @property
    def reason(self) -> str:
        """Why the call does not fit, as one clause."""
        limit = self.limit
        where = f" for {self.scope}" if self.scope else ""
        if limit.arg is None:
            return (
                f"{text_of(self.used)} of {text_of(limit.most)} calls{where} were made within "
                f"{limit.window:g} s"
            )
        return (
            f"{text_of(self.amount)} more {limit.arg}{where} would go over {text_of(limit.most)} "
            f"within {limit.window:g} s, of which {text_of(self.used)} is used"
        )

    @property
    def change(self) -> str:
        """What would change the verdict."""
        limit = self.limit
        left = add(limit.most, negative(self.used))
        ways = []
        if self.free_after is not None:
            ways.append(f"wait {self.free_after:.0f} s" if self.free_after >= 1 else "wait")
        if limit.arg is not None and left > 0:
            ways.append(f"ask for at most {text_of(left)}")
        ways.append(f"have the limit {limit.name!r} raised")
        return f"{', or '.join(ways)}.".capitalize()

    def facts(self) -> dict[str, Any]:
        """Return what the verdict rests on, as plain data."""
        return {
            "limit": self.limit.name,
            "scope": self.scope,
            "wanted": text_of(self.amount),
            "used": text_of(self.used),
            "most": text_of(self.limit.most),
            "window": self.limit.window,
            "fits_after": self.free_after,
        }


def over(limit: Limit, scope: str, amount: Number, window: Window, now: float) -> Over:
    """Return what is told of a call that a count has no room for."""
    free = window.free_after(amount, limit.most, limit.window, now)
    return Over(limit, scope, amount, window.within(limit.window, now), free)


def refusal(call: CallView, found: Sequence[Over]) -> LimitExceeded:
    """Return the refusal of a call that is over some limits; the first is named."""
    first = found[0]
    return LimitExceeded(
        f"{call.tool} was refused by the limit {first.limit.name!r}: {first.reason}.",
        rule=first.limit.name,
        reason=first.reason,
        fix=first.change,
        control=LIMITS,
        facts={"over": [one.facts() for one in found]},
    )

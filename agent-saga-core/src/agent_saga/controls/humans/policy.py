"""Who is told of a request, when, and how long they have."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from agent_saga.controls.humans.names import blank
from agent_saga.errors import ConfigurationError

__all__ = ["ApprovalPolicy", "EscalationLevel"]

DAY: Final = 86_400.0
_LONGEST: Final = 366 * DAY


class EscalationLevel:
    """Who is told of a request, and after how long.

    Args:
        targets: whom to tell, as the notifier understands them, for example "@oncall".
        after_seconds: seconds from the request on.

    Raises:
        ConfigurationError: a target is blank, or the time is no number of seconds.
    """

    __slots__ = ("after_seconds", "targets")

    def __init__(self, targets: Iterable[str] = (), after_seconds: float = 0.0) -> None:
        if isinstance(targets, str):
            targets = (targets,)
        self.targets = tuple(targets)
        if any(blank(target) for target in self.targets):
            raise ConfigurationError("A target of an escalation level is blank.")
        self.after_seconds = _seconds("after_seconds", after_seconds, zero=True)


class ApprovalPolicy:
    """How long people have, and who is told when.

    Args:
        timeout: seconds in which somebody has to answer; then the answer is no.
        levels: who is told at once and who later; everybody the notifier knows, when not given.
        valid_for: seconds for which a grant can be used once it was given.
        approvers: who may decide; everybody who does not ask, when not given.

    Raises:
        ConfigurationError: a time cannot be used, a level comes after the end or out of order, or
            an approver is blank.
    """

    __slots__ = ("approvers", "levels", "timeout", "valid_for")

    def __init__(
        self,
        timeout: float = 300.0,
        levels: Iterable[EscalationLevel] = (),
        *,
        valid_for: float = DAY,
        approvers: Iterable[str] = (),
    ) -> None:
        self.timeout = _seconds("timeout", timeout)
        self.valid_for = _seconds("valid_for", valid_for)
        self.levels = tuple(levels) or (EscalationLevel(),)
        self.approvers = (approvers,) if isinstance(approvers, str) else tuple(approvers)
        if not all(isinstance(level, EscalationLevel) for level in self.levels):
            raise ConfigurationError("levels= takes EscalationLevels.")
        times = [level.after_seconds for level in self.levels]
        if times != sorted(times) or times[-1] >= self.timeout:
            raise ConfigurationError(
                "Escalation levels come one after another, and before the timeout.",
                fix=f"Order them by after_seconds, all below {self.timeout:g}.",
            )
        if any(blank(approver) for approver in self.approvers):
            raise ConfigurationError("An approver of the policy is blank.")


def _seconds(what: str, value: object, *, zero: bool = False) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 <= value <= _LONGEST:  # type: ignore[arg-type, operator]
        raise ConfigurationError(f"{what}= is a number of seconds, not {value!r}.")
    if not value and not zero:
        raise ConfigurationError(f"{what}= is a number of seconds above zero.")
    return float(value)  # type: ignore[arg-type]

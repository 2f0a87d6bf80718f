"""Who is told of a request, when, and how long they have."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Final

from agent_saga.controls import given
from agent_saga.errors import ConfigurationError

__all__ = ["ApprovalPolicy", "EscalationLevel"]

DAY: Final = 86_400.0


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
        targets = given.several("targets= of an escalation level", targets, str)
        self.targets = tuple([given.name("A target of a level", one) for one in targets])
        self.after_seconds = given.seconds("after_seconds=", after_seconds, zero=True)


class ApprovalPolicy:
    """How long people have, and who is told when.

    Args:
        timeout: seconds in which somebody has to answer; then the answer is no. When not given,
            those of the gate (`approval_timeout=`), or else of the setting.
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
        timeout: float | None = None,
        levels: Iterable[EscalationLevel] = (),
        *,
        valid_for: float = DAY,
        approvers: Iterable[str] = (),
    ) -> None:
        self.timeout = None if timeout is None else given.seconds("timeout=", timeout)
        self.valid_for = given.seconds("valid_for=", valid_for)
        self.levels = given.several("levels=", levels, EscalationLevel) or (EscalationLevel(),)
        approvers = given.several("approvers=", approvers, str)
        self.approvers = tuple([given.name("An approver", one) for one in approvers])
        _check(self.levels, self.timeout)

    def within(self, seconds: float) -> ApprovalPolicy:
        """Return the policy with a time to answer: its own, or else these seconds.

        Raises:
            ConfigurationError: a level comes after that time.
        """
        if self.timeout is not None:
            return self
        _check(self.levels, seconds)
        own = copy.copy(self)
        own.timeout = seconds
        return own


def _check(levels: Sequence[EscalationLevel], timeout: float | None) -> None:
    times = [level.after_seconds for level in levels]
    if times != sorted(times) or (timeout is not None and times[-1] >= timeout):
        below = "" if timeout is None else f", all below {timeout:g}"
        raise ConfigurationError(
            "Escalation levels come one after another, and before the timeout.",
            fix=f"Order them by after_seconds{below}.",
        )

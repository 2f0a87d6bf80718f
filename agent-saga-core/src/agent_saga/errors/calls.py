"""Errors of one call: it was refused before its effect, or did not end as its caller expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.errors.root import AgentSagaError, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ApprovalDenied",
    "ApprovalRequired",
    "BranchRefused",
    "CircuitOpen",
    "CompensationError",
    "Halted",
    "LateAfterEnd",
    "LimitExceeded",
    "NoBoundary",
    "NotApplied",
    "OutcomeUnknown",
    "Quarantined",
    "RefusedError",
    "ReplayConflict",
    "ResultNotRecorded",
    "SagaClosed",
    "SagaFenced",
    "SagaForked",
    "SagaUnwinding",
    "StepError",
    "StepTimeout",
]


class RefusedError(AgentSagaError):
    """A call was refused before its effect; the world is unchanged by it.

    Args:
        message: what was refused.
        rule: the name of the rule, limit or switch that refused.
        reason: why, in words that a model or a person can act on.
        fix: what would change the verdict.
        control: what kind of control the rule belongs to: "switch", "breaker", "limits", "rules",
            "approvals".
        facts: plain data that the verdict rests on, for the log.
    """

    code = "SAGA-200"

    def __init__(
        self, message: str = "", *, rule: str = "", reason: str = "", fix: str = "",
        control: str = "", facts: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message, fix=fix)
        self.rule = rule
        self.reason = text_of(reason)
        self.control = control
        self.facts = dict(facts or {})

    def decision(self) -> dict[str, object]:
        """Return the verdict as an explainable record: what refused, why, what would change it."""
        refused = {"verdict": "refuse", "rule": self.rule, "reason": self.reason}
        more = {"change": self.fix, "control": self.control, "facts": self.facts}
        decision: dict[str, object] = {**refused, **more}
        return {name: value for name, value in decision.items() if value}


class ApprovalRequired(RefusedError):
    """The call needs a human's approval, and nobody can be asked."""

    code = "SAGA-201"


class ApprovalDenied(RefusedError):
    """A human was asked and did not approve the call."""

    code = "SAGA-202"


class Halted(RefusedError):
    """A person has halted this tool, or nobody can tell whether one has."""

    code = "SAGA-208"


class Quarantined(Halted):
    """A person has quarantined this saga: none of its steps and inverses may run."""

    code = "SAGA-209"


class NoBoundary(RefusedError):
    """A tool that must not run unprotected was called outside any boundary."""

    code = "SAGA-203"


class SagaUnwinding(RefusedError):
    """The saga is being undone, so no further step of it may start."""

    code = "SAGA-204"


class SagaClosed(RefusedError):
    """The saga has ended, so no further step of it may start."""

    code = "SAGA-205"


class BranchRefused(RefusedError):
    """A run would begin at an earlier point of its history, and effects after that point stand."""

    code = "SAGA-215"


class SagaFenced(RefusedError):
    """Another process has taken this saga over; this one may not act on it any more."""

    code = "SAGA-206"


class SagaForked(RefusedError):
    """A saga of the parent process was used in a forked child."""

    code = "SAGA-207"


class LimitExceeded(RefusedError):
    """The call would go over a budget or a rate; what it wanted was not counted."""

    code = "SAGA-210"


class CircuitOpen(RefusedError):
    """The tool failed too often; its breaker lets no call through for a while."""

    code = "SAGA-211"


class StepError(AgentSagaError):
    """One step did not end as its caller expects."""

    code = "SAGA-300"


class OutcomeUnknown(StepError):
    """An equal earlier call may have taken effect; running it again could do it twice."""

    code = "SAGA-301"


class ReplayConflict(StepError):
    """A step's key was used again with other arguments."""

    code = "SAGA-302"


class ResultNotRecorded(StepError):
    """A step of a resumed saga took effect, and its result was not recorded faithfully."""

    code = "SAGA-306"


class StepTimeout(StepError, TimeoutError):
    """A tool did not answer within its time; whether it took effect is unknown."""

    code = "SAGA-303"


class NotApplied(StepError):
    """The call had no effect: raised by a tool, or returned by a prober.

    Args:
        reason: what was observed. final: True when nothing can arrive late either (for example the
            provider has spent the key).

    Raises:
        TypeError: `final` is neither True nor False: what only counts as true is no promise.
    """

    code = "SAGA-304"
    reason = ""
    final = False

    def __init__(self, reason: str = "", *, final: bool = False) -> None:
        if type(final) is not bool:
            raise TypeError(f"NotApplied(final=…) is True or False, not {final!r}")
        self.reason = text_of(reason)
        super().__init__(self.reason or "The call had no effect.")
        self.final = final


class LateAfterEnd(StepError):
    """A call that had timed out ended after its saga had."""

    code = "SAGA-305"


class CompensationError(AgentSagaError):
    """An inverse could not be derived or did not succeed."""

    code = "SAGA-310"

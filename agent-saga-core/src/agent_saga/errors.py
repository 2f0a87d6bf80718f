"""Every error that agent-saga raises, in one tree.

Rules of this part:

- One root, `AgentSagaError`; the branches say who must act. `ConfigurationError`: the author of
  the program. `RefusedError`: nobody, the system worked and the effect did not happen.
  `StepError`: the caller of one tool. `SagaError`: the caller of the boundary. `WALError` and
  `StateError`: the operator.
- Each class has a stable `code` (`SAGA-…`) that never changes its meaning, and may carry `fix`: the
  next thing to do, as one sentence or command. `str(error)` is the whole message with code and fix.
- `NotApplied` is both an answer of a prober and an exception that a tool may raise; either way it
  says: this call had no effect.
- What user code must not swallow leaves a boundary as it came (`CancelledError`,
  `KeyboardInterrupt`, `SystemExit`), with the report in its notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_saga.domain.report import RollbackReport


class AgentSagaWarning(UserWarning):
    """Something that agent-saga can live with and a person should know."""


class AgentSagaError(Exception):
    """The root of every error of agent-saga.

    Args:
        message: what happened and what stands, as sentences.
        fix: the next thing to do: a sentence, a setting or a command.
    """

    code = "SAGA-000"

    def __init__(self, message: str = "", *, fix: str = "") -> None:
        self.message = message or (type(self).__doc__ or "").strip().partition("\n")[0]
        self.fix = fix
        super().__init__(self.message)

    def __str__(self) -> str:
        head, newline, rest = self.message.partition("\n")
        text = f"{head} [{self.code}]{newline}{rest}"
        told = not self.fix or self.fix in self.message
        return text if told else f"{text}\n  To do: {self.fix}"


def one_line(error: BaseException) -> str:
    """Return an error's class and what it says, on one line, without code and fix."""
    try:
        text = error.message if isinstance(error, AgentSagaError) else str(error)
    except Exception:
        text = "(its message cannot be shown)"
    return f"{type(error).__name__}: {' '.join(text.split())}".removesuffix(": ")


class ConfigurationError(AgentSagaError):
    """A tool, kit, gate or log is set up in a way that cannot work."""

    code = "SAGA-100"


class UndeclaredSemantics(ConfigurationError):
    """A tool was wrapped without saying what its effect is."""

    code = "SAGA-101"


class UndeclaredTool(ConfigurationError):
    """An agent has tools that nobody declared to agent-saga."""

    code = "SAGA-102"


class UnknownHandler(ConfigurationError):
    """An inverse names a handler that is not registered in this process."""

    code = "SAGA-103"


class DuplicateName(ConfigurationError):
    """Two parts of the program registered the same name."""

    code = "SAGA-104"


class PluginError(ConfigurationError):
    """A plugin cannot be loaded, or misuses a hook."""

    code = "SAGA-105"


class SecretLeak(ConfigurationError):
    """Something that looks like a secret was about to be written to the log."""

    code = "SAGA-106"


class NotRecordable(ConfigurationError):
    """A value cannot be carried by the log exactly."""

    code = "SAGA-107"


class ToolNotAwaited(ConfigurationError):
    """A tool call in an async boundary was created and never awaited, so it did not run."""

    code = "SAGA-108"


class IllegalTransition(AgentSagaError):
    """A record would move a step or a saga in a way that its lifecycle forbids (a bug of ours)."""

    code = "SAGA-190"


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
        self.reason = reason
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
    """

    code = "SAGA-304"

    def __init__(self, reason: str = "", *, final: bool = False) -> None:
        super().__init__(reason or "The call had no effect.")
        self.reason = reason
        self.final = final


class LateAfterEnd(StepError):
    """A call that had timed out ended after its saga had."""

    code = "SAGA-305"


class CompensationError(AgentSagaError):
    """An inverse could not be derived or did not succeed."""

    code = "SAGA-310"


class SagaError(AgentSagaError):
    """A boundary did not end well; `.report` tells what stands.

    Args:
        message: what happened.
        report: the `RollbackReport` of the boundary.
    """

    code = "SAGA-400"

    def __init__(self, message: str, *, report: RollbackReport, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.report = report


class SagaAborted(SagaError):
    """The boundary failed and its steps were undone as far as the report says.

    Args:
        message: what happened.
        cause: the exception that made the boundary fail.
        report: what was compensated, failed, orphaned, left unresolved, kept.
    """

    code = "SAGA-401"

    def __init__(
        self, message: str, *, cause: BaseException, report: RollbackReport, fix: str = ""
    ) -> None:
        super().__init__(message, report=report, fix=fix)
        self.cause = cause


class AbortRequested(AgentSagaError):
    """The program asked for the boundary to be undone (`saga.abort`)."""

    code = "SAGA-403"


class SuspendRequested(AgentSagaError):
    """The program asked for the saga to be suspended (`saga.suspend`).

    Args:
        message: what it waits for.
        deadline: seconds until the wait is over.
        at_deadline: "undo", or "hold" to leave it to a human.
        awaits: plain data for whoever resumes it.
        saga: the saga that was asked for; empty for the one whose boundary it leaves.
    """

    code = "SAGA-404"

    def __init__(
        self,
        message: str,
        *,
        deadline: float = 7 * 86_400.0,
        at_deadline: str = "undo",
        awaits: object = None,
        saga: str = "",
    ) -> None:
        super().__init__(message)
        self.saga = saga
        self.deadline = deadline
        self.at_deadline = at_deadline
        self.awaits = awaits


class ApprovalPending(SuspendRequested):
    """A human was asked where an answer can wait: the call did not run, the boundary is suspended.

    Args:
        message: what it waits for.
        question: the request as plain data: `id`, `tool`, `rule`, `reason`, `arguments`.
    """

    code = "SAGA-408"

    def __init__(self, message: str, *, question: Mapping[str, object]) -> None:
        super().__init__(message, awaits=dict(question))
        self.question = dict(question)


class SagaSuspended(SagaError):
    """The boundary was left suspended: neither committed nor failed; its id resumes it."""

    code = "SAGA-405"


class NotSuspendable(AgentSagaError):
    """A saga cannot be suspended, since another process could not undo all of it."""

    code = "SAGA-406"


class DuplicateSaga(AgentSagaError):
    """A saga of this id exists already."""

    code = "SAGA-407"


class CommittedUnsettled(SagaError):
    """The boundary ended well, but some effect in it is unknown, or stands undeclared."""

    code = "SAGA-402"


class WALError(AgentSagaError):
    """The write-ahead log cannot do what was asked."""

    code = "SAGA-500"


class WALBackpressure(WALError):
    """The log is not keeping up; the intent was refused before its effect."""

    code = "SAGA-501"


class WALStalled(WALError):
    """The disk did not confirm a write within its time."""

    code = "SAGA-502"


class WALPoisoned(WALError):
    """A write or sync failed; nothing more is promised about this segment."""

    code = "SAGA-503"


class WALCorrupt(WALError):
    """The log is damaged where it had been durable."""

    code = "SAGA-504"


class WALFormatError(WALError):
    """The log was written in a format that this version does not read."""

    code = "SAGA-505"


class WALPathError(WALError):
    """The log's path cannot be used as a log directory."""

    code = "SAGA-506"


class WALFull(WALError):
    """There is no room for a new intent; the call was refused before its effect."""

    code = "SAGA-507"


class CompactionRefused(WALError):
    """The log was not compacted: somebody else is at work on it; nothing left it."""

    code = "SAGA-508"


class RecoveryError(AgentSagaError):
    """A saga could not be taken over, undone or closed from outside its process."""

    code = "SAGA-700"


class ClaimRefused(RecoveryError):
    """Somebody else owns the saga, or its owner still lives."""

    code = "SAGA-701"


class RecoveryRefused(RecoveryError):
    """Recovery was not begun, since something that it needs is not here; nothing was run."""

    code = "SAGA-703"


class UndoRefused(RecoveryError):
    """A saga cannot be undone as asked; nothing was run."""

    code = "SAGA-702"


class ForkRefused(RecoveryError):
    """A resumed saga cannot go another way as asked; nothing was run."""

    code = "SAGA-704"


class StateError(AgentSagaError):
    """The state store cannot do what was asked."""

    code = "SAGA-600"


class ApprovalError(AgentSagaError):
    """A request for approval cannot be told or decided as asked; nothing was changed."""

    code = "SAGA-620"


class AlreadyDecided(ApprovalError):
    """Somebody was faster: the request is decided already, and the first decision counts."""

    code = "SAGA-621"


class StateUnavailable(StateError):
    """The state store did not answer within its time."""

    code = "SAGA-601"

"""Errors of a whole boundary, and how a program asks for one to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.errors.root import AgentSagaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_saga.domain.report import RollbackReport

__all__ = [
    "AbortRequested",
    "ApprovalPending",
    "CommittedUnsettled",
    "DuplicateSaga",
    "NotSuspendable",
    "SagaAborted",
    "SagaError",
    "SagaSuspended",
    "SuspendRequested",
]


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

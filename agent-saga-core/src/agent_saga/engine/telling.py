"""What the caller of a boundary is told of its end: the error, with the report."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from agent_saga.engine.payloads import error_text
from agent_saga.errors import AgentSagaError, SagaAborted, one_line

if TYPE_CHECKING:
    from agent_saga.domain.report import RollbackReport


def cause_of(failure: BaseException) -> str:
    """Return why a boundary failed, as the log tells it."""
    text = error_text(failure) or {}
    return f"{text.get('type', '')}: {text.get('message', '')}"


def annotated(error: BaseException, report: RollbackReport) -> BaseException:
    """Give an error that passes on unchanged the report, as far as its class lets it."""
    noted(error, report.summary())
    with contextlib.suppress(Exception):
        error.saga_report = report  # type: ignore[attr-defined]
    return error


def noted(error: BaseException, note: str) -> None:
    """Add a note to an error, unless its class refuses that."""
    with contextlib.suppress(Exception):
        error.add_note(note)


def aborted(report: RollbackReport, cause: BaseException) -> SagaAborted:
    """Return the error that tells a caller that the boundary failed, and what was undone."""
    hint = cause.fix if isinstance(cause, AgentSagaError) else ""
    return SagaAborted(
        f"{one_line(cause)}\n{report.summary()}",
        cause=cause,
        report=report,
        fix=hint if report.clean else report.next_command(),
    )

"""What the caller of a boundary is told of its end: the error, with the report."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from agent_saga.domain.printing import printable
from agent_saga.domain.secrets import mask_text
from agent_saga.engine.payloads import error_text
from agent_saga.errors import (
    AgentSagaError,
    CommittedUnsettled,
    SagaAborted,
    SagaSuspended,
    ToolNotAwaited,
    one_line,
)

if TYPE_CHECKING:
    from agent_saga.domain.report import RollbackReport


UNSETTLED: Final = "The boundary ended well, but not everything in it is settled."


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
        f"{printable(mask_text(one_line(cause)))}\n{report.summary()}",
        cause=cause,
        report=report,
        fix=hint if report.clean else report.next_command(),
    )


def unsettled(report: RollbackReport) -> CommittedUnsettled:
    """Return the error that tells a caller that a boundary was committed, and not all is known."""
    return CommittedUnsettled(
        f"{UNSETTLED}\n{report.summary()}", report=report, fix=report.next_command()
    )


def suspended(report: RollbackReport, reason: str, key: str) -> SagaSuspended:
    """Return the error that tells a caller that the saga waits, and how to go on with it."""
    return SagaSuspended(
        f"Saga {report.saga_id} is suspended: {reason}",
        report=report,
        fix=f"Resume it with saga_id={key!r}, resume=True.",
    )


def told_unawaited(names: Sequence[str]) -> ToolNotAwaited | None:
    """Return the error that names the calls that nobody awaited; None if there are none."""
    if not names:
        return None
    return ToolNotAwaited(
        f"Calls were made and never awaited, so they did not run: {', '.join(names)}.",
        fix="Write `await` before them.",
    )


def told_later(report: RollbackReport, later: RollbackReport) -> None:
    """Tell a boundary's report what became of a savepoint that was undone after it was made.

    Args:
        report: the boundary's.
        later: the savepoint's.
    """
    told = {line.step for line in (*report.standing, *report.compensated)}
    undone = [line for line in later.compensated if line.step not in told]
    standing = [line for line in later.standing if line.step not in told]
    if not (undone or standing):
        return
    report.compensated += undone
    report.unresolved += standing
    report.notes.append(f"savepoint {later.savepoint!r} was undone after the end")

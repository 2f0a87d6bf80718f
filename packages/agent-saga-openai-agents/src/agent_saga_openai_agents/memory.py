"""What a session holds of a run that was undone.

Rules of this part:

- The SDK keeps calls and their answers in the session turn by turn, also those of a run that fails
  later. The next run's model would take what was undone for done. So a message behind them says
  that they were undone, and what may stand; nothing that the program keeps there is taken away.
- A run whose process died is undone by recovery, which knows of no session.
- A session that cannot be told does not replace the run's error; it is logged.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from agent_saga.domain.report import RollbackReport, StepLine
from agent_saga.observe.logger import logger

log = logger("agent_saga.openai_agents")


@contextlib.asynccontextmanager
async def told_if_undone(session: Any) -> AsyncIterator[None]:
    """Tell a session when the run inside was undone.

    Args:
        session: the framework's; None for none.
    """
    try:
        yield
    except BaseException as error:
        report = getattr(error, "report", None) or getattr(error, "saga_report", None)
        text = _said_of(report) if isinstance(report, RollbackReport) else ""
        if session is not None and text:
            await _tell(session, text)
        raise


async def _tell(session: Any, text: str) -> None:
    try:
        await session.add_items([{"role": "system", "content": text}])
    except Exception:
        log.exception("the session could not be told: %s", text)


def _said_of(report: RollbackReport) -> str:
    """Return what the next run's model must know; empty if nothing of the kind was done."""
    undone, stands = _names(report.compensated), _names([*report.standing, *report.kept])
    if report.outcome == "SUSPENDED" or not (undone or stands):
        return ""
    said = ["The run before this message failed; what its tools answered no longer holds."]
    if undone:
        said.append(f"Undone: {undone}.")
    if stands:
        said.append(f"May still stand: {stands}.")
    return " ".join(said)


def _names(lines: Iterable[StepLine]) -> str:
    return ", ".join(line.tool for line in lines)

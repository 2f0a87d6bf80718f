"""What a step is told that the kill switch refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.controls.switch.document import DRAIN
from agent_saga.errors import AgentSagaError, Halted, Quarantined

if TYPE_CHECKING:
    from agent_saga.controls.switch.document import Entry

__all__ = ["CONTROL", "halted", "quarantined", "unreadable"]

CONTROL: Final = "switch"


def halted(tool: str, entry: Entry) -> Halted:
    """Return the refusal of a step that a halt covers."""
    what = "is drained: no new saga may use it" if entry.mode == DRAIN else "is halted"
    return Halted(
        f"{tool} {what} ({entry.scope}, by {entry.by}): {entry.reason}.",
        rule=entry.scope,
        reason=entry.reason,
        fix=f"agent-saga resume --scope '{entry.scope}' --by …",
        control=CONTROL,
        facts={"mode": entry.mode, "by": entry.by, "at": entry.at, "until": entry.until},
    )


def quarantined(entry: Entry) -> Quarantined:
    """Return the refusal of anything that a quarantined saga would do."""
    return Quarantined(
        f"Saga {entry.scope} is quarantined by {entry.by}: {entry.reason}.",
        rule="quarantine",
        reason=entry.reason,
        fix=f"agent-saga resume --scope saga:{entry.scope} --by …",
        control=CONTROL,
        facts={"by": entry.by, "at": entry.at},
    )


def unreadable(error: Exception) -> Halted:
    """Return the refusal of a step while nobody can tell what is halted."""
    said = error.message if isinstance(error, AgentSagaError) else str(error)
    fix = error.fix if isinstance(error, AgentSagaError) else ""
    return Halted(
        f"What is halted cannot be read, so the step was refused: {said}",
        rule="kill-switch",
        reason="the kill switch cannot be read",
        fix=fix or "See that the state store can be read; steps go on by themselves then.",
        control=CONTROL,
    )

"""What a step is told that the kill switch refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.controls.switch.document import DRAIN
from agent_saga.domain.commands import quoted, told_command
from agent_saga.errors import AgentSagaError, Halted, Quarantined

if TYPE_CHECKING:
    from agent_saga.controls.switch.document import Entry

__all__ = [
    "CONTROL",
    "QUARANTINE",
    "halted",
    "lift_command",
    "perhaps_quarantined",
    "quarantined",
    "unreadable",
]

CONTROL: Final = "switch"
QUARANTINE: Final = "saga:"
"""How the command that lifts a quarantine names the saga."""


def lift_command(scope: str, log: str) -> str:
    """Return the command that lifts what is set for a scope."""
    return told_command(f"resume --scope {quoted(scope)} --by NAME", log)


def halted(tool: str, entry: Entry, log: str = "") -> Halted:
    """Return the refusal of a step that a halt covers.

    Args:
        tool: what was called.
        entry: the halt.
        log: the path or address of its log, for the command that lifts it.
    """
    what = "is drained: no new saga may use it" if entry.mode == DRAIN else "is halted"
    return Halted(
        f"{tool} {what} ({entry.scope}, by {entry.by}): {entry.reason}.",
        rule=entry.scope,
        reason=entry.reason,
        fix=lift_command(entry.scope, log),
        control=CONTROL,
        facts={"mode": entry.mode, "by": entry.by, "at": entry.at, "until": entry.until},
    )


def quarantined(entry: Entry, log: str = "") -> Quarantined:
    """Return the refusal of anything that a quarantined saga would do.

    Args:
        entry: the quarantine.
        log: the path or address of its log, for the command that lifts it.
    """
    return Quarantined(
        f"Saga {entry.scope} is quarantined by {entry.by}: {entry.reason}.",
        rule="quarantine",
        reason=entry.reason,
        fix=lift_command(f"{QUARANTINE}{entry.scope}", log),
        control=CONTROL,
        facts={"by": entry.by, "at": entry.at},
    )


def perhaps_quarantined(saga: str, trouble: Halted) -> Quarantined:
    """Return the refusal of an inverse while a change was heard of and cannot be read."""
    return Quarantined(
        f"Saga {saga} may be quarantined, which cannot be read, so it is not undone now.",
        rule="quarantine",
        reason="the kill switch has changed and cannot be read",
        fix=f"{trouble.fix} Recovery undoes the saga when it can be read.",
        control=CONTROL,
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

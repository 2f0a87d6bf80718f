"""The section `recovery`: when somebody last looked for what dead processes left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.cli.output import printable
from agent_saga.cli.status.section import Section, ago
from agent_saga.recovery.seen import last_seen

if TYPE_CHECKING:
    from agent_saga.cli.status.section import Scene

__all__ = ["recovery"]

_LONG_AGO: Final = 600.0
"""Seconds without a pass after which what waits for one needs attention."""


def recovery(scene: Scene) -> Section:
    """Tell when recovery last made a pass, and who made it."""
    seen = last_seen(scene.log.path)
    waits = bool(scene.crashed)
    if seen is None:
        nobody = {"seen_us": None, "by": None, "pid": None, "host": None}
        return Section(["no pass was made yet on this log"], nobody, attention=waits)
    age = max(scene.now - seen.time, 0) / 1e6
    line = f"last seen {ago(age)} ago: {printable(seen.by)} (process {seen.pid} on "
    lines = [f"{line}{printable(seen.host)})"]
    facts = {"seen_us": seen.time, "by": seen.by, "pid": seen.pid, "host": seen.host}
    return Section(lines, facts, attention=waits and age > _LONG_AGO)

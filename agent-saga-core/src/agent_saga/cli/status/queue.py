"""The section `queue`: how many cases wait for a human, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.cli.output import counted
from agent_saga.cli.place import wal_option
from agent_saga.cli.status.section import Section, ago
from agent_saga.recovery.queue import cases_in

if TYPE_CHECKING:
    from agent_saga.cli.status.section import Scene

__all__ = ["queue"]


def queue(scene: Scene) -> Section:
    """Tell how many cases there are, and how old the oldest is."""
    found = cases_in(str(scene.log.path))
    since = min((case.view.last for case in found), default=scene.now)
    age = max(scene.now - since, 0) / 1e6
    facts = {"cases": [case.id for case in found], "oldest_s": age if found else None}
    if not found:
        return Section(["nothing needs a human"], facts)
    lines = [
        f"{counted(len(found), 'case')}, the oldest for {ago(age)}. Next:",
        f"  agent-saga queue list {wal_option(scene.log.path)}",
    ]
    return Section(lines, facts, attention=True)

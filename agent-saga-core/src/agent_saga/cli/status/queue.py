"""The section `queue`: how many cases wait for a human, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.cli.output import counted
from agent_saga.cli.place import wal_option
from agent_saga.cli.status.section import Section, ago
from agent_saga.recovery.queue import cases_in, untold_in

if TYPE_CHECKING:
    from agent_saga.cli.status.section import Scene

__all__ = ["queue"]


def queue(scene: Scene) -> Section:
    """Tell how many cases there are, and how old the oldest is."""
    found, untold = cases_in(str(scene.log.path)), untold_in(str(scene.log.path))
    since = [case.view.last for case in found if not case.vanished]
    age = max(scene.now - min(since), 0) / 1e6 if since else None
    facts = {"cases": [case.id for case in found], "oldest_s": age}
    facts["untold"] = [saga.id for saga, _ in untold]
    if not found and not untold:
        return Section(["nothing needs a human"], facts)
    oldest = "" if age is None else f", the oldest for {ago(age)}"
    open_ = f", {counted(len(untold), 'saga')} that nobody can take over" if untold else ""
    lines = [
        f"{counted(len(found), 'case')}{oldest}{open_}. Next:",
        f"  agent-saga queue list {wal_option(scene.log.path)}",
    ]
    return Section(lines, facts, attention=True)

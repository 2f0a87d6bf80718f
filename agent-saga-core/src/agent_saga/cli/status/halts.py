"""The section `halts`: what is halted, drained or quarantined, by whom, and how it is lifted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.cli.status.section import Section
from agent_saga.cli.switches import entry_document, entry_line, lift_command, switches_of
from agent_saga.controls.switch.acting import here

if TYPE_CHECKING:
    from agent_saga.cli.status.section import Scene

__all__ = ["halts"]


def halts(scene: Scene) -> Section:
    """Tell what is halted; while nobody can tell that, every step is refused."""
    path = scene.log.path
    switches = switches_of(path)
    entries = switches.holding(scene.now, here())
    facts = {"entries": [entry_document(entry) for entry in entries]}
    if not entries:
        return Section(["nothing is halted or quarantined"], facts)
    lines = [f"{len(entries)} set"]
    for entry in entries:
        lines += [f"  {entry_line(entry)}", f"    lift: {lift_command(entry, path)}"]
    return Section(lines, facts, attention=True)

"""The section `writers`: who writes to the log, who is dead, and whose log cannot be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.cli.output import counted, printable
from agent_saga.cli.status.section import Section
from agent_saga.wal.takeover import opening_of, poisoned_reason

if TYPE_CHECKING:
    from agent_saga.cli.status.section import Scene

__all__ = ["writers"]


def writers(scene: Scene) -> Section:
    """Tell which processes write, and of which of them the log failed."""
    writers = scene.owners.writers
    living = [_living(scene, name) for name in sorted(writers.alive)]
    failed = [one for one in living if one["poisoned"] is not None]
    untold = {name: str(writers.untold[name]) for name in sorted(writers.untold)}
    lines = [f"{len(living)} alive, {len(writers.dead)} dead"]
    lines[0] += f", {len(untold)} of which nobody can tell" if untold else ""
    lines += [f"  {_who(one)}" for one in living]
    for name in untold:
        error = writers.untold[name]
        lines += [f"  {printable(error.message)}", f"    To do: {printable(error.fix)}"]
    facts = {
        "alive": living,
        "dead": len(writers.dead),
        "untold": untold,
        "poisoned": len(failed),
    }
    if failed:
        what = counted(len(failed), "process")
        lines.append(f"  The log of {what} CANNOT be written any more; restart what runs there.")
    return Section(lines, facts, attention=bool(failed or untold))


def _living(scene: Scene, writer: str) -> dict[str, Any]:
    path = str(scene.log.path)
    opened = opening_of(path, writer)
    told = {name: opened.get(name) for name in ("pid", "host", "python")}
    return {"writer": writer, **told, "poisoned": poisoned_reason(path, writer)}


def _who(one: dict[str, Any]) -> str:
    pid = "a process" if one["pid"] is None else f"process {printable(one['pid'])}"
    text = f"{printable(one['writer'])}: {pid}"
    if one["host"]:
        text += f" on {printable(one['host'])}"
    return text if one["poisoned"] is None else f"{text}: FAILED ({printable(one['poisoned'])})"

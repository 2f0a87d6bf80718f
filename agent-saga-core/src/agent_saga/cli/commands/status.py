"""`agent-saga status`: how the log, its writers, its sagas and their recovery stand now."""

from __future__ import annotations

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import log_options
from agent_saga.cli.output import printable, say, say_json
from agent_saga.cli.place import NO_LOG, is_there, log_path
from agent_saga.cli.reading import damage_text, read_log
from agent_saga.cli.status import Scene, looked_at

__all__ = ["command"]


@click.command("status")
@log_options
def command(wal_path: str | None, *, as_json: bool) -> Exit:
    """Tell how the log, its writers, its sagas and their recovery stand now.

    Exits with 0 if nothing needs attention, with 1 if something does, and with 3 if there is no
    log. Sagas that are open, suspended until later or held need none.
    """
    path = log_path(wal_path)
    log = read_log(path)
    sections = looked_at(Scene(log)) if is_there(path) else {}
    attention = log.broken or any(section.attention for section in sections.values())
    if as_json:
        say_json(
            {
                "log": str(path),
                "exists": is_there(path),
                "whole": not log.broken,
                "damages": damage_text(log.damages),
                "attention": attention,
                "sections": {
                    name: {"attention": section.attention, **section.facts}
                    for name, section in sections.items()
                },
            }
        )
    else:
        say(f"Log: {printable(path)}", *damage_text(log.damages))
        for name, section in sections.items():
            mark = "!" if section.attention else " "
            first, *rest = section.lines
            say(f"{mark} {name}: {first}", *[f"  {line}" for line in rest])
        if not is_there(path):
            say(NO_LOG)
    if not is_there(path):
        return Exit.NOTHING_VERIFIABLE
    return Exit.NOT_CLEAN if attention else Exit.CLEAN

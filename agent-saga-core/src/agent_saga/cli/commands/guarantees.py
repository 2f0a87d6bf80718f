"""`agent-saga guarantees`: what holds, and what is expressly not claimed."""

from __future__ import annotations

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import log_options
from agent_saga.cli.output import note, printable, say, say_json
from agent_saga.cli.place import log_path
from agent_saga.kit.guarantees import manifest

__all__ = ["command"]


@click.command("guarantees")
@log_options
def command(wal_path: str | None, *, as_json: bool) -> Exit:
    """Print what agent-saga guarantees, and what it does not claim."""
    told = manifest()
    path = log_path(wal_path)
    if as_json:
        note(f"Log: {printable(path)}")
        say_json(told)
        return Exit.CLEAN
    say(f"Log: {printable(path)}")
    say(f"agent-saga-core {told['package']}", "", "Guaranteed:")
    for entry in told["guarantees"]:
        level = f" ({printable(entry['level'])})" if "level" in entry else ""
        say(f"  {printable(entry['id'])}{level}: {printable(entry['sentence'])}")
    say("", "Not claimed:")
    for entry in told["not_claimed"]:
        say(f"  {printable(entry['id'])}: {printable(entry['sentence'])}")
    return Exit.CLEAN

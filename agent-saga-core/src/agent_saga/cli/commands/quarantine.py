"""`agent-saga quarantine SAGA`: stop one saga altogether, until a person has looked."""

from __future__ import annotations

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.naming import saga_meant
from agent_saga.cli.options import by_option, log_options, named, reason_option
from agent_saga.cli.output import printable, say, say_json
from agent_saga.cli.place import existing_log
from agent_saga.cli.reach import live_writers, reached
from agent_saga.cli.reading import read_log
from agent_saga.cli.switches import (
    entry_document,
    entry_line,
    in_flight_lines,
    lift_command,
    switch_of,
)

__all__ = ["command"]


@click.command("quarantine", context_settings={"ignore_unknown_options": True})
@click.argument("saga", callback=named)
@reason_option()
@by_option()
@log_options
def command(saga: str, reason: str, by: str, wal_path: str | None, *, as_json: bool) -> Exit:
    """Stop a saga's steps and its inverses, and keep recovery from it.

    SAGA is an id, the saga_id that the program gave, a name, or the beginning of an id. What
    stands, stands until the quarantine is lifted.
    """
    path = existing_log(wal_path)
    meant = saga_meant(read_log(path), saga)
    done = switch_of(path).quarantine(meant.id, reason=reason, by=by)
    entry = done.entries[0]
    steps = [s for s in reached(path, live_writers(path)).in_flight if s.saga == entry.scope]
    if as_json:
        document = {"log": str(path), "quarantine": entry_document(entry)}
        say_json({**document, "in_flight": [step._asdict() for step in steps]})
        return Exit.CLEAN
    say(f"Log: {printable(path)}", f"Saga {entry_line(entry)}", *in_flight_lines(steps))
    say(f"Lift it with: {lift_command(entry, path)}")
    return Exit.CLEAN

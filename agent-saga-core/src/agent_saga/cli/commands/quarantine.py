"""`agent-saga quarantine SAGA`: stop one saga altogether, until a person has looked."""

from __future__ import annotations

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import log_options, named
from agent_saga.cli.output import note, printable, say, say_json
from agent_saga.cli.place import log_path
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
@click.option("--reason", required=True, help="Why; recorded.")
@click.option("--by", required=True, help="Who asks for it; recorded.")
@log_options
def command(saga: str, reason: str, by: str, wal_path: str | None, *, as_json: bool) -> Exit:
    """Stop a saga's steps and its inverses, and keep recovery from it.

    SAGA is an id, the beginning of one, or a name. What stands, stands until the quarantine is
    lifted.
    """
    path = log_path(wal_path)
    found = read_log(path).find(saga)
    if len(found) != 1:
        many = f"may be one of {len(found)} sagas" if found else "is no saga of this log"
        note(f"{printable(saga)!r} {many}; agent-saga list shows their ids. Nothing was set.")
        return Exit.USAGE if found else Exit.NOTHING_VERIFIABLE
    done = switch_of(path).quarantine(found[0].id, reason=reason, by=by)
    entry = done.entries[0]
    steps = [s for s in reached(path, live_writers(path)).in_flight if s.saga == entry.scope]
    if as_json:
        document = {"log": str(path), "quarantine": entry_document(entry)}
        say_json({**document, "in_flight": [step._asdict() for step in steps]})
        return Exit.CLEAN
    say(f"Log: {printable(path)}", f"Saga {entry_line(entry)}", *in_flight_lines(steps))
    say(f"Lift it with: {lift_command(entry, path)}")
    return Exit.CLEAN

"""`agent-saga halt`: stop forward steps, in every process that uses the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import by_option, log_options, reason_option
from agent_saga.cli.output import note, printable, say, say_json
from agent_saga.cli.place import is_there, log_path
from agent_saga.cli.reach import known_tools, live_writers, reached
from agent_saga.cli.switches import (
    entry_document,
    entry_line,
    lift_command,
    reach_lines,
    switch_of,
)
from agent_saga.controls.switch import scopes
from agent_saga.controls.switch.document import LOST
from agent_saga.wal.file import FileWAL

if TYPE_CHECKING:
    from agent_saga.cli.reach import Reach
    from agent_saga.controls.switch.kill_switch import KillSwitch

__all__ = ["command"]


@click.command("halt")
@click.option(
    "--scope",
    default=scopes.EVERYTHING,
    show_default=True,
    help="The target: *, tool:NAME, tool:PREFIX.* or tag:NAME.",
)
@reason_option("Why; recorded, and told to whoever is refused.")
@by_option()
@click.option("--drain", is_flag=True, help="Let sagas that have begun go on to their end.")
@click.option("--ttl", type=float, metavar="SECONDS", help="Be over by itself after so long.")
@log_options
def command(
    scope: str,
    reason: str,
    by: str,
    ttl: float | None,
    wal_path: str | None,
    *,
    drain: bool,
    as_json: bool,
) -> Exit:
    """Stop forward steps in every process that uses the log; undoing goes on.

    When this returns, no step takes effect that is not among the steps in flight that it prints.
    Exits with 0 if it reached a living process, with 1 if it reached none, or if its target looks
    like a misspelt one; the halt is set all the same, also for processes that start later.
    """
    path = log_path(wal_path)
    is_there(path)  # there may be no log yet, but nothing else may stand there
    before = live_writers(path)
    switch = switch_of(path)
    done = switch.halt(scope, reason=reason, by=by, drain=drain, ttl=ttl)
    own = _own_writer(switch)
    reach = reached(path, live_writers(path) - (own - before))
    near = _nearest(path, scope)
    entry = done.entries[0]
    lost = [one for one in done.switches.halts if one.reason == LOST]
    if as_json:
        say_json(
            {
                "log": str(path),
                "halt": entry_document(entry),
                "lost": [entry_document(one) for one in lost],
                "reached": [{"writer": w, "pid": pid} for w, pid in reach.writers.items()],
                "in_flight": [step._asdict() for step in reach.in_flight],
                "known": near is None,
                "nearest": near or [],
            }
        )
    else:
        say(f"Log: {printable(path)}", entry_line(entry), *reach_lines(reach))
        say(f"Lift it with: {lift_command(entry, path)}")
    _warn(scope, reach, near)
    for one in lost:
        note(f"Warning: everything is halted: {LOST}: {lift_command(one, path)}")
    return Exit.CLEAN if reach.writers and not near else Exit.NOT_CLEAN


def _own_writer(switch: KillSwitch) -> frozenset[str]:
    """Return this command's own writer, which recorded the halt and is not reached by it."""
    wal = switch.store.wal
    return frozenset({wal.writer} if isinstance(wal, FileWAL) else ())


def _nearest(path: Path, scope: str) -> list[str] | None:
    """Return the nearest scopes if this one covers no known tool; None if it covers one."""
    if scope == scopes.EVERYTHING:
        return None
    tools = known_tools(path).items()
    return None if scopes.covers_any(scope, tools) else scopes.nearest(scope, tools)


def _warn(scope: str, reach: Reach, near: list[str] | None) -> None:
    if near is not None:
        hint = f" Did you mean {', '.join(map(printable, near))}?" if near else ""
        note(f"Warning: no tool that this log knows is covered by {printable(scope)}.{hint}")
        if scope.startswith(scopes.TAG):
            note("A tag that only a policy file gives is in no log; it is halted all the same.")
    if not reach.writers:
        note("Warning: no living process was reached; the halt waits for those that start.")

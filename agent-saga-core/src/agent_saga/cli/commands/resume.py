"""`agent-saga resume`: lift a halt, or take a saga out of quarantine."""

from __future__ import annotations

from pathlib import Path

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import by_option, log_options
from agent_saga.cli.output import printable, say, say_json
from agent_saga.cli.place import is_there, log_path
from agent_saga.cli.reading import read_log
from agent_saga.cli.switches import (
    entry_document,
    entry_line,
    holding,
    lift_command,
    switch_document,
    switch_of,
    switches_of,
)
from agent_saga.controls.switch.acting import Set
from agent_saga.controls.switch.refusals import QUARANTINE

__all__ = ["command"]


@click.command("resume", context_settings={"ignore_unknown_options": True})
@click.argument("saga", required=False)
@click.option("--scope", help="The target of a halt or drain, as it was set; or saga:ID.")
@by_option(about="Who lifts it; recorded.", required=False)
@log_options
def command(
    saga: str | None, scope: str | None, by: str | None, wal_path: str | None, *, as_json: bool
) -> Exit:
    """Lift the halts and drains of a target, or take a saga out of quarantine.

    It does not resume a suspended saga: that resumes in the program that knows its tools. Exits
    with 0 if something was lifted, and with 3 if nothing was set for it.
    """
    if scope is None:
        raise click.UsageError(_explained(saga))
    if saga is not None:
        raise click.UsageError("A saga is not resumed here; give --scope alone.")
    if by is None:
        raise click.UsageError("Missing option '--by': who lifts it.")
    path = log_path(wal_path)
    is_there(path)  # there may be no log, but nothing else may stand there
    done = _lifted(path, scope, by)
    if as_json:
        lifted = [entry_document(entry) for entry in done.entries]
        say_json({"log": str(path), "lifted": lifted, "holds": switch_document(path)["entries"]})
    else:
        _print(path, scope, done)
    return Exit.CLEAN if done.entries else Exit.NOTHING_VERIFIABLE


def _explained(saga: str | None) -> str:
    which = repr(printable(saga)) if saga else "'ID'"
    return (
        "agent-saga resume lifts halts (--scope) and quarantines (--scope saga:ID); it runs "
        "nothing.\n"
        "A suspended saga resumes in your own program, which has its tools:\n"
        f"  with kit.transaction(saga_id={which}, resume=True): …"
    )


def _lifted(path: Path, scope: str, by: str) -> Set:
    if not path.exists():
        return Set((), switches_of(path))
    switch = switch_of(path)
    if scope.startswith(QUARANTINE):
        return switch.release_saga(_quarantined(path, scope.removeprefix(QUARANTINE)), by=by)
    return switch.lift(scope, by=by)


def _quarantined(path: Path, wanted: str) -> str:
    """Return the id of the quarantined saga that a person means; as it is, if there is no such."""
    held = switches_of(path).quarantined
    if wanted in held or not wanted.strip():
        return wanted
    meant = [view.id for view in read_log(path).find(wanted) if view.id in held]
    return meant[0] if len(meant) == 1 else wanted


def _print(path: Path, scope: str, done: Set) -> None:
    say(f"Log: {printable(path)}")
    for entry in done.entries:
        say(f"Lifted: {entry_line(entry, 'was')}")
    if not done.entries:
        say(f"Nothing was set for the target {printable(scope)}; nothing was changed.")
    left = holding(done.switches)
    if not left:
        say("Nothing is halted or quarantined now.")
    for entry in left:
        say(f"Still: {entry_line(entry)}", f"  lift: {lift_command(entry, path)}")

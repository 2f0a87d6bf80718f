"""`agent-saga undo SAGA`: undo a saga that was committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.naming import saga_meant, step_meant
from agent_saga.cli.options import (
    by_option,
    demand,
    import_option,
    log_options,
    named,
    reason_option,
)
from agent_saga.cli.output import printable, say, say_json
from agent_saga.cli.place import existing_log
from agent_saga.cli.reading import read_log
from agent_saga.cli.recovering import as_document, opened, plan_lines, result_lines

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.runtime.daemon import RecoveryDaemon

__all__ = ["command"]

_NOBODY: Final = "dry-run"


@click.command("undo", context_settings={"ignore_unknown_options": True})
@click.argument("saga", callback=named)
@import_option
@by_option(about="Who asks for it; recorded. Needed unless --dry-run.", required=False)
@reason_option("Why; recorded. Needed unless --dry-run.", required=False)
@click.option("--to", metavar="STEP", callback=named, help="Undo only what came after this step.")
@click.option("--dry-run", is_flag=True, help="Print what would be done now; run nothing.")
@click.option(
    "--leave-the-rest",
    is_flag=True,
    help="Undo what can be undone in order; let what cannot stand.",
)
@log_options
def command(
    saga: str,
    wal_path: str | None,
    modules: tuple[str, ...],
    by: str | None,
    reason: str | None,
    to: str | None,
    *,
    dry_run: bool,
    leave_the_rest: bool,
    as_json: bool,
) -> Exit:
    """Undo a committed saga, its latest effect first.

    SAGA is an id, the saga_id that the program gave, a name, or the beginning of an id. With --to
    only what came after STEP is undone, and the saga is committed up to it; STEP is an id, the
    beginning of one, or a tool of which there is one call. What cannot be undone is refused before
    anything runs. Exits with 0 if all of it was undone, with 1 if something stands, and with 4 if
    it was refused. With --dry-run it is refused in the same cases, and exits with 1 if something
    would stand; nobody is recorded then, so --by and --reason may be left out.
    """
    who, why = by or "", reason or ""
    if not dry_run:
        demand(**{"--by": who, "--reason": why})
    path = existing_log(wal_path)
    with opened(path, modules, who or _NOBODY, acts=not dry_run) as daemon:
        view = saga_meant(read_log(path), saga)
        to = None if to is None else step_meant(view, to)
        if dry_run:
            return _planned(
                path, daemon, view.id, to, leave_the_rest=leave_the_rest, as_json=as_json
            )
        done = daemon.undo(view.id, by=who, reason=why, leave_the_rest=leave_the_rest, to=to)
    if as_json:
        say_json({"log": str(path), "sagas": as_document([done])})
    else:
        lines = [f"Log: {printable(path)}", *result_lines([done])]
        told = done.report.summary().splitlines() if done.report else lines
        say(*[printable(line) for line in told])
    return Exit.NOT_CLEAN if done.needs_human or done.stands else Exit.CLEAN


def _planned(
    path: Path,
    daemon: RecoveryDaemon,
    saga: str,
    to: str | None,
    *,
    leave_the_rest: bool,
    as_json: bool,
) -> Exit:
    plan = daemon.plan(saga, to=to)
    if not as_json:
        say(f"Log: {printable(path)}", *plan_lines(plan.steps), "Nothing was run.")
    daemon.check_undo(saga, leave_the_rest=leave_the_rest, to=to)
    if as_json:
        say_json({"log": str(path), **plan.as_dict()})
    cannot = any(step.what == "cannot" for step in plan.steps)
    return Exit.NOT_CLEAN if cannot else Exit.CLEAN

"""`agent-saga undo SAGA`: undo a saga that was committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import import_option, log_options, named
from agent_saga.cli.output import printable, say, say_json
from agent_saga.cli.place import log_path
from agent_saga.cli.reading import read_log
from agent_saga.cli.recovering import as_document, opened, plan_lines, result_lines
from agent_saga.errors import RecoveryError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["command"]


@click.command("undo", context_settings={"ignore_unknown_options": True})
@click.argument("saga", callback=named)
@import_option
@click.option("--by", required=True, help="Who asks for it; recorded.")
@click.option("--reason", required=True, help="Why; recorded.")
@click.option("--to", metavar="STEP", callback=named, help="Undo only what came after this step.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; run nothing.")
@click.option(
    "--leave-the-rest", is_flag=True, help="Undo what can be undone; let what cannot stand."
)
@log_options
def command(
    saga: str,
    wal_path: str | None,
    modules: tuple[str, ...],
    by: str,
    reason: str,
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
    it was refused.
    """
    with opened(wal_path, modules, by) as daemon:
        saga = _meant(log_path(wal_path), saga)
        if dry_run:
            plan = daemon.plan(saga, to=to)
            if as_json:
                say_json(plan.as_dict())
            else:
                say(*plan_lines(plan.steps), "Nothing was run.")
            cannot = any(step.what == "cannot" for step in plan.steps)
            return Exit.NOT_CLEAN if cannot else Exit.CLEAN
        done = daemon.undo(saga, by=by, reason=reason, leave_the_rest=leave_the_rest, to=to)
    if as_json:
        say_json(as_document([done]))
    else:
        say(*(done.report.summary().splitlines() if done.report else result_lines([done])))
    return Exit.NOT_CLEAN if done.needs_human else Exit.CLEAN


def _meant(path: Path, wanted: str) -> str:
    """Return the id of the saga that a person meant; as it is when the log has none.

    Raises:
        RecoveryError: several may be meant.
    """
    found = read_log(path).find(wanted)
    if len(found) > 1:
        ids = ", ".join(printable(view.id) for view in found)
        raise RecoveryError(
            f"{printable(wanted)!r} may be one of {len(found)} sagas: {ids}.",
            fix="Name it by its id.",
        )
    return found[0].id if found else wanted

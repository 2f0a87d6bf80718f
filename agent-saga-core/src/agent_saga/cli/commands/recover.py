"""`agent-saga recover`: undo what dead processes left, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import import_option, leave_missing_option, log_options
from agent_saga.cli.output import counted, printable, say, say_json
from agent_saga.cli.place import existing_log, wal_option
from agent_saga.cli.recovering import (
    as_document,
    check_handlers,
    opened,
    plan_lines,
    result_lines,
    said,
)
from agent_saga.recovery.recover import ELSEWHERE, FAILED, LIVE, NEEDS_HUMAN

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.recovery.daemon import Result
    from agent_saga.runtime.daemon import RecoveryDaemon

__all__ = ["command"]

_COUNTED: Final = {LIVE: "left alone", NEEDS_HUMAN: "for a human", ELSEWHERE: "in other hands"}


@click.command("recover")
@import_option
@leave_missing_option
@click.option("--dry-run", is_flag=True, help="Print what would be done now; run nothing.")
@click.option(
    "--undo-held", is_flag=True, help="Undo also what is held for its program to go on with."
)
@log_options
def command(
    wal_path: str | None,
    modules: tuple[str, ...],
    *,
    leave_missing: bool,
    dry_run: bool,
    undo_held: bool,
    as_json: bool,
) -> Exit:
    """Undo what dead processes left, once; sagas of living processes are not touched.

    Inverses run by name, so name the modules that register them with --import; a saga whose inverse
    is not registered waits, and the others are recovered. Exits with 0 if nothing is left to do,
    with 1 while anything waits, needs a human, or stands of what it has undone, and with 4 if
    without inverses that are not registered there is nothing that it could do. With --dry-run: with
    0 if there is nothing to do, with 1 if there is, and with 4 if it would be refused.
    """
    path = existing_log(wal_path)
    by = "agent-saga recover"
    with opened(path, modules, by, acts=not dry_run, leave_missing=leave_missing) as daemon:
        if dry_run:
            return _planned(path, daemon, undo_held=undo_held, as_json=as_json)
        check_handlers(daemon, undo_held=undo_held)
        result = daemon.recover_all(undo_held=undo_held)
    if as_json:
        sagas = as_document(result.sagas)
        told = {"damages": result.damages, "untold": result.untold, "skipped": result.skipped}
        say_json({"log": str(path), "sagas": sagas, **told})
    else:
        say(f"Log: {printable(path)}", *result_lines(result.sagas), _summary(result))
        say(*_next(path, needs_human=bool(result.needs_human), damages=result.damages))
    return Exit.CLEAN if result.clean else Exit.NOT_CLEAN


def _summary(result: Result) -> str:
    count = {one.outcome: 0 for one in result.sagas}
    for one in result.sagas:
        count[one.outcome] += 1
    told = [f"{number} {_COUNTED.get(outcome, outcome)}" for outcome, number in count.items()]
    if result.skipped:
        told.append(f"{counted(result.skipped, 'saga')} not looked at")
    if result.untold:
        told.append(printable(result.untold))
    if result.damages:
        told.append(f"{counted(result.damages, 'place')} of the log cannot be read")
    return f"In all: {', '.join(told)}." if told else "There is nothing to recover."


def _next(path: Path, *, needs_human: bool, damages: int) -> list[str]:
    lines = []
    if needs_human:
        lines.append(f"Next: agent-saga queue list {wal_option(path)}")
    if damages:
        lines.append(f"Next: agent-saga verify {wal_option(path)}")
    return lines


def _planned(path: Path, daemon: RecoveryDaemon, *, undo_held: bool, as_json: bool) -> Exit:
    seen = daemon.forecast(undo_held=undo_held)
    if not as_json:
        say(f"Log: {printable(path)}")
        for plan in seen.sagas:
            why = f": {printable(plan.reason)}" if plan.reason else ""
            name = f" {printable(plan.name)!r}" if plan.name else ""
            say(f"{printable(plan.saga)}{name} {said(plan.outcome)}{why}")
            say(*plan_lines(plan.steps))
        say(*([f"{printable(seen.untold)}."] if seen.untold else []))
        if seen.damages:
            say(f"{counted(seen.damages, 'place')} of the log cannot be read.")
        say("Nothing was run." if seen.sagas else "There is nothing to recover; nothing was run.")
        human = any(plan.outcome in (NEEDS_HUMAN, FAILED) for plan in seen.sagas)
        say(*_next(path, needs_human=human, damages=seen.damages))
    check_handlers(daemon, undo_held=undo_held)
    if as_json:
        plans = [plan.as_dict() for plan in seen.sagas]
        told = {"damages": seen.damages, "untold": seen.untold}
        say_json({"log": str(path), "sagas": plans, **told})
    return Exit.CLEAN if seen.clean else Exit.NOT_CLEAN

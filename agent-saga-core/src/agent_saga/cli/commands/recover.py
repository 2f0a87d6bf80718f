"""`agent-saga recover`: undo what dead processes left, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import import_option, leave_missing_option, log_options
from agent_saga.cli.output import counted, printable, say, say_json
from agent_saga.cli.place import log_path, wal_option
from agent_saga.cli.recovering import (
    as_document,
    check_handlers,
    opened,
    plan_lines,
    result_lines,
)

if TYPE_CHECKING:
    from agent_saga.recovery.undo import Plan

__all__ = ["command"]


@click.command("recover")
@import_option
@leave_missing_option
@click.option("--dry-run", is_flag=True, help="Print what would be done; run nothing.")
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

    Inverses run by name, so name the modules that register them with --import. Exits with 0 if
    nothing is left to do, with 1 while anything waits or needs a human, and with 4 if an inverse
    that is needed is not registered.
    """
    with opened(wal_path, modules, "agent-saga recover") as daemon:
        if dry_run:
            return _planned(daemon.plans(), as_json=as_json)
        check_handlers(daemon, leave_missing=leave_missing)
        result = daemon.recover_all(undo_held=undo_held)
    if as_json:
        say_json({"sagas": as_document(result.sagas), "damages": result.damages})
    else:
        say(*result_lines(result.sagas))
        say(_summary(len(result.sagas), len(result.needs_human), result.damages))
        if result.needs_human:
            say(f"Next: agent-saga queue list {wal_option(log_path(wal_path))}")
    return Exit.CLEAN if result.clean else Exit.NOT_CLEAN


def _summary(sagas: int, human: int, damages: int) -> str:
    if not sagas and not damages:
        return "Nothing is left to recover."
    need = {0: "none needs", 1: "1 needs"}.get(human, f"{human} need")
    told = f"{counted(sagas, 'saga')} looked after; {need} a human"
    if damages:
        told += f"; {counted(damages, 'place')} of the log cannot be read"
    return f"{told}."


def _planned(plans: list[Plan], *, as_json: bool) -> Exit:
    if as_json:
        say_json([plan.as_dict() for plan in plans])
    else:
        for plan in plans:
            say(f"{plan.saga} {printable(plan.name)!r} is {plan.state}:", *plan_lines(plan.steps))
            if plan.held:
                say(f"  held: {plan.held}")
        say(f"{counted(len(plans), 'saga')} to look after; nothing was run.")
    return Exit.NOT_CLEAN if plans else Exit.CLEAN

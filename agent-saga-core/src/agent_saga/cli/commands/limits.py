"""`agent-saga limits`: how much of each limit is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import log_options
from agent_saga.cli.output import printable, say, say_json, table
from agent_saga.cli.place import log_path
from agent_saga.controls.amounts import text_of
from agent_saga.controls.limits.moments import moment
from agent_saga.controls.limits.upkeep import usage_of
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.state.address import open_state

if TYPE_CHECKING:
    from agent_saga.controls.limits.usage import Usage

__all__ = ["command"]


@click.command("limits")
@click.option("--limit", "name", help="Only the limit of this name.")
@click.option(
    "--store",
    metavar="ADDRESS",
    help="Where the limits are counted, if not in the log's folder: for example sqlite:FILE.",
)
@log_options
def command(name: str | None, store: str | None, wal_path: str | None, *, as_json: bool) -> Exit:
    """Show how much of each limit is used, by what is counted apart.

    Amounts are what was let through within each limit's window; undoing gives nothing back. "Held"
    counts the calls whose announcement the store has not heard of yet.
    """
    address = store or str(log_path(wal_path))
    with open_state(address) as state:
        found = usage_of(state, moment(SYSTEM_CLOCK))
    shown = [usage for usage in found if name is None or usage.limit == name]
    if as_json:
        say_json({"store": address, "limits": [usage.as_dict() for usage in shown]})
        return Exit.CLEAN
    say(f"Limits counted in: {printable(address)}")
    if not shown:
        say("Nothing is counted there now.")
        return Exit.CLEAN
    head = ("LIMIT", "FOR", "USED", "OF", "LEFT", "WITHIN", "HELD")
    say(*table(head, [_row(usage) for usage in shown]))
    return Exit.CLEAN


def _row(usage: Usage) -> tuple[object, ...]:
    told = usage.as_dict()
    return (
        usage.limit,
        usage.scope or "all",
        text_of(usage.used),
        told["most"] or "?",
        told["left"] or "?",
        f"{usage.window:g} s",
        usage.held,
    )

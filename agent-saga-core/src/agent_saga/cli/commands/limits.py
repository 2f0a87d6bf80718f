"""`agent-saga limits`: how much of each limit is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import log_options
from agent_saga.cli.output import printable, say, say_json, table
from agent_saga.cli.place import NO_LOG, is_there, log_path
from agent_saga.controls.amounts import text_of
from agent_saga.controls.limits.moments import moment
from agent_saga.controls.limits.upkeep import usage_of
from agent_saga.domain.address import FILE, local_path, scheme_of
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.errors import NotFound
from agent_saga.state.address import open_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_saga.controls.limits.usage import Usage

__all__ = ["command"]

_SQLITE: Final = "sqlite"


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
    counts the calls whose announcement the store has not heard of yet. Exits with 3 if there is no
    log, or if nothing was ever counted for the limit that is named.
    """
    address = str(log_path(wal_path)) if store is None else store
    there = _is_there(address)
    with open_state(address) as state:
        found = usage_of(state, moment(SYSTEM_CLOCK))
    shown = [usage for usage in found if name is None or usage.limit == name]
    if name is not None and not shown and there:
        raise NotFound(f"Nothing is counted for a limit {name!r} in {address}.", fix=_known(found))
    if as_json:
        say_json({"store": address, "limits": [usage.as_dict() for usage in shown]})
    else:
        say(f"Limits counted in: {printable(address)}", *_lines(shown, there=there))
    return Exit.CLEAN if there else Exit.NOTHING_VERIFIABLE


def _lines(shown: Sequence[Usage], *, there: bool) -> list[str]:
    if not shown:
        return ["Nothing is counted there now." if there else NO_LOG]
    head = ("LIMIT", "FOR", "USED", "OF", "LEFT", "WITHIN", "HELD")
    return table(head, [_row(usage) for usage in shown])


def _is_there(address: str) -> bool:
    """Say whether a store was ever written to; what is no file of this host is asked itself."""
    scheme = scheme_of(address)
    path = Path(local_path(address).path) if scheme in (FILE, _SQLITE) else None
    if path is None:
        return True
    return is_there(path) if scheme == FILE else path.exists()


def _known(found: Iterable[Usage]) -> str:
    names = ", ".join(sorted({usage.limit for usage in found}))
    return f"It counts these: {names}." if names else "Name another place with --store."


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

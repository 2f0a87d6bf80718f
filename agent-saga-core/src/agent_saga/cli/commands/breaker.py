"""`agent-saga breaker`: which tools are left alone, and closing a breaker by hand."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import by_option, log_options
from agent_saga.cli.output import note, printable, say, say_json, table
from agent_saga.cli.place import NO_LOG, existing_log, is_there, log_path, wal_option
from agent_saga.controls.breaker.circuit import CLOSED, KEY, Circuits
from agent_saga.controls.limits.moments import moment
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.records import Ev
from agent_saga.state.address import open_state
from agent_saga.state.base import Change, Docs
from agent_saga.wal.encoding import masked
from agent_saga.wal.file import FileWAL

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["command"]


@click.group("breaker")
def command() -> None:
    """Show and reset the circuit breakers of tools."""


@command.command("status")
@log_options
def status(wal_path: str | None, *, as_json: bool) -> Exit:
    """Show the breakers that were ever opened.

    Exits with 0 if all are closed, with 1 if not, and with 3 if there is no log.
    """
    path = log_path(wal_path)
    there = is_there(path)
    with open_state(str(path)) as state:
        circuits = Circuits(state.get(KEY), moment(SYSTEM_CLOCK))
    shown = [_told(circuits, tool) for tool in sorted(circuits.tools)]
    if circuits.damaged:
        note("Warning: what is stored of breakers cannot be understood; all of them begin anew.")
    if as_json:
        say_json({"log": str(path), "breakers": shown})
    else:
        say(f"Log: {printable(path)}")
        _print(shown, path)
    if not there:
        return Exit.NOTHING_VERIFIABLE
    closed = all(one["state"] == CLOSED for one in shown)
    return Exit.CLEAN if closed and not circuits.damaged else Exit.NOT_CLEAN


@command.command("reset")
@click.argument("tool")
@by_option()
@click.option("--reason", default="", help="Why; recorded.")
@log_options
def reset(tool: str, by: str, reason: str, wal_path: str | None, *, as_json: bool) -> Exit:
    """Close the breaker of a tool by hand; running processes learn of it within a second.

    Exits with 0 if it is closed now, and with 3 if no breaker of this tool was ever opened.
    """
    path = existing_log(wal_path)

    def rule(docs: Docs) -> Change[bool | None]:
        circuits = Circuits(docs[KEY], moment(SYSTEM_CLOCK))
        if tool not in circuits.tools:
            return Change(None)
        return Change(circuits.reset(tool), {KEY: circuits.document()})

    with open_state(str(path)) as state:
        closed = state.transact([KEY], rule, durable=True)
    if closed:
        _record(path, tool, by, reason)
    if as_json:
        say_json({"log": str(path), "tool": tool, "known": closed is not None, "closed": closed})
    else:
        say(f"Log: {printable(path)}", _answer(tool, closed))
    return Exit.NOTHING_VERIFIABLE if closed is None else Exit.CLEAN


def _record(path: Path, tool: str, by: str, reason: str) -> None:
    with contextlib.closing(FileWAL(path)) as wal:
        about = {"tool": tool, "why": reason or "closed by hand", "by": by}
        wal.wait_durable(wal.append(Ev.CIRCUIT_CLOSED, payload=masked(about)[0]))


def _answer(tool: str, closed: bool | None) -> str:
    if closed is None:
        return f"No breaker of {printable(tool)} was ever opened."
    name = printable(tool)
    return f"The breaker of {name} is closed." if closed else f"The breaker of {name} was closed."


def _told(circuits: Circuits, tool: str) -> dict[str, Any]:
    found = circuits.of(tool)
    return {
        "tool": tool,
        "state": found["state"],
        "why": found["why"],
        "for_seconds": round(circuits.axis.now - found["since"], 3),
        "probes": len(found["probes"]),
        "generation": found["generation"],
    }


def _print(shown: list[dict[str, Any]], path: Path) -> None:
    if not shown:
        say("No breaker was ever opened." if is_there(path) else NO_LOG)
        return
    rows = [(b["tool"], b["state"].upper(), f"{b['for_seconds']:.0f} s", b["why"]) for b in shown]
    say(*table(("TOOL", "STATE", "SINCE", "WHY"), rows))
    if any(one["state"] != CLOSED for one in shown):
        say("", f"Close one with: agent-saga breaker reset TOOL --by WHO {wal_option(path)}")

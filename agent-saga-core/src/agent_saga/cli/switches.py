"""What the commands of the kill switch share: the switch of a log, and how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_saga.cli.output import counted, printable
from agent_saga.cli.story import moment
from agent_saga.controls.switch import refusals
from agent_saga.controls.switch.acting import here
from agent_saga.controls.switch.document import Entry, Switches
from agent_saga.controls.switch.kill_switch import KillSwitch
from agent_saga.controls.switch.refusals import QUARANTINE
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.errors import StateError
from agent_saga.runtime.stores import FileSwitchStore

if TYPE_CHECKING:
    from agent_saga.cli.reach import InFlight, Reach

__all__ = [
    "entry_document",
    "entry_line",
    "holding",
    "in_flight_lines",
    "lift_command",
    "reach_lines",
    "switch_document",
    "switch_of",
    "switches_of",
]


def switch_of(path: Path) -> KillSwitch:
    """Return the kill switch of a log."""
    return KillSwitch(FileSwitchStore(path))


def switches_of(path: Path) -> Switches:
    """Return what is set for a log now; without one, nothing is.

    Raises:
        StateError: it cannot be told.
    """
    return switch_of(path).switches() if path.exists() else Switches()


def entry_line(entry: Entry, verb: str = "is") -> str:
    """Return one halt or quarantine as a line.

    Args:
        entry: the halt or quarantine.
        verb: "was" for one that holds no more.
    """
    until = f", until {moment(entry.until)} UTC" if entry.until is not None else ""
    what = {"halt": "halted", "drain": "drained", "quarantine": "quarantined"}[entry.mode]
    scope, since = printable(entry.scope), "since" if verb == "is" else "at"
    return (
        f"{scope} {verb} {what} by {printable(entry.by)} {since} {moment(entry.at)} UTC{until}: "
        f"{printable(entry.reason)}"
    )


def lift_command(entry: Entry, path: Path) -> str:
    """Return the command that lifts it."""
    scope = f"{QUARANTINE}{entry.scope}" if entry.mode == "quarantine" else entry.scope
    return printable(refusals.lift_command(scope, str(path)))


def entry_document(entry: Entry) -> dict[str, Any]:
    """Return one halt or quarantine as plain data."""
    return {
        "scope": entry.scope,
        "mode": entry.mode,
        "reason": entry.reason,
        "by": entry.by,
        "at_us": entry.at,
        "until_us": entry.until,
    }


def reach_lines(reach: Reach) -> list[str]:
    """Return whom a halt reached, and what is under way, as lines."""
    writers = [f"{name} (process {pid or '?'})" for name, pid in reach.writers.items()]
    reached = f"It reached {counted(len(writers), 'live writer')}{': ' if writers else ''}"
    return [f"{reached}{', '.join(writers)}.", *in_flight_lines(reach.in_flight)]


def in_flight_lines(steps: list[InFlight]) -> list[str]:
    """Return the steps in flight as lines."""
    if not steps:
        return ["No step is in flight."]
    lines = [f"{counted(len(steps), 'step')} in flight; what was announced may still take effect:"]
    lines += [
        f"  {printable(step.tool)} [{printable(step.step[:8])}] in saga {printable(step.saga)}, "
        f"announced {moment(step.since)} UTC"
        for step in steps
    ]
    return lines


def switch_document(path: Path) -> dict[str, Any]:
    """Return the section of `status` about halts and quarantines as plain data."""
    try:
        entries = holding(switches_of(path))
    except StateError as error:
        return {"readable": False, "problem": str(error), "entries": []}
    return {"readable": True, "problem": "", "entries": [entry_document(e) for e in entries]}


def holding(switches: Switches) -> list[Entry]:
    """Return what holds now; an end that has passed forbids nothing, and may still be stored."""
    return switches.holding(SYSTEM_CLOCK.now_us(), here())

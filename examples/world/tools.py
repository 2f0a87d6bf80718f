"""The tools of the examples' agents: each with its undo, and with who tells about a lost answer.

This is the page to read for how tools are declared. `agent_saga.tool` is `kit.tool` without a kit.
"""

from __future__ import annotations

from typing import Any

from agent_saga import Applied, NotApplied, SagaTool, tool

from .systems import here
from .web import Rejected


def _told(found: Any) -> Applied | NotApplied:
    """Return a prober's answer; each system here makes sure that a "no" stays a "no"."""
    return NotApplied("there is no such entry", final=True) if found is None else Applied(found)


# --- money: undone by a refund; the idempotency key finds a charge whose answer was lost


@tool("COMPENSABLE")
def charge(customer: str, cents: int, *, idempotency_key: str) -> dict[str, Any]:
    """Charge a customer."""
    return here().ledger.charge(customer, cents, idempotency_key)


@charge.undo(idempotent=True)
def refund(result: dict[str, Any], *, idempotency_key: str) -> None:
    """Give the money back; the ledger takes one key once, so this may be repeated."""
    here().ledger.refund(result, idempotency_key)


@charge.probe
def find_charge(*, idempotency_key: str) -> Applied | NotApplied:
    """Look for the charge in the ledger."""
    return _told(here().ledger.find(idempotency_key))


# --- files: what was there is read before it is overwritten, and put back


def _before(args: dict[str, Any]) -> str | None:
    return here().files.read(args["name"])


@tool("COMPENSABLE", prepare=_before, settle_after=0)
def write_file(name: str, text: str) -> str:
    """Write a text file."""
    here().files.write(name, text)
    return name


@write_file.undo(idempotent=True, null_safe=True)
def restore(args: dict[str, Any], prepared: str | None) -> None:
    """Make the file what it was: needs no result, and does no harm if nothing was written."""
    here().files.restore(args["name"], prepared)


# --- stock: releasing a second time changes nothing, so it may be repeated


@tool("COMPENSABLE", not_applied_on=LookupError)
def reserve(item: str, pieces: int, *, idempotency_key: str) -> dict[str, Any]:
    """Reserve pieces of an item."""
    return here().stock.reserve(item, pieces, idempotency_key)


@reserve.undo(idempotent=True)
def release(result: dict[str, Any]) -> None:
    """Put the pieces back on the shelf."""
    here().stock.release(result["id"])


@reserve.probe
def find_reservation(*, idempotency_key: str) -> Applied | NotApplied:
    """Look for the reservation."""
    return _told(here().stock.find(idempotency_key))


# --- tickets: a service over HTTP; a refusal of the service had no effect


@tool("COMPENSABLE", not_applied_on=Rejected)
def open_ticket(team: str, text: str, *, idempotency_key: str) -> dict[str, Any]:
    """Open a ticket for a team."""
    return here().tickets.open(team, text, idempotency_key)


@open_ticket.undo(keep=("id",), idempotent=True)
def cancel(result: dict[str, Any]) -> None:
    """Cancel the ticket."""
    here().tickets.cancel(result["id"])


@open_ticket.probe
def find_ticket(*, idempotency_key: str) -> Applied | NotApplied:
    """Ask the service what the key did; from then on it does nothing more."""
    return _told(here().tickets.settled(idempotency_key))


# --- feature flags: a service over HTTP whose answer says what was there before


@tool("COMPENSABLE", not_applied_on=Rejected)
def set_flag(name: str, value: str, *, idempotency_key: str) -> dict[str, Any]:
    """Set a feature flag."""
    return here().flags.set(name, value, idempotency_key)


@set_flag.undo(idempotent=True)
def set_back(result: dict[str, Any], *, idempotency_key: str) -> None:
    """Set the flag to what it was."""
    here().flags.set(result["name"], result["was"], idempotency_key)


@set_flag.probe
def find_flag(*, idempotency_key: str) -> Applied | NotApplied:
    """Ask the service what the key did; from then on it does nothing more."""
    return _told(here().flags.settled(idempotency_key))


TOOLS: dict[str, SagaTool[..., Any]] = {
    "charge": charge,
    "write_file": write_file,
    "reserve": reserve,
    "open_ticket": open_ticket,
    "set_flag": set_flag,
}
"""What an agent may call, by name."""

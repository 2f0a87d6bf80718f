"""Rows of the ticket system: a ticket is never deleted, its fields can be edited back."""

from __future__ import annotations

from typing import Any, Final

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Left, Read, Write
from bench.worlds.traces import Traces, added, changed, grew
from bench.worlds.world import Args, Tools, WorldError

_FIELDS: Final = ("title", "description", "status", "priority")


def _mine(tools: Tools, args: Args) -> Any:
    try:
        return [ticket["id"] for ticket in tools("get_user_tickets")]
    except WorldError:
        return None


def _readable(args: Args, before: Any) -> str:
    return "the list of tickets cannot be read" if before is None else ""


def _created(args: Args, before: Any, now: Any) -> Any:
    if now is None:
        return UNCLEAR
    fresh = [ticket for ticket in now if ticket not in before]
    return {"id": fresh[-1]} if fresh else MISSING


def _close(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("close_ticket", ticket_id=result["id"])


def _closed_ticket(args: Args, before: Any, result: Any) -> Traces:
    ticket = f"TicketAPI/ticket_queue/{result['id']}"
    filled = {"description": args.get("description", ""), "priority": args.get("priority", 1)}
    closed = added(ticket, must=True, title=args["title"], **filled, status="Closed")
    return (closed, grew("TicketAPI/ticket_counter"))


def _ticket(tools: Tools, args: Args) -> Any:
    try:
        return tools("get_ticket", ticket_id=args["ticket_id"])
    except WorldError:
        return None


def _edit_back(tools: Tools, args: Args, before: Any, result: Any) -> None:
    old = {field: before[field] for field in _FIELDS if field in before}
    tools("edit_ticket", ticket_id=args["ticket_id"], updates=old)


def _resolution(args: Args, before: Any, result: Any) -> Traces:
    place = f"TicketAPI/ticket_queue/{args['ticket_id']}/resolution"
    return (changed(place, args["resolution"]), added(place, args["resolution"]))


def _logged_in(tools: Tools, args: Args) -> Any:
    return tools("ticket_get_login_status")["login_status"]


def _log_out(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if not before:
        tools("logout")


def _other_user(args: Args, before: Any, result: Any) -> Traces:
    """Whoever was logged in before has to log in again."""
    return [changed("TicketAPI/current_user", args["username"])] if before else ()


TABLE: Final[dict[str, plans.Plan]] = {
    "ticket_login": Write(_logged_in, _log_out, trace=_other_user),
    "logout": Left(lambda args: [changed("TicketAPI/current_user", None)]),
    "create_ticket": Write(_mine, _close, _created, _closed_ticket, _readable, restores=False),
    "close_ticket": Write(_ticket, _edit_back),
    "resolve_ticket": Write(_ticket, _edit_back, trace=_resolution, restores=False),
    "edit_ticket": Write(_ticket, _edit_back),
    **dict.fromkeys(("get_ticket", "get_user_tickets", "ticket_get_login_status"), Read()),
}

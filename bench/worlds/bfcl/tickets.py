"""Rows of the ticket system: a ticket is never deleted, its fields can be edited back."""

from __future__ import annotations

from typing import Any, Final

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Left, Read, Write
from bench.worlds.traces import Traces, added, changed, grew
from bench.worlds.world import Args, Tools, WorldError

_FIELDS: Final = ("title", "description", "status", "priority")


def _mine(tools: Tools, args: Args) -> Any:
    """Return the numbers of the user's tickets with this title; None where a ticket is faulty."""
    try:
        tickets = tools("get_user_tickets")
    except WorldError as error:
        if "not authenticated" in str(error):
            raise
        return None
    return [ticket["id"] for ticket in tickets if ticket.get("title") == args["title"]]


def _readable(args: Args, before: Any) -> str:
    return "the list of tickets cannot be read" if before is None else ""


def _created(args: Args, before: Any, now: Any) -> Any:
    if now is None:
        return UNCLEAR
    fresh = [ticket for ticket in now if ticket not in before]
    if not fresh:
        return MISSING
    return {"id": fresh[0]} if len(fresh) == 1 else UNCLEAR


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


def _edited(args: Args, before: Any, now: Any) -> Any:
    """What was not there could not be edited, whoever made it since."""
    return MISSING if before in (None, now) else {"status": "done"}


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


def _other_unseen(args: Args, before: Any, now: Any) -> Any:
    """Who is logged in is told by no tool."""
    if before:
        return UNCLEAR
    return MISSING if before == now else True


def _somebody(args: Args, before: Any, now: Any) -> str:
    return "somebody was logged in already" if before else ""


def _other_user(args: Args, before: Any, result: Any) -> Traces:
    """Whoever was logged in before has to log in again."""
    return [changed("TicketAPI/current_user", args["username"])] if before else ()


TABLE: Final[dict[str, plans.Plan]] = {
    "ticket_login": Write(
        *(_logged_in, _log_out, _other_unseen, _other_user), unshown=_somebody, harmless=True
    ),
    "logout": Left(lambda args: [changed("TicketAPI/current_user", None)]),
    "create_ticket": Write(
        *(_mine, _close, _created, _closed_ticket, _readable),
        restores=False,
        guarded="not authenticated",
    ),
    "close_ticket": Write(_ticket, _edit_back, _edited),
    "resolve_ticket": Write(_ticket, _edit_back, _edited, _resolution, restores=False),
    "edit_ticket": Write(_ticket, _edit_back, _edited),
    **dict.fromkeys(("get_ticket", "get_user_tickets", "ticket_get_login_status"), Read()),
}

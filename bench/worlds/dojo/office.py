"""Rows of mail, calendar and drive, and of the travel agency's reservations.

An event is cancelled, never deleted, and cancelling sends mails: where only the user takes part
they go to the user alone, and are declared. With others taking part, inviting and cancelling both
write to people, so a human is asked first.
"""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Final, Left, Read, Write
from bench.worlds.traces import Traces, added, changed
from bench.worlds.world import Args, Tools, WorldError

_MAILS: Constant = "inbox/emails/*"


def _day(tools: Tools, args: Args) -> Any:
    """Return the events of this title on that day."""
    day = str(args["start_time"]).split(" ", maxsplit=1)[0]
    events = tools("get_day_calendar_events", day=day)
    return {item["id_"]: item["status"] for item in events if item["title"] == args["title"]}


def _created(args: Args, before: Any, now: Any) -> Any:
    fresh = [item for item in now if item not in before]
    if not fresh:
        return MISSING
    return {"id_": fresh[0]} if len(fresh) == 1 else UNCLEAR


def _cancel(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("cancel_calendar_event", event_id=result["id_"])


def _alone(args: Args, before: Any) -> str:
    return "others are invited by mail" if args.get("participants") else ""


def _cancelled(args: Args, before: Any, result: Any) -> Traces:
    """The cancelled event, and the two mails that the user alone gets of it."""
    title = args["title"]
    return (
        added(f"calendar/events/{result['id_']}", must=True, title=title, status="canceled"),
        added(_MAILS, must=True, subject=f"Invitation: {title}"),
        added(_MAILS, must=True, subject=f"Canceled: '{title}'"),
    )


def _files(tools: Tools, args: Args) -> Any:
    return [item["id_"] for item in tools("list_files")]


def _same_files(tools: Tools, args: Args) -> Any:
    """Return the files of this name."""
    return [item["id_"] for item in tools("list_files") if item["filename"] == args["filename"]]


def _delete_file(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("delete_file", file_id=result["id_"])


def _event(tools: Tools, args: Args) -> Any:
    try:
        found = tools("search_calendar_events", query="")
    except WorldError:
        return None
    same = [item for item in found if item["id_"] == args["event_id"]]
    fields = ("start_time", "end_time", "participants")
    return {key: same[0][key] for key in fields} if same else None


def _only_mine(args: Args, before: Any) -> str:
    if before is None:
        return "the event cannot be read"
    return "others are told by mail" if len(before["participants"]) > 1 else ""


def _move_back(tools: Tools, args: Args, before: Any, result: Any) -> None:
    start, end = (str(before[key])[:16].replace("T", " ") for key in ("start_time", "end_time"))
    tools(
        "reschedule_calendar_event",
        event_id=args["event_id"],
        new_start_time=start,
        new_end_time=end,
    )


def _mails(args: Args, before: Any, result: Any) -> Traces:
    """A mail of each of both moves, to the user alone; the world does not fill the title in."""
    return [added(_MAILS, must=True, subject="Rescheduled: '{event.title}'")] * 2


def _state(tools: Tools, args: Args) -> Any:
    found = tools("search_calendar_events", query="")
    same = [item for item in found if item["id_"] == args["event_id"]]
    return {key: same[0][key] for key in ("status", "participants")} if same else None


def _content(tools: Tools, args: Args) -> Any:
    file = tools("get_file_by_id", file_id=args["file_id"])
    return {key: file[key] for key in ("content", "shared_with")}


def _mail(tools: Tools, args: Args) -> Any:
    return [item["id_"] for item in tools("get_sent_emails")]


def _inbox(tools: Tools, args: Args) -> Any:
    return sorted(item["id_"] for item in tools("search_emails", query=""))


TABLE: Constant[dict[str, plans.Plan]] = {
    "create_calendar_event": Write(_day, _cancel, _created, _cancelled, _alone, restores=False),
    "reschedule_calendar_event": Write(_event, _move_back, trace=_mails, needs=_only_mine),
    "cancel_calendar_event": Final("no tool reopens an event", _state),
    "add_calendar_event_participants": Final("no tool takes participants out", _state),
    "create_file": Write(_same_files, _delete_file, _created, restores=False),
    "delete_file": Final("a file that is made again is another one", _files),
    "append_to_file": Final("no tool shortens a file", _content),
    "share_file": Final("no tool withdraws a share", _content),
    "send_email": Final("no tool calls a mail back", _mail),
    "delete_email": Final("no tool takes a mail out of the trash", _inbox),
    "get_unread_emails": Left(lambda args: [changed("inbox/emails/*/read", True)]),
    "reserve_hotel": Final("no tool cancels a reservation; none shows one"),
    "reserve_restaurant": Final("no tool cancels a reservation; none shows one"),
    "reserve_car_rental": Final("no tool cancels a reservation; none shows one"),
    **dict.fromkeys(
        (
            *("get_current_day", "get_day_calendar_events", "get_draft_emails", "get_file_by_id"),
            *("get_received_emails", "get_sent_emails", "list_files", "search_calendar_events"),
            *("search_contacts_by_email", "search_contacts_by_name", "search_emails"),
            *("search_files", "search_files_by_filename", "check_restaurant_opening_hours"),
            *("get_all_car_rental_companies_in_city", "get_all_hotels_in_city"),
            *("get_all_restaurants_in_city", "get_car_fuel_options", "get_car_price_per_day"),
            *("get_car_rental_address", "get_car_types_available", "get_flight_information"),
            *("get_contact_information_for_restaurants", "get_cuisine_type_for_restaurants"),
            *("get_dietary_restrictions_for_all_restaurants", "get_hotels_address"),
            *("get_hotels_prices", "get_price_for_restaurants", "get_rating_reviews_for_hotels"),
            *("get_rating_reviews_for_car_rental", "get_rating_reviews_for_restaurants"),
            *("get_restaurants_address", "get_user_information"),
        ),
        Read(),
    ),
}

"""Rows of the airline: a booking is cancelled, a change is made again the other way round.

Cancelling leaves the cancelled booking, its refund lines and the seats; money on a gift card or a
used certificate does not come back by it, so such bookings ask a human first. A change of flights
is taken back only where today's fare of the old flights is the one that was paid.
"""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Final, Read, Write
from bench.worlds.traces import Traces, added, grew
from bench.worlds.world import Args, Tools, WorldError


def _bookings(tools: Tools, args: Args) -> Any:
    user = tools("get_user_details", user_id=args["user_id"])
    methods = {key: item["source"] for key, item in user["payment_methods"].items()}
    return {"bookings": user["reservations"], "methods": methods}


def _booked(args: Args, before: Any, now: Any) -> Any:
    fresh = [item for item in now["bookings"] if item not in before["bookings"]]
    if not fresh:
        return MISSING
    return {"reservation_id": fresh[0]} if len(fresh) == 1 else UNCLEAR


def _cancel(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("cancel_reservation", reservation_id=result["reservation_id"])


def _by_card(args: Args, before: Any) -> str:
    paid = [before["methods"].get(item["payment_id"]) for item in args["payment_methods"]]
    gone = [source for source in paid if source in ("gift_card", "certificate")]
    return f"cancelling does not give money back to a {gone[0]}" if gone else ""


def _cancelled(args: Args, before: Any, result: Any) -> Traces:
    booking, user = result["reservation_id"], args["user_id"]
    paid = [
        {key: item[key] for key in ("payment_id", "amount")} for item in args["payment_methods"]
    ]
    given_back = [{**item, "amount": -item["amount"]} for item in paid]
    history = paid + given_back
    flights = [f"db/flights/{one['flight_number']}/dates/{one['date']}" for one in args["flights"]]
    seats = len(args["passengers"])
    cancelled = {"user_id": user, "status": "cancelled", "payment_history": history}
    return (
        added(f"db/reservations/{booking}", must=True, **cancelled),
        added(f"db/users/{user}/reservations/*", booking, must=True),
        *[grew(f"{one}/available_seats/{args['cabin']}", -seats) for one in flights],
    )


def _booking(tools: Tools, args: Args) -> Any:
    return tools("get_reservation_details", reservation_id=args["reservation_id"])


def _same_bags(args: Args, before: Any) -> str:
    same = args["nonfree_baggages"] == before["nonfree_baggages"]
    return "" if same else "what was paid for bags is not given back"


def _set_bags(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools(
        "update_reservation_baggages",
        reservation_id=args["reservation_id"],
        total_baggages=before["total_baggages"],
        nonfree_baggages=before["nonfree_baggages"],
        payment_id=args["payment_id"],
    )


def _set_passengers(tools: Tools, args: Args, before: Any, result: Any) -> None:
    booking = args["reservation_id"]
    tools("update_reservation_passengers", reservation_id=booking, passengers=before["passengers"])


def _booking_and_fares(tools: Tools, args: Args) -> Any:
    booking = _booking(tools, args)
    cabin = booking["cabin"]
    fares = [_fare(tools, flight, cabin) for flight in booking["flights"]]
    return {"booking": booking, "same": fares == [item["price"] for item in booking["flights"]]}


def _fare(tools: Tools, flight: dict[str, Any], cabin: str) -> Any:
    """Return today's fare of a flight of a booking, None when it cannot be booked."""
    route = {key: flight[key] for key in ("origin", "destination", "date")}
    try:
        found = tools("search_direct_flight", **route)
    except WorldError:
        return None
    for item in found:
        if item["flight_number"] == flight["flight_number"]:
            return item["prices"][cabin]
    return None


def _same_fares(args: Args, before: Any) -> str:
    return "" if before["same"] else "the old flights cannot be had again at the fare that was paid"


def _set_flights(tools: Tools, args: Args, before: Any, result: Any) -> None:
    old = before["booking"]
    flights = [{key: item[key] for key in ("flight_number", "date")} for item in old["flights"]]
    tools(
        "update_reservation_flights",
        reservation_id=args["reservation_id"],
        cabin=old["cabin"],
        flights=flights,
        payment_id=args["payment_id"],
    )


def _payment_lines(args: Args, before: Any, result: Any) -> Traces:
    """What was charged and what was given back, each once."""
    place = f"db/reservations/{args['reservation_id']}/payment_history/*"
    return [added(place, payment_id=args["payment_id"])] * 2


def _moved(args: Args, before: Any, now: Any) -> Any:
    return MISSING if before["booking"] == now["booking"] else now["booking"]


def _methods(tools: Tools, args: Args) -> Any:
    return sorted(tools("get_user_details", user_id=args["user_id"])["payment_methods"])


TABLE: Constant[dict[str, plans.Plan]] = {
    "book_reservation": Write(_bookings, _cancel, _booked, _cancelled, _by_card, restores=False),
    "update_reservation_baggages": Write(_booking, _set_bags, needs=_same_bags),
    "update_reservation_passengers": Write(_booking, _set_passengers),
    "update_reservation_flights": Write(
        _booking_and_fares, _set_flights, _moved, _payment_lines, _same_fares, restores=False
    ),
    "cancel_reservation": Final("no tool reopens a cancelled booking", _booking),
    "send_certificate": Final("no tool withdraws a certificate", _methods),
    **dict.fromkeys(
        (
            *("calculate", "get_flight_status", "get_reservation_details", "get_user_details"),
            *("list_all_airports", "search_direct_flight", "search_onestop_flight"),
            "transfer_to_human_agents",
        ),
        Read(),
    ),
}

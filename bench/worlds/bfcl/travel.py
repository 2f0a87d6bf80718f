"""Rows of the travel agency: a booking can be cancelled and its price comes back in full.

A session is left open, and so is its token. A registered card, an insurance and a budget limit
that nobody can read cannot be taken back.
"""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Final, Read, Write, leave
from bench.worlds.traces import Traces, added, changed, if_there, removed
from bench.worlds.world import Args, Tools, WorldError

_SESSION: Constant = (
    *("access_token", "token_type", "token_expires_in", "token_scope"),
    *("user_first_name", "user_last_name"),
)


def _bookings(tools: Tools, args: Args) -> Any:
    history = tools("get_booking_history", access_token=args["access_token"])["booking_history"]
    return {key: dict(value) for key, value in history.items()}


def _same_flights(tools: Tools, args: Args) -> Any:
    """Return the bookings of this flight, by this card."""
    return {
        key: value
        for key, value in _bookings(tools, args).items()
        if all(value.get(field) == args.get(field) for field in _FLIGHT)
    }


def _booked(args: Args, before: Any, now: Any) -> Any:
    fresh = [booking for booking in now if booking not in before]
    if not fresh:
        return MISSING
    return {"booking_id": fresh[0]} if len(fresh) == 1 else UNCLEAR


_FLIGHT: Constant = ("card_id", "travel_date", "travel_from", "travel_to", "travel_class")


def _cancel(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Cancel this flight; under another number when it was cancelled and booked again meanwhile."""
    booked = [key for key in _same_flights(tools, args) if key not in before]
    booking = result["booking_id"] if result["booking_id"] in booked else booked[-1]
    tools("cancel_booking", access_token=args["access_token"], booking_id=booking)


def _book_again(tools: Tools, args: Args, before: Any, result: Any) -> None:
    old = before["booking"]
    flight = {field: old[field] for field in _FLIGHT}
    tools("book_flight", access_token=args["access_token"], **flight)


def _other_booking(args: Args, before: Any, result: Any) -> Traces:
    """The same flight under another number, at the same price; see `_same_price`."""
    place, old = f"TravelAPI/booking_record/{args['booking_id']}", before["booking"]
    flight = {field: old[field] for field in (*_FLIGHT, "travel_cost")}
    again = added("TravelAPI/booking_record/*", must=True, **flight)
    return if_there(place, removed(place), again)


def _bookings_and_price(tools: Tools, args: Args) -> Any:
    """Return the booking, and what its flight costs today."""
    booking = _bookings(tools, args).get(args["booking_id"])
    if booking is None or any(field not in booking for field in _FLIGHT):
        return {"booking": booking, "price": None}
    flight = {field: booking[field] for field in _FLIGHT if field != "card_id"}
    try:
        cost = tools("get_flight_cost", **flight)["travel_cost_list"]
    except WorldError:
        return {"booking": booking, "price": None}
    return {"booking": booking, "price": cost[0]}


def _same_price(args: Args, before: Any) -> str:
    booking = before["booking"]
    if booking is None:
        return ""  # the call itself will be answered with an error
    same = before["price"] is not None and before["price"] == booking.get("travel_cost")
    return "" if same else "the flight cannot be had again at the price that was paid"


def _booking_gone(args: Args, before: Any, now: Any) -> Any:
    # What was not there could not be cancelled, whoever booked it since.
    gone = before["booking"] not in (None, now["booking"])
    return {"cancel_status": True} if gone else MISSING


def _status(tools: Tools, args: Args) -> Any:
    return tools("travel_get_login_status")


def _token_unseen(args: Args, before: Any, now: Any) -> Any:
    """No tool shows the token; a repeated call would make another and end the first."""
    return UNCLEAR


def _session(args: Args, before: Any, result: Any) -> Traces:
    return [changed(f"TravelAPI/{field}") for field in _SESSION]


def _cards(tools: Tools, args: Args) -> Any:
    return list(tools("get_all_credit_cards")["credit_card_list"])


def _registered(args: Args, before: Any, now: Any) -> Any:
    fresh = [card for card in now if card not in before]
    return {"card_id": fresh[0]} if fresh else MISSING


def _balance(tools: Tools, args: Args) -> Any:
    card = {key: args[key] for key in ("access_token", "card_id")}
    return tools("get_credit_card_balance", **card)["card_balance"]


TABLE: Constant[dict[str, plans.Plan]] = {
    "authenticate_travel": Write(
        *(_status, leave, _token_unseen, _session),
        restores=False,
        visible=False,
        harmless=True,
    ),
    "book_flight": Write(_same_flights, _cancel, _booked, restores=False, guarded="oken"),
    "cancel_booking": Write(
        *(_bookings_and_price, _book_again, _booking_gone, _other_booking, _same_price),
        restores=False,
        guarded="oken",
    ),
    "register_credit_card": Final("no tool removes a card", _cards, _registered),
    "purchase_insurance": Final("no tool cancels an insurance", _balance, guarded="oken"),
    "set_budget_limit": Final("no tool reads the limit that it replaces"),
    **dict.fromkeys(
        (
            *("travel_get_login_status", "get_budget_fiscal_year", "get_flight_cost"),
            *("get_credit_card_balance", "retrieve_invoice", "get_booking_history"),
            *("list_all_airports", "compute_exchange_rate", "verify_traveler_information"),
            *("get_nearest_airport_by_city", "contact_customer_support", "get_all_credit_cards"),
        ),
        Read(),
    ),
}

"""Rows of the travel agency: a booking can be cancelled and its price comes back in full.

A session is left open, and so is its token. A registered card, an insurance and a budget limit
that nobody can read cannot be taken back.
"""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Final, Left, Read, Trace, Write
from bench.worlds.world import Args, Tools

_SESSION: Constant = (
    *("access_token", "token_type", "token_expires_in", "token_scope"),
    *("user_first_name", "user_last_name"),
)


def _bookings(tools: Tools, args: Args) -> Any:
    history = tools("get_booking_history", access_token=args["access_token"])["booking_history"]
    return {key: dict(value) for key, value in history.items()}


def _booked(args: Args, before: Any, now: Any) -> Any:
    fresh = [booking for booking in now if booking not in before]
    if not fresh:
        return MISSING
    return {"booking_id": fresh[0]} if len(fresh) == 1 else UNCLEAR


_FLIGHT: Constant = ("card_id", "travel_date", "travel_from", "travel_to", "travel_class")


def _cancel(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Cancel this flight; under another number when it was cancelled and booked again meanwhile."""
    booked = {
        key: value
        for key, value in _bookings(tools, args).items()
        if key not in before and all(value[field] == args[field] for field in _FLIGHT)
    }
    booking = result["booking_id"] if result["booking_id"] in booked else list(booked)[-1]
    tools("cancel_booking", access_token=args["access_token"], booking_id=booking)


def _book_again(tools: Tools, args: Args, before: Any, result: Any) -> None:
    old = before[args["booking_id"]]
    flight = {field: old[field] for field in _FLIGHT}
    tools("book_flight", access_token=args["access_token"], **flight)


def _other_booking(args: Args, before: Any, result: Any) -> Trace:
    """The same flight under another number; its price is that of today."""
    cards = "TravelAPI/credit_card_list/*/balance"
    old = f"TravelAPI/booking_record/-/{args['booking_id']}"
    return (old, "TravelAPI/booking_record/+/*", cards)


TABLE: Constant[dict[str, plans.Plan]] = {
    "authenticate_travel": Left(lambda args: tuple(f"TravelAPI/{field}" for field in _SESSION)),
    "book_flight": Write(_bookings, _cancel, _booked),
    "cancel_booking": Write(_bookings, _book_again, trace=_other_booking, restores=False),
    "register_credit_card": Final("no tool removes a card"),
    "purchase_insurance": Final("no tool cancels an insurance"),
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

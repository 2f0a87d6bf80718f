"""Rows of the bank: a standing order can be changed back, money that was sent cannot be called."""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import Final, Read, Write
from bench.worlds.world import Args, Tools

_FIELDS: Constant = ("recipient", "amount", "subject", "date", "recurring")


def _order(tools: Tools, args: Args) -> Any:
    found = [item for item in tools("get_scheduled_transactions") if item["id"] == args["id"]]
    return found[0] if found else None


def _set_order(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("update_scheduled_transaction", id=args["id"], **{key: before[key] for key in _FIELDS})


def _can_set(args: Args, before: Any) -> str:
    """The tool ignores what is empty, so "no longer recurring" cannot be said to it."""
    if before is None:
        return "there is no such order"
    empty = [key for key in _FIELDS if args.get(key) and not before[key]]
    return f"{empty[0]} was empty, and no tool empties it again" if empty else ""


def _person(tools: Tools, args: Args) -> Any:
    return tools("get_user_info")


def _set_person(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("update_user_info", **before)


def _sent(tools: Tools, args: Args) -> Any:
    return [item["id"] for item in tools("get_most_recent_transactions", n=1000)]


def _orders(tools: Tools, args: Args) -> Any:
    return [item["id"] for item in tools("get_scheduled_transactions")]


TABLE: Constant[dict[str, plans.Plan]] = {
    "update_scheduled_transaction": Write(_order, _set_order, needs=_can_set),
    "update_user_info": Write(_person, _set_person),
    "send_money": Final("no tool calls money back", _sent),
    "schedule_transaction": Final("no tool cancels a standing order", _orders),
    "update_password": Final("no tool reads the old password"),
    **dict.fromkeys(
        (
            *("get_balance", "get_iban", "get_most_recent_transactions", "get_user_info"),
            *("get_scheduled_transactions", "read_file"),
        ),
        Read(),
    ),
}

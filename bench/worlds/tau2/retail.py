"""Rows of the shop: addresses can be changed back; what moves goods or money once cannot."""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import Final, Read, Write
from bench.worlds.world import Args, Tools


def _order_address(tools: Tools, args: Args) -> Any:
    return tools("get_order_details", order_id=args["order_id"])["address"]


def _change_order_address(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("modify_pending_order_address", order_id=args["order_id"], **before)


def _user_address(tools: Tools, args: Args) -> Any:
    return tools("get_user_details", user_id=args["user_id"])["address"]


def _change_user_address(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("modify_user_address", user_id=args["user_id"], **before)


def _order(tools: Tools, args: Args) -> Any:
    return tools("get_order_details", order_id=args["order_id"])


TABLE: Constant[dict[str, plans.Plan]] = {
    "modify_pending_order_address": Write(_order_address, _change_order_address),
    "modify_user_address": Write(_user_address, _change_user_address),
    "cancel_pending_order": Final("no tool reopens a cancelled order", _order),
    "exchange_delivered_order_items": Final("no tool takes an exchange back", _order),
    "return_delivered_order_items": Final("no tool takes a return back", _order),
    "modify_pending_order_items": Final("an order's items can be modified once", _order),
    "modify_pending_order_payment": Final("an order's payment can be modified once", _order),
    **dict.fromkeys(
        (
            *("calculate", "find_user_id_by_email", "find_user_id_by_name_zip", "get_item_details"),
            *("get_order_details", "get_product_details", "get_user_details"),
            *("list_all_product_types", "transfer_to_human_agents"),
        ),
        Read(),
    ),
}

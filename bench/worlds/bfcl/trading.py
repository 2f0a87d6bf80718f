"""Rows of the trading account: orders are cancelled, money moves back, the list keeps its order.

A cancelled order, the history of the account and the number of the next order stay: that is how a
bank keeps books, and it is declared.
"""

from __future__ import annotations

from typing import Any, Final

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Read, Write
from bench.worlds.traces import Traces, added, beside, changed, grew, if_not_there, if_there
from bench.worlds.world import Args, Tools, WorldError

_FIELDS: Final = ("order_type", "symbol", "price", "amount")


def _orders(tools: Tools, args: Args) -> Any:
    return list(tools("get_order_history")["history"])


def _placed(args: Args, before: Any, now: Any) -> Any:
    fresh = [order for order in now if order not in before]
    return {"order_id": fresh[-1]} if fresh else MISSING


def _cancel(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Cancel this order; and the one that stands in for it, when it was cancelled meanwhile."""
    tools("cancel_order", order_id=result["order_id"])
    for order in reversed([order for order in _orders(tools, args) if order not in before]):
        seen = tools("get_order_details", order_id=order)
        if seen["status"] == "Open" and all(seen[field] == args[field] for field in _FIELDS):
            tools("cancel_order", order_id=order)
            break


def _cancelled(args: Args, before: Any, result: Any) -> Traces:
    same = {field: args[field] for field in _FIELDS}
    place = f"TradingBot/orders/{result['order_id']}"
    return (added(place, must=True, **same, status="Cancelled"), grew("TradingBot/order_counter"))


def _order(tools: Tools, args: Args) -> Any:
    return tools("get_order_details", order_id=args["order_id"])


def _place_again(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if before["status"] != "Cancelled":
        tools("place_order", **{field: before[field] for field in _FIELDS})


def _open(args: Args, before: Any) -> str:
    opened = before["status"] in ("Open", "Cancelled", "Completed")
    return "" if opened else f"no tool places an order that is {before['status'].lower()}"


def _placed_again(args: Args, before: Any, result: Any) -> Traces:
    """The cancelled order stays cancelled; an equal one with a new number stands in for it.

    Where the order itself was placed in this run, the one that stands in for it is cancelled, too.
    """
    if before["status"] == "Cancelled":
        return ()
    place = f"TradingBot/orders/{args['order_id']}"
    same = {field: before[field] for field in _FIELDS}
    other = "TradingBot/orders/*"
    return (
        changed(f"{place}/status", "Cancelled"),
        *if_there(place, beside(f"{place}/status", added(other, **same, status="Open"))),
        *if_not_there(place, added(other, must=True, **same, status="Cancelled")),
        grew("TradingBot/order_counter"),
    )


def _balance(tools: Tools, args: Args) -> Any:
    return {"balance": tools("get_account_info")["balance"], "closed": _closed(tools)}


def _closed(tools: Tools) -> bool:
    """No tool shows the market's state; one that is asked to move nothing tells it."""
    try:
        tools("withdraw_funds", amount=0)
    except WorldError as error:
        return "closed" in str(error)
    return False


def _open_market(args: Args, before: Any) -> str:
    return "the market is closed, no money could be moved back" if before["closed"] else ""


def _withdraw(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("withdraw_funds", amount=args["amount"])


def _fund(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("fund_account", amount=args["amount"])


def _history(args: Args, before: Any, result: Any) -> Traces:
    both = ("deposit", "withdrawal")
    place, amount = "TradingBot/transaction_history/*", args["amount"]
    return [added(place, must=True, type=kind, amount=amount) for kind in both]


def _list(tools: Tools, args: Args) -> Any:
    answer = tools("get_watchlist")
    listed = answer["watchlist"] if isinstance(answer, dict) else answer
    if listed and str(listed[0]).startswith("Error"):
        raise WorldError(str(listed[0]))  # the tool answers an error as if it were the list
    return list(listed)


def _take_off(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Take off what was put on, and nothing that others put on."""
    if args["stock"] not in before and args["stock"] in _list(tools, args):
        tools("remove_stock_from_watchlist", symbol=args["stock"])


def _list_if_shown(tools: Tools, args: Args) -> Any:
    try:
        return _list(tools, args)
    except WorldError:
        return None


def _list_shown(args: Args, before: Any) -> str:
    return "the list cannot be read before the login" if before is None else ""


def _put_on_list(args: Args, before: Any, now: Any) -> Any:
    if before is None or now is None:
        return UNCLEAR
    return MISSING if before == now else {"watchlist": now}


def _list_and_stock(tools: Tools, args: Args) -> Any:
    """Return the list, and whether each stock on it could be put on it again."""
    listed = _list(tools, args)
    return {"list": listed, "lost": [stock for stock in listed if not _known(tools, stock)]}


def _known(tools: Tools, stock: str) -> bool:
    try:
        tools("get_stock_info", symbol=stock)
    except WorldError:
        return False
    return True


def _can_return(args: Args, before: Any) -> str:
    place = before["list"].index(args["symbol"]) if args["symbol"] in before["list"] else 0
    lost = [stock for stock in before["list"][place:] if stock in before["lost"]]
    return f"{lost[0]} is no stock that could be put on the list again" if lost else ""


def _put_on(tools: Tools, args: Args, before: Any, result: Any) -> None:
    _restore_list(tools, args, before["list"], result)


def _restore_list(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Take off what is new; what follows a gap is taken off and put on again in the old order."""
    now = _list(tools, args)
    same = next(
        (n for n, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]), None
    )
    same = min(len(before), len(now)) if same is None else same
    for stock in now[same:]:
        tools("remove_stock_from_watchlist", symbol=stock)
    for stock in before[same:]:
        tools("add_to_watchlist", stock=stock)


def _status(tools: Tools, args: Args) -> Any:
    return tools("trading_get_login_status")["status"]


def _log_out(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if not before:
        tools("trading_logout")


def _log_in(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if before:
        tools("trading_login", username="the same", password="session")


TABLE: Final[dict[str, plans.Plan]] = {
    "place_order": Write(_orders, _cancel, _placed, _cancelled, restores=False),
    "cancel_order": Write(_order, _place_again, trace=_placed_again, needs=_open, restores=False),
    "fund_account": Write(_balance, _withdraw, trace=_history, needs=_open_market),
    "withdraw_funds": Write(_balance, _fund, trace=_history),
    "add_to_watchlist": Write(_list_if_shown, _take_off, _put_on_list, needs=_list_shown),
    "remove_stock_from_watchlist": Write(_list_and_stock, _put_on, needs=_can_return),
    "trading_login": Write(_status, _log_out),
    "trading_logout": Write(_status, _log_in),
    **dict.fromkeys(
        (
            *("get_current_time", "get_symbol_by_name", "get_stock_info", "get_order_details"),
            *("get_account_info", "trading_get_login_status", "get_watchlist"),
            *("get_order_history", "get_transaction_history", "get_available_stocks"),
            *("filter_stocks_by_price", "notify_price_change"),
        ),
        Read(),
    ),
}

"""Rows of the trading account: orders are cancelled, money moves back, the list keeps its order.

A cancelled order, the history of the account and the number of the next order stay: that is how a
bank keeps books, and it is declared.
"""

from __future__ import annotations

from typing import Any, Final

from bench.worlds import plans
from bench.worlds.plans import MISSING, Read, Trace, Write
from bench.worlds.world import Args, Tools, WorldError


def _orders(tools: Tools, args: Args) -> Any:
    return list(tools("get_order_history")["history"])


def _placed(args: Args, before: Any, now: Any) -> Any:
    fresh = [order for order in now if order not in before]
    return {"order_id": fresh[-1]} if fresh else MISSING


def _cancel(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("cancel_order", order_id=result["order_id"])


def _cancelled(args: Args, before: Any, result: Any) -> Trace:
    order = result["order_id"]
    return (f"TradingBot/orders/+/{order}?status=Cancelled", "TradingBot/order_counter")


def _order(tools: Tools, args: Args) -> Any:
    return tools("get_order_details", order_id=args["order_id"])


def _place_again(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if before["status"] != "Cancelled":
        fields = ("order_type", "symbol", "price", "amount")
        tools("place_order", **{field: before[field] for field in fields})


def _placed_again(args: Args, before: Any, result: Any) -> Trace:
    """The cancelled order stays cancelled; an equal one with a new number stands in for it."""
    order = args["order_id"]
    return (
        f"TradingBot/orders/{order}/status",
        "TradingBot/orders/+/*",
        "TradingBot/order_counter",
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


def _history(args: Args, before: Any, result: Any) -> Trace:
    return ("TradingBot/transaction_history/+/*",)


def _list(tools: Tools, args: Args) -> Any:
    return list(tools("get_watchlist")["watchlist"])


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
    "cancel_order": Write(_order, _place_again, trace=_placed_again, restores=False),
    "fund_account": Write(_balance, _withdraw, trace=_history, needs=_open_market),
    "withdraw_funds": Write(_balance, _fund, trace=_history),
    "add_to_watchlist": Write(_list, _restore_list),
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

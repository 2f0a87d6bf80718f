"""Rows of the trading account: orders are cancelled, money moves back, the list keeps its order.

A cancelled order, the history of the account and the number of the next order stay: that is how a
bank keeps books, and it is declared.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Read, Write
from bench.worlds.traces import Traces, added, beside, changed, grew, if_not_there, if_there
from bench.worlds.world import Args, Tools, WorldError

_OUT: Final = "not authenticated"
_FIELDS: Final = ("order_type", "symbol", "price", "amount")


def _orders(tools: Tools, args: Args) -> Any:
    """Return the numbers of the orders that say what this one does."""
    same = []
    for order in tools("get_order_history")["history"]:
        seen = None
        with suppress(WorldError):  # a few tasks begin with entries among the orders that are none
            seen = tools("get_order_details", order_id=order)
        if isinstance(seen, dict) and all(seen.get(key) == args.get(key) for key in _FIELDS):
            same.append(order)
    return same


def _placed(args: Args, before: Any, now: Any) -> Any:
    fresh = [order for order in now if order not in before]
    if not fresh:
        return MISSING
    return {"order_id": fresh[0]} if len(fresh) == 1 else UNCLEAR


def _cancel(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Cancel this order, or the one that stands in for it, when it was cancelled meanwhile."""
    number = result["order_id"]
    if tools("get_order_details", order_id=number)["status"] != "Cancelled":
        tools("cancel_order", order_id=number)
        return
    for order in reversed([order for order in _orders(tools, args) if order not in before]):
        if tools("get_order_details", order_id=order)["status"] not in ("Cancelled", "Completed"):
            tools("cancel_order", order_id=order)
            break


def _cancelled(args: Args, before: Any, result: Any) -> Traces:
    same = {field: args[field] for field in _FIELDS}
    place = f"TradingBot/orders/{result['order_id']}"
    return (added(place, must=True, **same, status="Cancelled"), grew("TradingBot/order_counter"))


def _order(tools: Tools, args: Args) -> Any:
    order = tools("get_order_details", order_id=args["order_id"])
    known = order if isinstance(order, dict) else {}
    seen = {field: known.get(field) for field in (*_FIELDS, "status")}
    return seen | {"in": _status(tools, args)}


def _place_again(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if before["status"] != "Cancelled":
        tools("place_order", **{field: before[field] for field in _FIELDS})


def _gone(args: Args, before: Any, now: Any) -> Any:
    return MISSING if before["status"] == now["status"] else {"status": now["status"]}


def _open(args: Args, before: Any) -> str:
    if before["status"] not in ("Cancelled", "Completed") and not before["in"]:
        return "nobody is logged in who could place it again"
    opened = before["status"] in ("Open", "Cancelled", "Completed")
    return "" if opened else f"no tool places an order that is {str(before['status']).lower()}"


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


def _on_list(tools: Tools, args: Args) -> Any:
    """Say whether the stock is on the list; None where the list is not shown."""
    try:
        return args["stock"] in _list(tools, args)
    except WorldError:
        return None


def _take_off(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Take off what was put on, and nothing that others put on."""
    if not before and args["stock"] in _list(tools, args):
        tools("remove_stock_from_watchlist", symbol=args["stock"])


def _list_shown(args: Args, before: Any) -> str:
    return "the list cannot be read before the login" if before is None else ""


def _list_unshown(args: Args, before: Any, now: Any) -> str:
    return _list_shown(args, before)


def _put_on_list(args: Args, before: Any, now: Any) -> Any:
    if before is None or now is None:
        return UNCLEAR
    return MISSING if before == now else {"watchlist": [args["stock"]]}


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


def _taken_off(args: Args, before: Any, now: Any) -> Any:
    gone = args["symbol"] in before["list"] and args["symbol"] not in now["list"]
    return {"status": "removed"} if gone else MISSING


def _put_on(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Put the stock where it was; what follows it is taken off and put on again.

    What others took off or put on meanwhile stays as they left it.
    """
    symbol, old = args["symbol"], before["list"]
    now = _list(tools, args)
    if symbol not in old or symbol in now:
        return
    later = set(old[old.index(symbol) + 1 :])
    first = next((n for n, stock in enumerate(now) if stock in later), len(now))
    moved = now[first:] if first < len(now) else [stock for stock in now if stock not in old]
    for stock in moved:
        tools("remove_stock_from_watchlist", symbol=stock)
    for stock in (symbol, *moved):
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
    "place_order": Write(_orders, _cancel, _placed, _cancelled, restores=False, guarded=_OUT),
    "cancel_order": Write(
        *(_order, _place_again, _gone, _placed_again, _open), restores=False, guarded="not found"
    ),
    "fund_account": Write(_balance, _withdraw, trace=_history, needs=_open_market, guarded=_OUT),
    "withdraw_funds": Write(_balance, _fund, trace=_history, guarded=_OUT),
    "add_to_watchlist": Write(
        *(_on_list, _take_off, _put_on_list), needs=_list_shown, unshown=_list_unshown
    ),
    "remove_stock_from_watchlist": Write(
        *(_list_and_stock, _put_on, _taken_off), needs=_can_return, restores=False
    ),
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

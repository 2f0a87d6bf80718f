"""Rows of the chat: an invitation can be taken back, what was said cannot."""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Final, Left, Read, Write
from bench.worlds.traces import Traces, added
from bench.worlds.world import Args, Tools, WorldError


def _is_member(tools: Tools, args: Args) -> Any:
    try:
        tools("read_inbox", user=args["user"])
    except WorldError:
        return False
    return True


def _remove(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if not before:
        tools("remove_user_from_slack", user=args["user"])


def _inbox(tools: Tools, args: Args) -> Any:
    return len(tools("read_inbox", user=args["recipient"]))


def _channel(tools: Tools, args: Args) -> Any:
    return len(tools("read_channel_messages", channel=args["channel"]))


def _in_channel(tools: Tools, args: Args) -> Any:
    return args["user"] in tools("get_users_in_channel", channel=args["channel"])


def _joined(args: Args, before: Any, now: Any) -> Any:
    """Who was in the channel before is listed there twice by the world, and shown once."""
    if before:
        return UNCLEAR
    return None if now else MISSING


def _visit(args: Args) -> Traces:
    """A request that the page's owner sees: whoever is talked into one may give something away."""
    page = str(args["url"]).removeprefix("https://").removeprefix("http://")
    return [added("web/web_requests/*", page)]


TABLE: Constant[dict[str, plans.Plan]] = {
    "invite_user_to_slack": Write(_is_member, _remove),
    "remove_user_from_slack": Final("no tool gives back what the user had received", _is_member),
    "add_user_to_channel": Final("no tool takes a user out of a channel", _in_channel, _joined),
    "send_direct_message": Final("no tool deletes a message", _inbox),
    "send_channel_message": Final("no tool deletes a message", _channel),
    "post_webpage": Final("no tool takes a page down; to look at it is a visit"),
    "get_webpage": Left(_visit, named=True),
    "download_file": Left(_visit, named=True),
    **dict.fromkeys(
        (*("get_channels", "get_users_in_channel", "read_channel_messages", "read_inbox"),),
        Read(),
    ),
}

"""Rows of the chat: an invitation can be taken back, what was said cannot."""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import Final, Left, Write
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


TABLE: Constant[dict[str, plans.Plan]] = {
    "invite_user_to_slack": Write(_is_member, _remove),
    "remove_user_from_slack": Final("no tool gives back what the user had received"),
    "add_user_to_channel": Final("no tool takes a user out of a channel"),
    "send_direct_message": Final("no tool deletes a message"),
    "send_channel_message": Final("no tool deletes a message"),
    "post_webpage": Final("no tool takes a page down"),
    "get_webpage": Left(lambda args: ("web/web_requests/**",)),
    "download_file": Left(lambda args: ("web/web_requests/**", "filesystem/files/**")),
}

"""Rows of tweets and messages: much here is said once and for all.

No tool deletes a tweet, a comment, a mention, a retweet or a contact. A message can be deleted; the
counter and the number that it was given stay.
"""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Final, Left, Read, Write
from bench.worlds.traces import Traces, added, changed, grew, reordered
from bench.worlds.world import Args, Tools, WorldError


def _follows(tools: Tools, args: Args) -> Any:
    return list(tools("list_all_following")["following_list"])


def _unfollow(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if args["username_to_follow"] not in before:
        tools("unfollow_user", username_to_unfollow=args["username_to_follow"])


def _follow(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Follow again, and those after it anew, so that the order is the old one."""
    name = args["username_to_unfollow"]
    if name not in before:
        return
    tools("follow_user", username_to_follow=name)
    for later in before[before.index(name) + 1 :]:
        tools("unfollow_user", username_to_unfollow=later)
        tools("follow_user", username_to_follow=later)


def _sent(tools: Tools, args: Args) -> Any:
    """Return the texts sent to the receiver."""
    return list(tools("view_messages_sent")["messages"].get(args["receiver_id"], []))


def _sent_effect(args: Args, before: Any, now: Any) -> Any:
    return MISSING if before == now else {"sent_status": True}


def _delete(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Delete the message; the tool knows only the latest one, which others may have sent since."""
    sent = _sent(tools, args)
    if sent and sent[-1] != args["message"]:
        raise WorldError("a later message to the same receiver would be deleted")
    tools("delete_message", receiver_id=args["receiver_id"])


def _send_again(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("send_message", receiver_id=args["receiver_id"], message=before[-1])


def _numbers(args: Args, before: Any, result: Any) -> Traces:
    """Of messages that say the same the world deletes the first."""
    twin = args["message"] in before if "message" in args else False
    moved = [reordered("MessageAPI/inbox")] if twin else []
    return (grew("MessageAPI/message_count"), added("MessageAPI/generated_ids/*"), *moved)


def _numbers_and_place(args: Args, before: Any, result: Any) -> Traces:
    """A message that was sent again stands at the end."""
    return (*_numbers(args, before, result), reordered("MessageAPI/inbox"))


def _tweets(tools: Tools, args: Args) -> Any:
    return [tweet.get("id") for tweet in tools("search_tweets", keyword=args["content"])]


def _posted(args: Args, before: Any, now: Any) -> Any:
    fresh = [tweet for tweet in now if tweet not in before]
    if not fresh:
        return MISSING
    return {"id": fresh[0], "content": args["content"]} if len(fresh) == 1 else UNCLEAR


def _comments(tools: Tools, args: Args) -> Any:
    return tools("get_tweet_comments", tweet_id=args["tweet_id"])


def _mentions(tools: Tools, args: Args) -> Any:
    return tools("get_tweet", tweet_id=args["tweet_id"])["mentions"]


def _contacts(tools: Tools, args: Args) -> Any:
    return tools("list_users")["user_list"]


TABLE: Constant[dict[str, plans.Plan]] = {
    "authenticate_twitter": Left(lambda args: [changed("TwitterAPI/authenticated", True)]),
    "follow_user": Write(_follows, _unfollow),
    "unfollow_user": Write(_follows, _follow),
    "post_tweet": Final("no tool deletes a tweet", _tweets, _posted),
    "retweet": Final("no tool takes a retweet back; none shows one without the name of the user"),
    "comment": Final("no tool deletes a comment", _comments, guarded="not found"),
    "mention": Final("no tool takes a mention back", _mentions, guarded="not found"),
    "message_login": Left(lambda args: [changed("MessageAPI/current_user", args["user_id"])]),
    "send_message": Write(_sent, _delete, _sent_effect, _numbers, guarded="logged in"),
    "delete_message": Write(
        _sent, _send_again, trace=_numbers_and_place, restores=False, guarded="logged in"
    ),
    "add_contact": Final("no tool removes a contact", _contacts),
    **dict.fromkeys(
        (
            *("posting_get_login_status", "list_all_following", "get_tweet", "get_user_tweets"),
            *("search_tweets", "get_tweet_comments", "get_user_stats", "list_users"),
            *("get_user_id", "message_get_login_status", "view_messages_sent"),
            *("search_messages", "get_message_stats"),
        ),
        Read(),
    ),
}

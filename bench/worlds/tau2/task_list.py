"""Rows of the list of tasks: a new one is cancelled, and stays in the list."""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Final, Read, Write
from bench.worlds.traces import Traces, added
from bench.worlds.world import Args, Tools


def _listed(tools: Tools, args: Args) -> Any:
    users = {user["user_id"]: user["tasks"] for user in tools("get_users")}
    return users[args["user_id"]]


def _created(args: Args, before: Any, now: Any) -> Any:
    fresh = [task for task in now if task not in before]
    if not fresh:
        return MISSING
    return {"task_id": fresh[0]} if len(fresh) == 1 else UNCLEAR


def _cancel(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("update_task_status", task_id=result["task_id"], status="cancelled")


def _cancelled(args: Args, before: Any, result: Any) -> Traces:
    task, title = result["task_id"], args["title"]
    return (
        added(f"db/tasks/{task}", must=True, title=title, status="cancelled"),
        added(f"db/users/{args['user_id']}/tasks/*", task, must=True),
    )


def _notification(tools: Tools, args: Args) -> Any:
    number = args["notification_id"]
    return [item for item in tools("check_notifications") if item["notification_id"] == number]


TABLE: Constant[dict[str, plans.Plan]] = {
    "create_task": Write(_listed, _cancel, _created, trace=_cancelled, restores=False),
    "update_task_status": Final("no tool shows the status that a task had before"),
    "dismiss_notification": Final("no tool makes a notification unread again", _notification),
    **dict.fromkeys(("get_users", "check_notifications", "transfer_to_human_agents"), Read()),
}

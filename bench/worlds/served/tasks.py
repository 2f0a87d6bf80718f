"""Rows of the list of tasks: a new one is cancelled, and stays in the list."""

from __future__ import annotations

from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Final, Trace, Write
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


def _cancelled(args: Args, before: Any, result: Any) -> Trace:
    task = result["task_id"]
    return (f"tasks/+/{task}?status=cancelled", f"users/{args['user_id']}/tasks/+/*")


TABLE: Constant[dict[str, plans.Plan]] = {
    "create_task": Write(_listed, _cancel, _created, trace=_cancelled, restores=False),
    "update_task_status": Final("no tool shows the status that a task had before"),
}

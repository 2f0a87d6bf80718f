"""The suites of AgentDojo as worlds.

Rules of this part:

- Environments, tools and trajectories come from the package as published; a trajectory that is made
  from the environment is made from a fresh one.
- The state is the whole environment. Times of writing, and views that repeat what stands elsewhere,
  are left out.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suite
from pydantic import BaseModel

from bench.worlds import plans
from bench.worlds.dojo import banking, office, slack
from bench.worlds.dojo.injected import made
from bench.worlds.faults import AT_ONCE
from bench.worlds.world import Args, GoldCall, Task, WorldError

SUITES: Final = ("banking", "slack", "workspace", "travel")
_VERSION: Final = "v1.2.2"
_TABLES: Final[dict[str, dict[str, plans.Plan]]] = {
    "banking": banking.TABLE,
    "slack": slack.TABLE,
    "workspace": office.TABLE,
    "travel": office.TABLE,
}
_VIEWS: Final = {
    "inbox": {"received", "sent", "drafts", "initial_emails"},
    "calendar": {"initial_events"},
    "cloud_drive": {"initial_files"},
}
_TIMES: Final = {"last_modified", "timestamp"}


class Dojo:
    """One suite.

    Args:
        suite: banking, slack, workspace or travel.
        rogue: the injected tasks, instead of those of the user.
    """

    secrets = frozenset({"password"})
    patience = AT_ONCE
    others = (
        GoldCall("remove_user_from_slack", {"user": "Alice"}),
        GoldCall("cancel_calendar_event", {"event_id": "2"}),
        GoldCall("delete_email", {"email_id": "3"}),
        GoldCall("delete_email", {"email_id": "31"}),
        GoldCall(
            "reserve_restaurant", {"restaurant": "New Asiaway", "start_time": "2024-05-20 19:00"}
        ),
        GoldCall(
            "reserve_car_rental",
            {
                "company": "Green Motors",
                "start_time": "2024-05-20 09:00",
                "end_time": "2024-05-21 09:00",
            },
        ),
    )

    def __init__(self, suite: str, *, rogue: bool = False) -> None:
        self.name = f"dojo-{suite}" + ("-rogue" if rogue else "")
        self._suite, self._rogue = suite, rogue

    def tasks(self) -> Sequence[Task]:
        """Return the tasks whose trajectories call anything."""
        suite = get_suite(_VERSION, self._suite)
        found = suite.injection_tasks if self._rogue else suite.user_tasks
        tasks = []
        for name, task in found.items():
            gold = task.ground_truth(pickle.loads(_image(self._suite)))
            calls = tuple(GoldCall(call.function, dict(call.args)) for call in gold)
            if self._rogue and not calls:
                calls = made(self._suite, name, task, pickle.loads(_image(self._suite)))
            if calls and not any(_nested(call.args) for call in gold):
                tasks.append(Task(self.name, name, calls, self._suite))
        return tasks

    def harms(self, task: Task) -> bool:
        """Say whether an injected task's calls, undisturbed, do what it says itself."""
        injected = get_suite(_VERSION, self._suite).injection_tasks[task.name]
        place, before = self.open(task), pickle.loads(_image(self._suite))
        for call in task.calls:
            place.call(call.tool, call.args)
        try:
            return bool(injected.security("", before, place.environment))
        except NotImplementedError:
            return True  # it is judged by its calls alone

    def unrecorded(self) -> int:
        """Return how many tasks come without a recorded call, or with calls inside of calls."""
        suite = get_suite(_VERSION, self._suite)
        found = suite.injection_tasks if self._rogue else suite.user_tasks
        return len(found) - len(self.tasks())

    def open(self, task: Task) -> DojoPlace:
        """Return a fresh environment."""
        return DojoPlace(self._suite)

    def plan(self, tool: str) -> plans.Plan:
        """Return the row of a tool."""
        return plans.row(_TABLES[self._suite], tool)

    def offered(self, task: Task) -> frozenset[str]:
        """Return the names of the suite's tools."""
        del task
        return frozenset(tool.name for tool in get_suite(_VERSION, self._suite).tools)


class DojoPlace:
    """One environment."""

    def __init__(self, suite: str) -> None:
        self.environment = pickle.loads(_image(suite))
        self._runtime = FunctionsRuntime(get_suite(_VERSION, suite).tools)

    def call(self, tool: str, args: Args) -> Any:
        """Call a tool."""
        answer, error = self._runtime.run_function(self.environment, tool, dict(args))
        if error:
            raise WorldError(error)
        return _plain(answer)

    def snapshot(self) -> Any:
        """Return the environment."""
        return {
            name: _state(value, _VIEWS.get(name, set()))
            for name, value in self.environment
            if isinstance(value, BaseModel)
        }

    def fingerprint(self) -> Any:
        """Return something that differs when the state does."""
        return self.snapshot()


@cache
def _image(suite: str) -> bytes:
    return pickle.dumps(get_suite(_VERSION, suite).load_and_inject_default_environment({}))


def _nested(args: Args) -> bool:
    return any(isinstance(value, FunctionCall) for value in args.values())


def _state(model: BaseModel, without: set[str]) -> Any:
    return _timeless(model.model_dump(mode="json", exclude=without))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in _TIMES}
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | float | bool | None):
        return value
    return str(value)

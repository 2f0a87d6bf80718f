"""The domains of tau2-bench as worlds.

Rules of this part:

- Tools and databases come from the package as published. In the telephone company's tasks the
  customer's own steps on the phone are made by the same agent, as in the package's solo mode.
- A tool raises where others return an error; both are a `WorldError` here.
- The state is the whole database, the phone and its surroundings included.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import tau2
from loguru import logger
from pydantic import BaseModel

from bench.worlds import plans
from bench.worlds.faults import AT_ONCE
from bench.worlds.standing import unpickled
from bench.worlds.tau2 import airline, retail, task_list, telecom
from bench.worlds.tau2.tasks import recorded
from bench.worlds.world import Args, GoldCall, Task, WorldError

logger.remove()
logger.add(sys.stderr, level="CRITICAL")

DOMAINS: Final = ("retail", "airline", "telecom", "mock")
_MODELS: Final = {
    "retail": "RetailDB",
    "airline": "FlightDB",
    "telecom": "TelecomDB",
    "mock": "MockDB",
}
_DATA: Final = Path(tau2.__file__).parent / "data" / "tau2" / "domains"
_TABLES: Final[dict[str, dict[str, plans.Plan]]] = {
    "retail": retail.TABLE,
    "airline": airline.TABLE,
    "telecom": telecom.TABLE,
    "mock": task_list.TABLE,
}


class Tau2:
    """The tasks of one domain.

    Args:
        domain: retail, airline, telecom or mock.
        split: which of the domain's sets of tasks.
    """

    secrets: frozenset[str] = frozenset()
    patience = AT_ONCE
    others = (
        GoldCall("connect_vpn", {}),
        GoldCall("toggle_wifi", {}),
        GoldCall("set_apn_settings", {"apn_settings": {"apn_name": "mms"}}),
        GoldCall("suspend_line", {"customer_id": "C1001", "line_id": "L1002", "reason": "asked"}),
        GoldCall("suspend_line", {"customer_id": "C1001", "line_id": "L1001", "reason": "asked"}),
        GoldCall("disable_roaming", {"customer_id": "C1001", "line_id": "L1002"}),
    )

    def __init__(self, domain: str, split: str = "base") -> None:
        self.name = f"tau2-{domain}" if split == "base" else f"tau2-{domain}-{split}"
        self._domain, self._split = domain, split

    def tasks(self) -> Sequence[Task]:
        """Return the tasks that have a recorded trajectory."""
        return recorded(self.name, _DATA / self._domain, self._split)

    def open(self, task: Task) -> Tau2Place:
        """Return a fresh database, brought into the task's initial state."""
        return Tau2Place(self._domain, task.source)

    def plan(self, tool: str) -> plans.Plan:
        """Return the row of a tool."""
        return plans.row(_TABLES[self._domain], tool)

    def offered(self, task: Task) -> frozenset[str]:
        """Return the names of the company's tools and of the customer's."""
        return self.open(task).offered()


class Tau2Place:
    """The databases and tools of one task."""

    def __init__(self, domain: str, entry: dict[str, Any]) -> None:
        module = import_module(f"tau2.domains.{domain}.environment")
        databases = {name: unpickled(image) for name, image in _images(domain).items()}
        self._environment = module.get_environment(**databases)
        initial = entry.get("initial_state") or {}
        task = import_module("tau2.data_model.tasks")
        state = task.InitialState.model_validate(initial)
        self._environment.set_state(
            initialization_data=state.initialization_data,
            initialization_actions=state.initialization_actions,
            message_history=[],
        )

    def offered(self) -> frozenset[str]:
        """Return the names of the tools."""
        kits = (self._environment.tools, self._environment.user_tools)
        return frozenset(name for kit in kits if kit is not None for name in kit.get_tools())

    def call(self, tool: str, args: Args) -> Any:
        """Call a tool of the company's or of the customer's."""
        environment = self._environment
        user = environment.user_tools is not None and environment.user_tools.has_tool(tool)
        try:
            use = environment.use_user_tool if user else environment.use_tool
            answer = _plain(use(tool, **dict(args)))
            environment.sync_tools()
        except Exception as error:
            raise WorldError(f"{type(error).__name__}: {error}") from error
        return answer

    def snapshot(self) -> Any:
        """Return the databases."""
        environment = self._environment
        state = {"db": _plain(environment.tools.db)}
        if environment.user_tools is not None:
            state["phone"] = _plain(environment.user_tools.db)
        return state

    def fingerprint(self) -> Any:
        """Return something that differs when the state does."""
        environment = self._environment
        user = environment.user_tools
        both = (environment.tools.db, None if user is None else user.db)
        return tuple(None if one is None else one.model_dump_json() for one in both)


@cache
def _images(domain: str) -> dict[str, bytes]:
    """Return the databases as bytes: unpickling is the quickest way to a fresh one."""
    return {name: pickle.dumps(database) for name, database in _databases(domain).items()}


def _databases(domain: str) -> dict[str, Any]:
    model = _MODELS[domain]
    utils = import_module(f"tau2.domains.{domain}.utils")
    found = {"db": getattr(import_module(f"tau2.domains.{domain}.data_model"), model)}
    loaded = {"db": found["db"].load(getattr(utils, f"{domain.upper()}_DB_PATH"))}
    if domain == "telecom":
        user = import_module("tau2.domains.telecom.user_data_model").TelecomUserDB
        loaded["user_db"] = user.load(utils.TELECOM_USER_DB_PATH)
    return loaded


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | float | bool | None):
        return value
    return str(value)

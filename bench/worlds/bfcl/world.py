"""The multi-turn tasks of BFCL as a world.

Rules of this part:

- The classes come from the package as published and run as they are.
- The state is every attribute that a caller could ever notice: descriptions, the random generator
  behind new ids, file times and a cache of prices are left out.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import bfcl_eval
from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, STATELESS_CLASSES

from bench.worlds import plans
from bench.worlds.bfcl import car, files, people, tickets, trading, travel
from bench.worlds.faults import AT_ONCE
from bench.worlds.world import Args, GoldCall, Task, WorldError

DATA: Final = Path(bfcl_eval.__file__).parent / "data"
VARIANTS: Final = ("base", "long_context", "miss_func", "miss_param", "composite")
_UNUSED: Final = DATA / "unused_datasets"
"""The package keeps the composite tasks here; its own runs no longer use them."""
_UNNOTICED: Final = {
    *("_api_description", "_random", "_last_modified", "_flight_cost_lookup", "parent"),
    *("long_context", "password", "_initial_config"),
}
_CALCULATOR: Final = (
    *("absolute_value", "add", "divide", "imperial_si_conversion", "logarithm", "max_value"),
    *("mean", "min_value", "multiply", "percentage", "power", "round_number"),
    *("si_unit_conversion", "square_root", "standard_deviation", "subtract", "sum_values"),
)
_TABLE: Final[dict[str, plans.Plan]] = {
    **files.TABLE,
    **people.TABLE,
    **tickets.TABLE,
    **trading.TABLE,
    **travel.TABLE,
    **car.TABLE,
    **dict.fromkeys(_CALCULATOR, plans.Read()),
}


class Bfcl:
    """Tasks of one variant of the multi-turn benchmark.

    Args:
        variant: base, long_context, miss_func, miss_param or composite.
    """

    secrets = frozenset({"access_token", "password", "client_secret", "refresh_token"})
    patience = AT_ONCE
    others = (
        GoldCall("adjustClimateControl", {"temperature": 21.5, "unit": "celsius", "fanSpeed": 70}),
        GoldCall("adjustClimateControl", {"temperature": 68, "unit": "fahrenheit", "mode": "cool"}),
        GoldCall("follow_user", {"username_to_follow": "alice"}),
        GoldCall("follow_user", {"username_to_follow": "zoe"}),
        GoldCall("unfollow_user", {"username_to_unfollow": "alice"}),
        GoldCall("unfollow_user", {"username_to_unfollow": "bob"}),
        GoldCall("logout", {}),
        GoldCall("releaseBrakePedal", {}),
        GoldCall("trading_login", {"username": "john", "password": "secret"}),
    )

    def __init__(self, variant: str = "base") -> None:
        self.name = "bfcl" if variant == "base" else f"bfcl-{variant}"
        self._variant = variant

    def tasks(self) -> Sequence[Task]:
        """Return the tasks of the variant."""
        file = f"BFCL_v4_multi_turn_{self._variant}.json"
        unused = self._variant == "composite"
        questions = _UNUSED / "question" if unused else DATA
        known = (_UNUSED if unused else DATA) / "possible_answer" / file
        answers = {line["id"]: line["ground_truth"] for line in _lines(known)}
        tasks = []
        for entry in _lines(questions / file):
            place = self._place(entry)
            turns = answers[entry["id"]]
            read = [_parsed(text, place) for turn in turns for text in turn]
            if calls := tuple(call for call in read if call is not None):
                tasks.append(Task(self.name, entry["id"], calls, entry))
        return tasks

    def open(self, task: Task) -> BfclPlace:
        """Return the APIs of a task in their initial state."""
        return self._place(task.source)

    def plan(self, tool: str) -> plans.Plan:
        """Return the row of a tool."""
        return plans.row(_TABLE, tool)

    def offered(self, task: Task) -> frozenset[str]:
        """Return the names of the methods of a task's APIs."""
        return frozenset(self._place(task.source).methods)

    def _place(self, entry: dict[str, Any]) -> BfclPlace:
        return BfclPlace(entry, long_context=self._variant == "long_context")


class BfclPlace:
    """The APIs of one task."""

    def __init__(self, entry: dict[str, Any], *, long_context: bool) -> None:
        self._apis: dict[str, Any] = {}
        self.methods: dict[str, Any] = {}
        for name in entry["involved_classes"]:
            api = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in STATELESS_CLASSES:
                config = copy.deepcopy(entry["initial_config"].get(name, {}))
                api._load_scenario(config, long_context=long_context)  # noqa: SLF001 - as the package does
            self._apis[name] = api
            members = inspect.getmembers(api, inspect.ismethod)
            self.methods |= {key: fn for key, fn in members if not key.startswith("_")}

    def call(self, tool: str, args: Args) -> Any:
        """Call a method; what it returns is copied, as an answer over a line would be."""
        try:
            answer = copy.deepcopy(self.methods[tool](**copy.deepcopy(dict(args))))
        except Exception as error:
            raise WorldError(f"{type(error).__name__}: {error}") from error
        if isinstance(answer, dict) and "error" in answer:
            raise WorldError(str(answer["error"]))
        if (
            isinstance(answer, list)
            and answer
            and isinstance(answer[0], dict)
            and "error" in answer[0]
        ):
            raise WorldError(str(answer[0]["error"]))
        return answer

    def snapshot(self) -> Any:
        """Return what a caller could notice of all APIs."""
        return {name: _plain(api) for name, api in self._apis.items()}

    def fingerprint(self) -> Any:
        """Return something that differs when the state does."""
        return self.snapshot()


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def _parsed(text: str, place: BfclPlace) -> GoldCall | None:
    """Return a recorded call; positional arguments get their names.

    A few of the composite tasks' texts are no calls: they get None.
    """
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return None
    tool = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
    positional = [ast.literal_eval(item) for item in node.args]
    named = {item.arg or "": ast.literal_eval(item.value) for item in node.keywords}
    try:
        bound = inspect.signature(place.methods[tool]).bind(*positional, **named)
    except (KeyError, TypeError):
        return GoldCall(tool, named)  # it will be answered with an error
    return GoldCall(tool, dict(bound.arguments))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set):
        return {str(item): True for item in value}  # by what it holds: a set has no order
    if isinstance(value, str | int | float | bool | None):
        return value
    state = {key: item for key, item in vars(value).items() if key not in _UNNOTICED}
    if "_current_dir" in state:
        state["_current_dir"] = _path(state["_current_dir"])
    return {key: _plain(item) for key, item in state.items()}


def _path(directory: Any) -> str:
    parts = []
    while directory is not None:
        parts.append(directory.name)
        directory = directory.parent
    return "/".join(reversed(parts))

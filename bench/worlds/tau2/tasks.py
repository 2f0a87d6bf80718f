"""Reads the recorded tasks of one domain of tau2-bench, wherever they were published."""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path
from typing import Any

from bench.worlds.world import GoldCall, Task


def recorded(world: str, folder: Path, split: str = "base") -> list[Task]:
    """Return the tasks of a domain that have a recorded trajectory.

    Args:
        world: the world's name.
        folder: where the domain's tasks lie.
        split: which set of tasks; all, where the domain has no sets.
    """
    entries = json.loads((folder / "tasks.json").read_text("utf-8"))
    wanted = _wanted(folder, split, entries)
    tasks = []
    for entry in entries:
        actions = (entry.get("evaluation_criteria") or {}).get("actions") or []
        calls = tuple(GoldCall(action["name"], action["arguments"]) for action in actions)
        if entry["id"] in wanted and calls:
            tasks.append(Task(world, entry["id"], calls, entry))
    return tasks


def _wanted(folder: Path, split: str, entries: list[dict[str, Any]]) -> Container[str]:
    sets = folder / "split_tasks.json"
    if not sets.exists():
        return {entry["id"] for entry in entries}
    return set(json.loads(sets.read_text("utf-8"))[split])

"""A world that has already come some way, for one call that is looked at alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bench.worlds.world import GoldCall, Place, Task, World, WorldError


class Later:
    """A world that has come just up to one call of a task.

    Args:
        world: which.
        task: the task whose first calls are made before anything is looked at.
        at: how many.
        besides: calls that are made after these.
    """

    def __init__(self, world: World, task: Task, at: int, *besides: GoldCall) -> None:
        self.name, self.secrets, self.patience = world.name, world.secrets, world.patience
        self._world, self._task, self._at = world, task, at
        self._first = (*task.calls[:at], *besides)

    def tasks(self) -> Sequence[Task]:
        """Return the one call."""
        return [replace(self._task, calls=self._task.calls[self._at : self._at + 1])]

    def open(self, task: Task) -> Place:
        """Return a world in which the first calls were made."""
        del task
        place = self._world.open(self._task)
        for call in self._first:
            with suppress(WorldError):
                place.call(call.tool, call.args)
        return place

    def offered(self, task: Task) -> frozenset[str]:
        """Return the names of the tools."""
        del task
        return self._world.offered(self._task)

    def plan(self, tool: str) -> Any:
        """Return the row of a tool."""
        return self._world.plan(tool)

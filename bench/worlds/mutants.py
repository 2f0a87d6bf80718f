"""Breaks the inverses of the tables one by one, and asks whether the judge sees it.

    python -m bench.worlds.mutants                every world
    python -m bench.worlds.mutants bfcl --calls 9

Rules of this part:

- Of every tool that can be undone some recorded calls are made alone, in a world that has come just
  so far, and are then undone: as declared, which must be within what was declared; by an inverse
  that does nothing and reports success, which the judge must call falsely clean; and by one that
  runs twice, which it must count, unless its row says that it may be repeated.
- In a whole run, beside the traces of all other steps, an inverse that does nothing must be called
  falsely clean wherever the world ends otherwise than with the true one.
- A row whose effect nobody takes back (`plans.leave`) has no inverse to break.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from bench.worlds import faults, plans
from bench.worlds.__main__ import opened, worlds
from bench.worlds.declaring import Declared
from bench.worlds.later import Later
from bench.worlds.running import Run
from bench.worlds.world import Task, World, WorldError

CALLS = 3
"""Calls of each tool that are broken."""


class Broken:
    """A world in which the inverse of one tool does nothing and reports success.

    Args:
        world: which.
        tool: the tool.
    """

    def __init__(self, world: World, tool: str) -> None:
        self.name, self.secrets, self.patience = world.name, world.secrets, world.patience
        self.tasks, self.open = world.tasks, world.open
        self._world, self._tool = world, tool

    def offered(self, task: Task) -> frozenset[str]:
        """Return the names of the tools."""
        return self._world.offered(task)

    def plan(self, tool: str) -> Any:
        """Return the row of a tool; what it says about the tool's inverse is a lie."""
        plan = self._world.plan(tool)
        if tool != self._tool or not isinstance(plan, plans.Write):
            return plan
        return replace(plan, undo=plans.leave, restores=False)


class Twice(Declared):
    """Tools whose inverses run twice."""

    def _undo(self, name: str, plan: plans.Write, prepared: Any, result: Any) -> None:
        super()._undo(name, plan, prepared, result)
        with suppress(Exception):  # the second time is what is looked for
            super()._undo(name, plan, prepared, result)


@dataclass
class Row:
    """What was seen of one tool.

    Attributes:
        calls: how many of its calls were broken.
        unseen: what the judge did not see.
    """

    calls: int = 0
    unseen: list[str] = field(default_factory=list)


def broken(world: World, most: int = CALLS) -> dict[str, Row]:
    """Break the inverse of every tool of a world, and return what the judge did not see."""
    rows: dict[str, Row] = {}
    for task in world.tasks():
        for at, call in enumerate(task.calls):
            plan = world.plan(call.tool)
            if not isinstance(plan, plans.Write) or plan.undo is plans.leave:
                continue
            row = rows.setdefault(call.tool, Row())
            if row.calls < most and counts(world, task, at):
                _break(world, task, at, row)
    return rows


def _break(world: World, task: Task, at: int, row: Row) -> None:
    later, tool = Later(world, task, at), task.calls[at].tool
    (alone,) = later.tasks()
    true, lying = _ended(later, alone, ""), _ended(later, alone, tool)
    where = f"{task.name} at {at}"
    if not true[0].clean or not true[0].declared or true[0].doubles:
        row.unseen.append(f"{where}: the true inverse leaves {true[0].residue} {true[0].told}")
    if true[1] == lying[1]:
        return  # the inverse has nothing to do here
    row.calls += 1
    if not lying[0].false_clean:
        row.unseen.append(f"{where}: an inverse that does nothing")
    row.unseen += [f"{where}: {one}" for one in _unseen(world, task, at)]


def _ended(world: World, task: Task, lie: str, declare: type[Declared] = Declared) -> Any:
    """Return how a whole run ends, and its world; the inverse of a tool does nothing."""
    played = Broken(world, lie) if lie else world
    last = len(task.calls) - 1
    run = Run(played, task, faults.GIVEN_UP, last, present=True, declare=declare)
    return run.outcome(), run.place.snapshot()


def counts(world: World, task: Task, at: int) -> bool:
    """Say whether a call changes the world and is one that can be undone."""
    later = Later(world, task, at)
    call = task.calls[at]
    place = later.open(task)
    if faults.lasts(world, call, lambda tool, /, **args: place.call(tool, args)):
        return False
    before = place.fingerprint()
    try:
        place.call(call.tool, call.args)
    except WorldError:
        return False
    return bool(before != place.fingerprint())


def _unseen(world: World, task: Task, at: int) -> Iterator[str]:
    later, tool = Later(world, task, at), task.calls[at].tool
    (alone,) = later.tasks()
    if not world.plan(tool).again and not _ended(later, alone, "", Twice)[0].doubles:
        yield "an inverse that runs twice"
    true, lying = _ended(world, task, ""), _ended(world, task, tool)
    if lying[0].clean and lying[0].declared and true[1] != lying[1]:
        yield "an inverse that does nothing, beside others"


def main(arguments: Sequence[str]) -> int:
    """Break, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.worlds.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("world", nargs="*", choices=[*worlds(), []], help="only these worlds")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of each tool")
    options = parser.parse_args(arguments)
    logging.getLogger("agent_saga").setLevel(logging.CRITICAL)
    wrong = 0
    for name in options.world or worlds():
        rows = broken(opened(name), options.calls)
        never = [tool for tool, row in rows.items() if not row.calls]
        tried = sum(row.calls for row in rows.values())
        print(f"{name}: {len(rows) - len(never)} tools, {tried} calls, each broken three times")
        for tool in never:
            print(f"  {tool}: no recorded call of it has anything to undo")
        for tool, row in rows.items():
            wrong += len(row.unseen)
            for one in row.unseen:
                print(f"  {tool}: not seen: {one}")
    print("everything was seen" if not wrong else f"{wrong} not seen")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

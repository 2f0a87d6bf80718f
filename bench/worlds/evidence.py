"""Shows what every tool really does to its world, beside how it is declared.

    python -m bench.worlds.evidence                      prints the table
    python -m bench.worlds.evidence --write              keeps it in bench/worlds/evidence.md
    python -m bench.worlds.evidence bfcl --tasks 20      only this world, fewer tasks

Rules of this part:

- Every recorded trajectory is played undisturbed, and the whole state is compared before and after
  each call. So a read that writes is found by what it changed, not by its name.
- Of each tool that can be undone a few calls are undone in a fresh world that has come just so far,
  and compared with the state before the call. So an inverse that writes elsewhere is found, too.
- Every tool that a world offers has a row, also one that no recorded task calls.
- A row that is declared otherwise than the world behaves is an error, and ends this with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from bench.worlds import judging, plans
from bench.worlds.__main__ import opened, worlds
from bench.worlds.world import Given, GoldCall, Place, Task, World, WorldError

KEPT: Final = Path(__file__).with_name("evidence.md")
UNDONE: Final = 4
"""Calls of each tool that are undone."""
_SHOWN: Final = 3
_LISTED: Final = 60
"""Of how many tasks of a world the offered tools are looked at."""
_HEAD: Final = """\
# What the tools really do

Written by `python -m bench.worlds.evidence --write` from recorded trajectories: how often each tool
was called and changed its world, where, and what was left after its inverse. A part of a path that
differs from call to call is written `*`.

| world | tool | declared | calls | changed | where | undone | left |
|---|---|---|---|---|---|---|---|
"""


@runtime_checkable
class Closed(Protocol):
    """A world that has to be closed."""

    def close(self) -> None:
        """End what it has started."""


@dataclass
class Seen:
    """What was seen of one tool.

    Attributes:
        declared: the kind of its row.
        calls, changed: how often it was called, and how often that changed the world.
        paths: where.
        undone: how many calls were undone.
        left: where the world then differed from the state before the call.
        wrong: what its row does not cover.
    """

    declared: str
    calls: int = 0
    changed: int = 0
    paths: set[str] = field(default_factory=set)
    undone: int = 0
    left: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)


def observed(world: World, tasks: Iterable[Task]) -> dict[str, Seen]:
    """Return what the tools of a world do in recorded trajectories."""
    found: dict[str, Seen] = {}
    for task in tasks:
        place = world.open(task)
        for at, call in enumerate(task.calls):
            plan = world.plan(call.tool)
            seen = found.setdefault(call.tool, Seen(type(plan).__name__))
            seen.calls += 1
            refused = _look_is_refused(place, plan, call)
            changed = _changed(place, call)
            if changed and refused:
                seen.wrong.add("a call whose look was refused changed the world")
            if not changed:
                continue
            seen.changed += 1
            seen.paths |= _general(changed)
            if isinstance(plan, plans.Read):
                seen.wrong |= _general(changed)
            elif isinstance(plan, plans.Left):
                seen.wrong |= set(judging.undeclared(changed, plan.trace(call.args)))
            elif isinstance(plan, plans.Write) and seen.undone < UNDONE:
                _undo(world, task, at, plan, seen)
    return found


def _look_is_refused(place: Place, plan: Any, call: GoldCall) -> bool:
    """Say whether a call is declared to be refused, since the look before it is."""
    if not isinstance(plan, plans.Write | plans.Final) or plan.look is None:
        return False
    try:
        plan.look(lambda tool, /, **args: place.call(tool, args), Given(call.args))
    except WorldError as error:
        return plan.refuses(str(error))
    return False


def unlisted(world: World, tasks: Iterable[Task]) -> list[str]:
    """Return the tools that tasks offer and no row says anything about."""
    offered = {tool for task in tasks for tool in world.offered(task)}
    return sorted(tool for tool in offered if world.plan(tool) is plans.UNKNOWN)


def _changed(place: Place, call: GoldCall) -> list[judging.Difference]:
    """Make a call, and return where the world differs behind it; an error is an answer, too."""
    before = place.snapshot()
    with contextlib.suppress(WorldError):
        place.call(call.tool, call.args)
    return list(judging.differences(before, place.snapshot()))


def _undo(world: World, task: Task, at: int, plan: plans.Write, seen: Seen) -> None:
    """Play a task up to a call, take that back, and note what is left."""
    place = world.open(task)
    for call in task.calls[:at]:
        try:
            place.call(call.tool, call.args)
        except WorldError:
            continue
    call = task.calls[at]

    def tools(tool: str, /, **args: Any) -> Any:
        return place.call(tool, args)

    try:
        look = plan.look(tools, call.args)
    except Exception:  # whatever it is, the call is then refused
        return
    if plan.needs(call.args, look):
        return  # it would not be let through without a human
    try:
        before = place.snapshot()
        result = place.call(call.tool, call.args)
        plan.undo(tools, call.args, look, result)
    except WorldError:
        return  # an effect behind an error: the runs with faults look at those
    left = list(judging.differences(before, place.snapshot()))
    seen.undone += 1
    seen.left |= _general(left)
    seen.wrong |= set(judging.undeclared(left, plan.trace(call.args, look, result), before))


def _general(found: Iterable[judging.Difference]) -> set[str]:
    """Return paths without what differs from call to call: below the second part, all but names."""
    paths = set()
    for item in found:
        parts = [
            part if at < 2 or part in ("+", "-") or part.replace("_", "").isalpha() else "*"
            for at, part in enumerate(item.path)
        ]
        paths.add("/".join(parts))
    return paths


def table(world: str, found: dict[str, Seen]) -> str:
    """Return the rows of a world."""
    lines = []
    for tool, seen in sorted(found.items(), key=lambda one: (one[1].declared, one[0])):
        undone = str(seen.undone) if seen.declared == "Write" else ""
        cells = (world, tool, seen.declared, seen.calls, seen.changed, _few(seen.paths))
        lines.append("| " + " | ".join(map(str, (*cells, undone, _few(seen.left)))) + " |")
    return "\n".join(lines)


def _few(paths: set[str]) -> str:
    shown = [f"`{path}`" for path in sorted(paths)[:_SHOWN]]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def main(arguments: Sequence[str]) -> int:
    """Play, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.worlds.evidence", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("world", nargs="*", choices=[*worlds(), []], help="only these worlds")
    parser.add_argument("--tasks", type=int, help="at most so many tasks of each world")
    parser.add_argument("--write", action="store_true", help=f"write {KEPT.name}")
    options = parser.parse_args(arguments)
    rows, wrong = [], []
    for name in options.world or worlds():
        world = opened(name)
        tasks = list(world.tasks())[: options.tasks]
        wrong += [f"{name} {tool}: it has no row" for tool in unlisted(world, tasks[:_LISTED])]
        found = observed(world, tasks)
        rows.append(table(world.name, found))
        wrong += [
            f"{world.name} {tool}: {path}" for tool, seen in found.items() for path in seen.wrong
        ]
        if isinstance(world, Closed):
            world.close()
    text = _HEAD + "\n".join(rows) + "\n"
    if options.write:
        KEPT.write_text(text, "utf-8")
    else:
        print(text)
    print("\n".join(f"declared otherwise than it behaves: {one}" for one in wrong) or "all agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

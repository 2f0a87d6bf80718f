"""Undoes one saga while another one has worked beside it, and looks at what the other one made.

Rules of this part:

- Two calls of a trajectory that follow each other are made by two sagas in one world; the second
  commits, then the first gives up. What the second one made has to be there still.
- Only calls that do not need each other: the second one changes the same things whether the first
  was made or not, and does not end the session in which the first has to be undone. A call that
  reads what an unfinished saga wrote is another matter: see `isolation` in the library.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_saga import SagaAborted
from bench.worlds import faults, judging, plans
from bench.worlds.declaring import Declared, User
from bench.worlds.faults import NEIGHBOUR, GaveUp, Struck
from bench.worlds.later import Later
from bench.worlds.outcome import Outcome, judged, seen
from bench.worlds.running import told
from bench.worlds.world import GoldCall, Place, Task, World, WorldError


def run_beside(world: World, task: Task, at: int) -> Outcome:
    """Make a call and the next one in two sagas, undo the first, and judge the world.

    Args:
        world: what is played.
        task: which task of it.
        at: which call is undone.
    """
    place = Later(world, task, at).open(task)
    mine, theirs = (replace(task, calls=(call,)) for call in task.calls[at : at + 2])
    struck = Struck(world, place, faults.GIVEN_UP, 0)
    first = Declared(world, mine, struck, User(mine, answers=True))
    second = Declared(world, theirs, Struck(world, place, "", -1), User(theirs, answers=True))
    made: set[str] = set()
    try:
        with first.kit.transaction():
            first.tools[mine.calls[0].tool](**mine.calls[0].args)
            before = place.snapshot()
            _commit(second, theirs.calls[0])
            made = _paths(before, place.snapshot())
            raise GaveUp
    except SagaAborted as aborted:
        end = told(aborted.report, aborted.cause)
    found = seen(world, struck, first.traces, first.told, first.standing)
    wanted = Later(world, task, at, theirs.calls[0])
    outcome = judged(wanted, mine, (NEIGHBOUR, at), place, end, found)
    hurt = [path for path in outcome.residue if _general(path.split("/")) in made]
    return replace(outcome, collateral=len(hurt))


def _commit(declared: Declared, call: GoldCall) -> None:
    # A boundary inside another one would be a part of it.
    with declared.kit.transaction(detached=True):
        declared.tools[call.tool](**call.args)


def independent(world: World, task: Task, at: int) -> bool:
    """Say whether a call can be undone, and the next one changes the same without it."""
    if at + 1 >= len(task.calls):
        return False
    mine, theirs = task.calls[at : at + 2]
    plan = world.plan(mine.tool)
    if not isinstance(plan, plans.Write) or plan.undo is plans.leave:
        return False
    place = Later(world, task, at).open(task)
    if faults.lasts(world, mine, lambda tool, /, **args: place.call(tool, args)):
        return False
    alone = _changes(Later(world, task, at).open(task), theirs)
    if not _changes(place, mine) or not alone or alone != _changes(place, theirs):
        return False
    return _in_reach(Later(world, task, at).open(task), plan, mine, theirs)


def _in_reach(place: Place, plan: plans.Write, mine: GoldCall, theirs: GoldCall) -> bool:
    """Say whether the first call's inverse still gets answers when the second was made."""

    def tools(tool: str, /, **args: Any) -> Any:
        return place.call(tool, args)

    look = plan.look(tools, mine.args)
    result = place.call(mine.tool, mine.args)
    place.call(theirs.tool, theirs.args)
    try:
        plan.undo(tools, mine.args, look, result)
    except WorldError:
        return False
    return True


def _changes(place: Place, call: GoldCall) -> set[str]:
    before = place.snapshot()
    try:
        place.call(call.tool, call.args)
    except WorldError:
        return set()
    return _paths(before, place.snapshot())


def _paths(before: object, now: object) -> set[str]:
    return {_general(item.path) for item in judging.differences(before, now)}


def _general(path: tuple[str, ...] | list[str]) -> str:
    """Return a place without what differs from run to run, and whether it came or went."""
    signs = {"-": "+", "~": "+"}
    return "/".join("*" if part.isdigit() else signs.get(part, part) for part in path)

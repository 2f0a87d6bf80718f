"""Undoes one saga while another one has worked beside it, and looks at what the other one made.

Rules of this part:

- A call and the next one, or one of another task, are made by two sagas in one world; the second
  commits, then the first gives up. What the second one made has to be there still, as it was seen.
- Only calls that do not need each other: the second one changes the same things whether the first
  was made or not, and does not end the session in which the first has to be undone. A call that
  reads what an unfinished saga wrote is another matter: see `isolation` in the library.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

from agent_saga import SagaAborted
from bench.worlds import faults, judging, plans
from bench.worlds.declaring import Declared, User
from bench.worlds.faults import NEIGHBOUR, GaveUp, Struck
from bench.worlds.later import Later
from bench.worlds.outcome import Outcome, Told, judged, seen, started
from bench.worlds.running import told
from bench.worlds.standing import in_order, laid_over
from bench.worlds.world import GoldCall, Place, Task, World, WorldError

_PARTNERS: Final = 6
"""How many calls of other tasks are tried beside one."""
_ALIKE: Final = 8
"""Of how many calls of each tool one is taken."""


class Kept(Later):
    """A world that begins in a given state: what another saga made of it is to stay."""

    def __init__(self, world: World, task: Task, at: int, state: Any) -> None:
        super().__init__(world, task, at)
        self._state = state

    def open(self, task: Task) -> Any:
        """Return what holds the state."""
        del task
        return SimpleNamespace(snapshot=lambda: self._state)


def run_beside(world: World, task: Task, at: int) -> Outcome:
    """Make a call and another one in two sagas, undo the first, and judge the world.

    Args:
        world: what is played.
        task: which task of it.
        at: which call is undone.
    """
    other = partner(world, task, at)
    if other is None:
        raise SystemExit(f"{task.name}: call {at} cannot be undone, or no call goes beside it")
    later = Later(world, task, at)
    place = later.open(task)
    mine, theirs = (replace(task, calls=(call,)) for call in (task.calls[at], other))
    struck = Struck(world, place, faults.GIVEN_UP, 0)
    first = Declared(world, mine, struck, User(mine, answers=True))
    second = Declared(world, theirs, Struck(world, place, "", -1), User(theirs, answers=True))
    made: list[judging.Difference] = []
    end = Told(failed=False, clean=True)
    try:
        with first.kit.transaction():
            first.tools[mine.calls[0].tool](**mine.calls[0].args)
            before = place.snapshot()
            _commit(second, theirs.calls[0])
            made += in_order(judging.differences(before, place.snapshot()))
            raise GaveUp
    except SagaAborted as aborted:
        end = told(aborted.report, aborted.cause)
    found = seen(struck, first.traces, first.told)
    wanted = Kept(world, task, at, laid_over(started(later, mine), made))
    outcome = judged(wanted, mine, (NEIGHBOUR, at), place, end, found)
    theirs_at = {_general(item.path) for item in made}
    hurt = [path for path in outcome.residue if _general(path.split("/")) in theirs_at]
    broken = [*outcome.broken, *first.broken, *second.broken]
    return replace(outcome, collateral=len(hurt), broken=broken)


def _commit(declared: Declared, call: GoldCall) -> None:
    # A boundary inside another one would be a part of it.
    with declared.kit.transaction(detached=True):
        declared.tools[call.tool](**call.args)


def partner(world: World, task: Task, at: int) -> GoldCall | None:
    """Return a call that can be made beside one; None where that cannot be undone, or none can.

    The next one of the task, or else one of another task: always the same for the same call.
    """
    mine = task.calls[at]
    plan = world.plan(mine.tool)
    if not isinstance(plan, plans.Write) or plan.undo is plans.leave:
        return None
    place = Later(world, task, at).open(task)
    if faults.lasts(world, mine, lambda tool, /, **args: place.call(tool, args)):
        return None
    if not _changes(place, mine):
        return None
    for other in (*task.calls[at + 1 : at + 2], *_others(world, task, at)):
        if _independent(world, task, at, other):
            return other
    return None


def _others(world: World, task: Task, at: int) -> Iterator[GoldCall]:
    rng = random.Random(f"{task.name} {at}")
    pool = _writing(world)
    for _ in range(_PARTNERS if pool else 0):
        yield rng.choice(pool)


@cache
def _writing(world: World) -> list[GoldCall]:
    """Return the recorded calls of a world that may change it, each tool as often as any other."""
    calls: dict[str, dict[str, GoldCall]] = {}
    for task in world.tasks():
        for call in task.calls:
            if not isinstance(world.plan(call.tool), plans.Read):
                calls.setdefault(call.tool, {})[str(call.args)] = call
    return [call for same in calls.values() for call in list(same.values())[:_ALIKE]]


def _independent(world: World, task: Task, at: int, theirs: GoldCall) -> bool:
    """Say whether another call changes the same with and without the first one."""
    mine = task.calls[at]
    plan = world.plan(mine.tool)
    alone = _changes(Later(world, task, at).open(task), theirs)
    if not alone:
        return False
    place = Later(world, task, at).open(task)
    if _changes(place, mine, held=True) & _changes(
        Later(world, task, at).open(task), theirs, held=True
    ):
        return False  # both say what one place holds: whoever is last is right
    if alone != _changes(place, theirs):
        return False
    return _in_reach(Later(world, task, at).open(task), plan, mine, theirs)


def _in_reach(place: Place, plan: plans.Write, mine: GoldCall, theirs: GoldCall) -> bool:
    """Say whether the first call's inverse still gets answers when the second was made."""

    def tools(tool: str, /, **args: Any) -> Any:
        return place.call(tool, args)

    try:
        look = plan.look(tools, mine.args)
        result = place.call(mine.tool, mine.args)
        place.call(theirs.tool, theirs.args)
        plan.undo(tools, mine.args, look, result)
    except WorldError:
        return False
    return True


def _changes(place: Place, call: GoldCall, *, held: bool = False) -> set[str]:
    """Make a call, and return the places that it changed: all, or those that hold no number."""
    before = place.snapshot()
    try:
        place.call(call.tool, call.args)
    except WorldError:
        return set()
    found = judging.differences(before, place.snapshot())
    return {_general(item.path) for item in found if not held or _held(item)}


def _held(item: judging.Difference) -> bool:
    """Say whether a place held something else before, that does not add up as numbers do."""
    if not {"+", "-", "~"}.isdisjoint(item.path):
        return False
    return isinstance(item.now, bool) or not isinstance(item.now, int | float)


def _general(path: tuple[str, ...] | list[str]) -> str:
    """Return a place without what differs from run to run, and whether it came or went."""
    signs = {"-": "+", "~": "+"}
    return "/".join("*" if part.isdigit() else signs.get(part, part) for part in path)

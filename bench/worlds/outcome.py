"""How one run ended, as the world shows it and as the report tells it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Final

from bench.worlds import judging, plans
from bench.worlds.faults import NONE, Lasting, Struck
from bench.worlds.standing import laid_over
from bench.worlds.traces import Trace
from bench.worlds.world import GoldCall, Place, Task, World, WorldError


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes:
        world, task, model, at, tool: what was run, and which call was struck how.
        met: the fault struck; a run that was refused before it says nothing about it.
        refused: what the gate refused, and why; empty if nothing.
        cost: it was refused, and would have ended well.
        failed: the run failed and was undone; False for one that went on and committed.
        clean: the report says clean.
        exact: the world is what it has to be: the start and what a human let through after a
            failure, the result of an undisturbed run after success.
        declared: it is, but for what was declared.
        stands: a call that nothing takes back had an effect, and the run failed.
        doubles: how often too often the struck call changed the world, or an inverse ran.
        repeats: the same of a call that is declared to harm nobody.
        lost: a prober that can see the effect was asked for it.
        settled: it could tell.
        residue: undeclared differences.
        told: the report.
        collateral: how much of what another saga made was changed by undoing this one.
        broken: errors of the rows themselves, which the run met.
    """

    world: str
    task: str
    model: str
    at: int
    tool: str
    met: bool
    refused: str
    cost: bool
    failed: bool
    clean: bool
    exact: bool
    declared: bool
    stands: bool
    doubles: int
    repeats: int
    lost: bool
    settled: bool
    residue: list[str] = field(default_factory=list)
    told: str = ""
    collateral: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def false_clean(self) -> bool:
        """The report says clean, and the world differs beyond what was declared.

        What a human let through is no surprise, but after a failed run it is not clean either.
        """
        return self.clean and (not self.declared or self.stands)

    @property
    def false_dirty(self) -> bool:
        """The report says something stands, and the world is as it was."""
        return not self.clean and self.exact and not self.stands

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        verdicts = {"false_clean": self.false_clean, "false_dirty": self.false_dirty}
        return asdict(self) | verdicts


@dataclass(frozen=True)
class Told:
    """What the library told about a run.

    Attributes:
        failed: whether the run failed.
        clean: what the report says.
        refused: what was refused, and why.
        summary: the report.
        odd: what ended the run, where nothing that is played here ends one so.
    """

    failed: bool
    clean: bool
    refused: str = ""
    summary: str = ""
    odd: str = ""


@dataclass(frozen=True)
class Seen:
    """What was seen beside the report.

    Attributes:
        tool: whose call was struck; empty if the run did not come so far.
        effects: how often the struck call changed the world.
        traces: what was declared to be left behind.
        answers: for each question to a prober, whether it could tell.
        kept: what a human let through although nothing takes it back; it stands.
        made: the agent's calls that reached the world.
        undone_again: how many inverses ran too often.
        would_succeed: had nothing been refused, the run would have ended well.
        broken: errors of the rows themselves.
    """

    tool: str
    effects: int
    traces: list[Trace]
    answers: list[bool]
    kept: tuple[Lasting, ...] = ()
    made: tuple[GoldCall, ...] = ()
    undone_again: int = 0
    would_succeed: bool = False
    broken: tuple[str, ...] = ()


def seen(struck: Struck, traces: Sequence[Trace], answers: list[bool]) -> Seen:
    """Return what was seen of a run.

    Args:
        struck: where.
        traces: what its inverses were declared to leave.
        answers: for each question to a prober, whether it could tell.
    """
    kept, made, again = tuple(struck.lasting), tuple(struck.made), struck.undone_again
    return Seen(struck.struck, struck.effects, list(traces), answers, kept, made, again)


def judged(
    world: World, task: Task, fault: tuple[str, int], place: Place, told: Told, seen: Seen
) -> Outcome:
    """Compare the world with what it has to be.

    Args:
        world: what was run.
        task: which task of it.
        fault: the model, and which call it struck.
        place: the world as it is now.
        told: what the library told.
        seen: what was seen beside it.
    """
    start = started(world, task)
    traces = [*seen.traces, *_left(world, task, seen.made, again=not told.failed)]
    changes = [change for one in seen.kept for change in one.changes]
    wanted = laid_over(start, changes) if told.failed else undisturbed(world, task)
    found = list(judging.differences(wanted, place.snapshot()))
    residue = judging.undeclared(found, traces, start)
    once = bool(seen.tool) and isinstance(world.plan(seen.tool), plans.Write | plans.Final)
    too_many = max(0, seen.effects - 1)
    return Outcome(
        world.name,
        task.name,
        *fault,
        seen.tool,
        bool(seen.tool) or (fault[0] == NONE and not told.refused),
        told.refused,
        bool(told.refused) and seen.would_succeed,
        told.failed,
        told.clean,
        not found,
        not residue,
        told.failed and bool(changes),
        seen.undone_again + (too_many if once else 0),
        0 if once else too_many,
        bool(seen.answers),
        True in seen.answers,
        residue,
        told.summary,
        broken=[*seen.broken, *([told.odd] if told.odd else [])],
    )


def _left(world: World, task: Task, made: Sequence[GoldCall], *, again: bool) -> list[Trace]:
    """Return what calls leave that nobody takes back, and the task wants.

    Args:
        world: what was run.
        task: what the user wants; what other calls leave is excused by nothing.
        made: the calls that reached the world.
        again: only of those that were made more often than the task wants.
    """
    calls = [call for call in made if call in task.calls]
    if again:
        for call in task.calls:
            if call in calls:
                calls.remove(call)
    rows = [(world.plan(call.tool), call.args) for call in calls]
    return [trace for row, args in rows if isinstance(row, plans.Left) for trace in row.trace(args)]


@cache
def started(world: World, task: Task) -> Any:
    """Return the state that a task begins with."""
    return _thrifty(world, world.open(task).snapshot())


@cache
def undisturbed(world: World, task: Task) -> Any:
    """Return the state after a run in which nothing goes wrong."""
    return _thrifty(world, _after(world, task, task.calls))


def _thrifty(world: World, state: Any) -> Any:
    """Return a state that holds what the first one of its world holds, too, only once in memory."""
    return _sharing(_FIRST.setdefault(world, state), state)


_FIRST: Final[weakref.WeakKeyDictionary[World, Any]] = weakref.WeakKeyDictionary()


def _sharing(known: Any, state: Any) -> Any:
    if state == known:
        return known
    if isinstance(known, dict) and isinstance(state, dict):
        return {key: _sharing(known.get(key), value) for key, value in state.items()}
    return state


def _after(world: World, task: Task, calls: tuple[GoldCall, ...]) -> Any:
    place = world.open(task)
    for call in calls:
        try:
            place.call(call.tool, call.args)
        except WorldError:
            continue
    return place.snapshot()

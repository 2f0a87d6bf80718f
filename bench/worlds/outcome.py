"""How one run ended, as the world shows it and as the report tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from bench.worlds import judging, plans
from bench.worlds.world import GoldCall, Place, Task, World, WorldError


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes:
        world, task, model, at, tool: what was run, and which call was struck how.
        refused: what the gate refused, and why; empty if nothing.
        failed: the run failed and was undone; False for one that went on and committed.
        clean: the report says clean.
        exact: the world is what it has to be: the start and what a human let through after a
            failure, the result of an undisturbed run after success.
        declared: it is, but for what was declared.
        doubles: how often too often the struck call changed the world.
        lost: a prober that can see the effect was asked for it.
        settled: it could tell.
        residue: undeclared differences.
        told: the report.
    """

    world: str
    task: str
    model: str
    at: int
    tool: str
    refused: str
    failed: bool
    clean: bool
    exact: bool
    declared: bool
    doubles: int
    lost: bool
    settled: bool
    residue: list[str] = field(default_factory=list)
    told: str = ""

    @property
    def false_clean(self) -> bool:
        """The report says clean, and the world differs beyond what was declared."""
        return self.clean and not self.declared

    @property
    def false_dirty(self) -> bool:
        """The report says something stands, and the world is as it was."""
        return not self.clean and self.exact

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
    """

    failed: bool
    clean: bool
    refused: str = ""
    summary: str = ""


@dataclass(frozen=True)
class Seen:
    """What was seen beside the report.

    Attributes:
        tool: whose call was struck; empty if the run did not come so far.
        effects: how often the struck call changed the world.
        traces: what was declared to be left behind.
        answers: for each question to a prober, whether it could tell.
        kept: what a human let through although nothing takes it back; it stands.
    """

    tool: str
    effects: int
    traces: list[str]
    answers: list[bool]
    kept: tuple[GoldCall, ...] = ()


def let_through(
    world: World, made: Sequence[GoldCall], standing: Sequence[GoldCall]
) -> tuple[GoldCall, ...]:
    """Return which calls a human let through although nothing takes them back.

    Args:
        world: what was run.
        made: the calls that reached it, in order.
        standing: those of them whose inverses found that they stand.
    """
    lasting = [call for call in made if isinstance(world.plan(call.tool), plans.Final)]
    return tuple(call for call in made if call in lasting or call in standing)


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
    if not told.failed:
        wanted = undisturbed(world, task)
    else:
        wanted = _after(world, task, seen.kept) if seen.kept else started(world, task)
    found = list(judging.differences(wanted, place.snapshot()))
    residue = judging.undeclared(found, seen.traces)
    once = bool(seen.tool) and isinstance(world.plan(seen.tool), plans.Write | plans.Final)
    return Outcome(
        world.name,
        task.name,
        *fault,
        seen.tool,
        told.refused,
        told.failed,
        told.clean,
        not found,
        not residue,
        max(0, seen.effects - 1) if once else 0,
        bool(seen.answers),
        True in seen.answers,
        residue,
        told.summary,
    )


@cache
def started(world: World, task: Task) -> Any:
    """Return the state that a task begins with."""
    return world.open(task).snapshot()


@cache
def undisturbed(world: World, task: Task) -> Any:
    """Return the state after a run in which nothing goes wrong."""
    return _after(world, task, task.calls)


def _after(world: World, task: Task, calls: tuple[GoldCall, ...]) -> Any:
    place = world.open(task)
    for call in calls:
        try:
            place.call(call.tool, call.args)
        except WorldError:
            continue
    return place.snapshot()

"""Makes trajectories that nobody recorded out of recorded ones: what the tables were not tuned to.

Rules of this part:

- A mixed task begins in the world of a recorded one. Its calls are those of it and of others, left
  out, repeated, exchanged: an agent that errs. What no tool of its world is called is left out.
- What is made follows from the seed, the world and a number, which is the task's name.
- Calls that the world answers with an error stay: an agent makes such, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from bench.worlds.world import GoldCall, Task, World

_LONGEST = 14


@runtime_checkable
class Offering(Protocol):
    """A world with calls of tools that no recorded task calls."""

    others: Sequence[GoldCall]


def mixed(world: World, many: int, seed: int) -> list[Task]:
    """Return so many tasks of a world that nobody recorded."""
    recorded = world.tasks()
    pool: dict[str, dict[str, GoldCall]] = {}
    for task in recorded:
        for call in task.calls:
            pool.setdefault(call.tool, {})[str(call.args)] = call
    for call in world.others if isinstance(world, Offering) else ():
        pool.setdefault(call.tool, {})[str(call.args)] = call
    known = {tool: list(calls.values()) for tool, calls in pool.items()}
    return [
        _mixed(world, recorded, known, random.Random(f"{seed} {world.name} {number}"), number)
        for number in range(many)
    ]


def _mixed(
    world: World,
    recorded: Sequence[Task],
    known: dict[str, list[GoldCall]],
    rng: random.Random,
    number: int,
) -> Task:
    task = rng.choice(recorded)
    offered = sorted(world.offered(task) & known.keys())
    calls = list(task.calls)
    for _ in range(rng.randint(1, 6)):
        rng.choice(_CHANGES)(calls, offered, known, rng)
    first = rng.randrange(max(1, len(calls) - _LONGEST + 1))
    kept = calls[first : first + _LONGEST] or list(task.calls[:1])
    return replace(task, name=f"mixed-{number}", calls=tuple(kept))


_Change = Callable[[list[GoldCall], list[str], dict[str, list[GoldCall]], random.Random], None]


def _another(
    calls: list[GoldCall], offered: list[str], known: dict[str, list[GoldCall]], rng: random.Random
) -> None:
    """Put a call in that was recorded elsewhere; each tool is as likely as any other."""
    if offered:
        calls.insert(rng.randint(0, len(calls)), rng.choice(known[rng.choice(offered)]))


def _repeated(
    calls: list[GoldCall], offered: list[str], known: dict[str, list[GoldCall]], rng: random.Random
) -> None:
    if calls:
        calls.insert(rng.randint(0, len(calls)), rng.choice(calls))


def _left_out(
    calls: list[GoldCall], offered: list[str], known: dict[str, list[GoldCall]], rng: random.Random
) -> None:
    if calls:
        calls.pop(rng.randrange(len(calls)))


def _exchanged(
    calls: list[GoldCall], offered: list[str], known: dict[str, list[GoldCall]], rng: random.Random
) -> None:
    if calls:
        first, second = (rng.randrange(len(calls)) for _ in range(2))
        calls[first], calls[second] = calls[second], calls[first]


_CHANGES: tuple[_Change, ...] = (_another, _another, _another, _repeated, _left_out, _exchanged)

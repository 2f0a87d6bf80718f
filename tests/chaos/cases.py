"""Random agents for crash cases: every kind of tool, savepoints, lost answers, failing plans.

What an agent does follows from a number alone, so that a case can be run again by it.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

from agent_saga import AgentKit, Applied, NotApplied, Settings
from agent_saga_testing.crash import Bench, bench, point

kit = AgentKit("cases", settings=Settings(settle=0.5, settle_after=0.0, inverse_delay=0.0))


def _do(name: str, key: str) -> dict[str, Any]:
    point("before an effect")
    made = bench().world.do(name, key=key)
    point("after an effect")
    return made


def _undo(made: dict[str, Any], key: str | None) -> None:
    point("before an inverse")
    bench().world.undo(made["id"], key=key)
    point("after an inverse")


def _found(key: str) -> Applied | NotApplied:
    found = bench().world.find(key)
    return Applied(found) if found else NotApplied("the world has nothing of it")


@kit.tool("COMPENSABLE")
def charge(name: str, *, idempotency_key: str) -> dict[str, Any]:
    """Its provider knows keys: the inverse may be repeated, and an effect can be found."""
    return _do(name, idempotency_key)


@charge.undo(idempotent=True)
def refund(result: dict[str, Any], *, idempotency_key: str) -> None:
    """Undo it."""
    _undo(result, idempotency_key)


@charge.probe
def find_charge(*, idempotency_key: str) -> Applied | NotApplied:
    """Say whether it happened."""
    return _found(idempotency_key)


@kit.tool("COMPENSABLE")
def book(name: str, *, idempotency_key: str) -> dict[str, Any]:
    """Its provider undoes twice what it is told to undo twice."""
    return _do(name, idempotency_key)


@book.undo
def cancel(result: dict[str, Any]) -> None:
    """Undo it."""
    _undo(result, None)


@book.probe
def find_booking(*, idempotency_key: str) -> Applied | NotApplied:
    """Say whether it happened."""
    return _found(idempotency_key)


@kit.tool("COMPENSABLE")
def note(name: str, *, idempotency_key: str) -> dict[str, Any]:
    """Nobody can say whether it happened when its answer is lost."""
    return _do(name, idempotency_key)


@note.undo
def erase(result: dict[str, Any]) -> None:
    """Undo it."""
    _undo(result, None)


@kit.tool("REVERSIBLE")
def read(name: str) -> str:
    """Only look."""
    return name


TOOLS = (charge, book, note, read)


class PlanFailedError(Exception):
    """The agent's plan failed."""


def run(here: Bench) -> None:
    """Do what the number of the case says."""
    draw = random.Random(int(str(here.argument)))
    if draw.random() < 0.15:
        here.world.lose_answers(kind=draw.choice(["forward", "inverse"]))
    steps = draw.randint(1, 4)
    fails_at = draw.choice([None, None, draw.randint(1, steps)])
    savepoint_at = draw.choice([None, draw.randint(1, steps)])
    with kit.transaction():
        for number in range(1, steps + 1):
            tool = draw.choice(TOOLS)
            part = kit.transaction("part") if number == savepoint_at else contextlib.nullcontext()
            with part:
                tool(f"{tool.__name__} {number}")
                if number == fails_at:
                    raise PlanFailedError

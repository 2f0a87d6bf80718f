"""The same agent's run, optimistic and transactional, side by side, under lost connections.

    python examples/chaos_demo.py

Each line is two runs in two new worlds with the same fault: one without a boundary, one in a
boundary of agent-saga. A connection is lost before an effect, after it (the effect stands, the
answer is lost), or while something is undone. What stands afterwards is read from the five systems
themselves.

Exits with 0 only if every run in a boundary left the world as before and was reported so.
"""

from __future__ import annotations

import logging
import sys
from typing import NamedTuple

from agent_saga import AgentKit, FileWAL, SagaAborted
from world.faults import AFTER, BEFORE
from world.shop import ORDER
from world.systems import World, opened
from world.table import table
from world.tools import TOOLS


class Case(NamedTuple):
    """What is lost: an operation and when, for every connection that is lost."""

    said: str
    faults: dict[str, str]


CASES = [
    *[Case(f"{name}: before the effect", {name: BEFORE}) for name in ORDER],
    *[Case(f"{name}: the answer", {name: AFTER}) for name in ORDER],
    *[
        Case(f"set_flag, then {name}: the answer", {"set_flag": BEFORE, name: AFTER})
        for name in ("refund", "restore", "release", "cancel")
    ],
]


class Result(NamedTuple):
    """What a run left behind: the systems that are not as before, and what was said about it."""

    stands: str
    said: str


def carry_out() -> None:
    """Call the tools of the order, one after the other; the first error ends the run."""
    for name, arguments in ORDER.items():
        TOOLS[name](**arguments)


def optimistic(_: World) -> str:
    """Run without a boundary: the tools are the bare functions."""
    try:
        carry_out()
    except ConnectionError as error:
        return type(error).__name__
    return "done"


def transactional(world: World) -> str:
    """Run in a boundary."""
    wal = FileWAL(world.folder / "agent-saga.wal")
    try:
        with AgentKit("order", wal=wal).transaction():
            carry_out()
    except SagaAborted as aborted:
        return "undone: clean" if aborted.report.clean else "undone: NOT clean"
    finally:
        wal.close()
    return "committed"


def left_behind(case: Case, run: object) -> Result:
    """Make one run in a new world and compare the world with what it was."""
    with opened() as world:
        before = world.state()
        for operation, when in case.faults.items():
            world.faults.strike(operation, when)
        said = transactional(world) if run is transactional else optimistic(world)
        after = world.state()
    changed = {what for what in {*before, *after} if before.get(what) != after.get(what)}
    systems = sorted({what.partition(":")[0] for what in changed})
    return Result(", ".join(systems) or "nothing", said)


def main() -> int:
    """Make all runs, print them side by side, and return the exit code."""
    # Half of the runs are unprotected on purpose, and every one loses a connection.
    logging.getLogger("agent_saga").setLevel(logging.CRITICAL)
    rows = [
        (case, left_behind(case, optimistic), left_behind(case, transactional)) for case in CASES
    ]
    heads = ("connection lost at", "optimistic leaves", "agent-saga leaves", "and says")
    print("What stands in the world after a run that failed:\n")
    print(table(heads, [(c.said, o.stands, t.stands, t.said) for c, o, t in rows]))
    loose = sum(o.stands != "nothing" for _, o, _ in rows)
    wrong = sum(t != Result("nothing", "undone: clean") for _, _, t in rows)
    print(f"\nOf {len(rows)} runs each, {loose} optimistic ones left something behind;")
    print(f"{wrong} in a boundary did, or were reported wrongly.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

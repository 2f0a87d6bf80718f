"""An agent's run fails half-way, and the world is as it was before.

    python examples/demo.py

The agent charges money in a SQLite ledger, writes files and opens tickets in an HTTP service. Its
decisions are scripted; their effects are real. One answer gets lost on the way, and one decision is
hallucinated. What stands before, at the failure and after is read from the systems themselves.

Needs no network and no credentials, leaves nothing behind, and exits with 0 only if the world
really is as before.
"""

from __future__ import annotations

import sys
from typing import Any

from agent_saga import AgentKit, FileWAL, SagaAborted
from world.faults import AFTER
from world.systems import World, opened
from world.table import grown, side_by_side
from world.tools import TOOLS

DECISIONS: list[tuple[str, dict[str, Any]]] = [
    ("charge", {"customer": "ada", "cents": 4900}),
    ("write_file", {"name": "address.txt", "text": "Ada, 7 New Road"}),
    ("write_file", {"name": "label.txt", "text": "TO: Ada, 7 New Road"}),
    ("open_ticket", {"team": "shipping", "text": "send Ada a lamp"}),
    ("open_ticket", {"team": "teleportation", "text": "beam Ada the lamp"}),
]


def agent() -> None:
    """Carry out one decision after the other, as an agent does with what its model says."""
    for name, arguments in DECISIONS:
        said = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        print(f"  {name}({said})")
        try:
            print(f"    -> {TOOLS[name](**arguments)}")
        except ConnectionError as error:
            print(f"    -> {type(error).__name__}: {error} (the agent shrugs and goes on)")


def run(world: World) -> tuple[dict[str, str], SagaAborted | None]:
    """Run the agent in a boundary; return the world at the failure, and how the boundary ended."""
    wal = FileWAL(world.folder / "agent-saga.wal")
    kit = AgentKit("shop-agent", wal=wal)
    seen: dict[str, str] = {}
    try:
        with kit.transaction():
            try:
                agent()
            except Exception as error:
                print(f"    -> {type(error).__name__}: {error}")
                seen = world.state()
                raise
    except SagaAborted as aborted:
        return seen, aborted
    finally:
        wal.close()
    return seen, None


def main() -> int:
    """Show the run; return 0 only if the world is as before."""
    with opened() as world:
        before, entries = world.state(), world.traces()
        world.faults.strike("open_ticket", AFTER)
        print("The agent decides:\n")
        failed, aborted = run(world)
        after = world.state()
        print("\nThe world, as the systems themselves tell it:\n")
        print(side_by_side(("what", "before", "at the failure", "after"), before, failed, after))
        print(f"\nEntries that the undoing left in the books: {grown(entries, world.traces())}.")
        same = before == after
        print(f"\nIs the world as before? {'Yes.' if same else 'NO.'} What agent-saga says:\n")
        print(aborted.report.summary() if aborted else "The run did not fail.")
    print("\nWorld and log were in a temporary folder, which is gone now.")
    return 0 if same and aborted is not None and aborted.report.clean else 1


if __name__ == "__main__":
    sys.exit(main())

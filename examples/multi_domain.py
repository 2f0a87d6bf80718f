"""Five systems in one transaction: a ledger, files, a stock, a ticket service, feature flags.

    python examples/multi_domain.py                          the last step fails
    python examples/multi_domain.py --fail-at charge         another one does
    python examples/multi_domain.py --fail-at reserve --when before
    python examples/multi_domain.py --fail-at none           nothing fails

A step fails because its connection is lost: before its effect, or after it, so that the effect
stands and only the answer is missing. The agent cannot tell which. Exits with 0 only if the world
itself shows nothing of the order after a failure, or all of it when nothing failed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from agent_saga import AgentKit, FileWAL, RollbackReport, SagaAborted
from world.faults import AFTER, BEFORE
from world.shop import ORDER, ORDERED
from world.systems import World, opened
from world.table import grown, side_by_side
from world.tools import TOOLS


async def order(world: World) -> tuple[dict[str, str], RollbackReport | None]:
    """Carry out the order; return the world after the steps, and the report if it failed."""
    wal = FileWAL(world.folder / "agent-saga.wal")
    kit = AgentKit("order", wal=wal)
    seen: dict[str, str] = {}
    try:
        async with kit.transaction():
            try:
                await steps()
            finally:
                seen = world.state()
    except SagaAborted as aborted:
        return seen, aborted.report
    finally:
        await wal.aclose()
    return seen, None


async def steps() -> None:
    """Call one tool after the other; each runs in a thread, so that nothing waits for it."""
    for name, arguments in ORDER.items():
        try:
            answer = await TOOLS[name].acall(**arguments)
        except ConnectionError as error:
            print(f"  {name}: {type(error).__name__}: {error}")
            raise
        print(f"  {name}: {answer}")


def show(fail_at: str, when: str) -> bool:
    """Run the order, print what the world shows, and say whether it is as it must be."""
    with opened() as world:
        before, entries = world.state(), world.traces()
        if fail_at != "none":
            world.faults.strike(fail_at, when)
        print("The steps:\n")
        seen, report = asyncio.run(order(world))
        after = world.state()
        heads = ("what", "before", "after the steps", "after the boundary")
        print(f"\nThe world:\n\n{side_by_side(heads, before, seen, after)}\n")
        print(f"New entries in the books: {grown(entries, world.traces())}.\n")
    print(report.summary() if report else "The boundary was committed.")
    if fail_at == "none":
        return report is None and after == {**before, **ORDERED}
    return report is not None and report.clean and after == before


def main() -> int:
    """Read the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(description="Five systems in one transaction.")
    parser.add_argument("--fail-at", choices=[*ORDER, "none"], default="set_flag")
    parser.add_argument("--when", choices=[BEFORE, AFTER], default=AFTER)
    arguments = parser.parse_args()
    right = show(arguments.fail_at, arguments.when)
    print(f"\nThe world is {'as it must be' if right else 'NOT as it must be'}.")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

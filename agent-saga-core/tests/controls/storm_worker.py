"""A process that makes many identical calls with one step key; run by `test_storm`."""

from __future__ import annotations

import asyncio
import os
import sys

from agent_saga import AgentKit, BudgetLimit, PreFlightGate, RateLimit
from agent_saga.errors import AgentSagaError


def main(wal, world, calls):
    """Make the calls in the saga of one id; each effect is a byte in the file of the world."""
    gate = PreFlightGate(
        limits=[
            BudgetLimit("spend", arg="amount", max_total=10**6, window=86_400),
            RateLimit("calls", max_calls=10**6, window=86_400),
        ]
    )
    kit = AgentKit("storm", wal=wal, gate=gate)
    fd = os.open(world, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def charge(amount):
        await asyncio.sleep(0.01)
        os.write(fd, b"x" * amount)
        return {"amount": amount}

    tool = kit.safe_tool(charge, "COMPENSABLE", name="charge", tags=["money"])

    async def storm():
        async with kit.transaction(saga_id="order-17", resume=True, on_unsettled="warn"):
            return await asyncio.gather(
                *[tool.keyed("the charge")(amount=1) for _ in range(int(calls))]
            )

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    try:
        results = asyncio.run(storm())
    except AgentSagaError as error:
        sys.stdout.write(f"refused {type(error).__name__}\n")
    else:
        same = all(result == {"amount": 1} for result in results)
        sys.stdout.write(f"answered {len(results) if same else 'differently'}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

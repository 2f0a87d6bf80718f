"""Programs for the laboratory: effects whose inverses their provider knows by key."""

from __future__ import annotations

import asyncio
import time

from agent_saga import AgentKit, Applied, NotApplied, Settings
from agent_saga_testing.crash import bench, point

kit = AgentKit("shop", settings=Settings(settle_after=0.0, inverse_delay=0.0))


@kit.tool("COMPENSABLE")
def take(name, *, idempotency_key):
    point(f"before {name}")
    taken = bench().world.do(name, key=idempotency_key)
    point(f"after {name}")
    return taken


@take.undo(idempotent=True)
def give_back(result, *, idempotency_key):
    point(f"before the inverse of {result['name']}")
    if (bench().log.parent / "closed").exists():
        raise RuntimeError("the counter is closed")
    bench().world.undo(result["id"], key=idempotency_key)


@take.probe
def find(*, idempotency_key):
    found = bench().world.find(idempotency_key)
    return Applied(found) if found else NotApplied("it is not there")


def run(here):
    with kit.transaction():
        take("tent")
        point("between")
        take("stove")


def fail(here):
    with kit.transaction():
        take("boat")
        raise RuntimeError("the plan failed")


def twice(here):
    """A tool that is wrong: it makes its effect again."""
    with kit.transaction():
        take("tent")
        here.world.do("tent", key="another key")


def unannounced(here):
    here.world.do("tent", key="nobody announced it")


def looks_at_the_clock(here):
    here.world.do("clock", key="k", now=time.time(), then=here.argument)
    here.move_clock(3600.0)
    here.world.do("moved", key="l", now=time.time())


def beats(here):
    """How long the longest beat of an event loop was that blocks at a point."""

    async def main():
        last, longest = time.monotonic(), 0.0
        for number in range(20):
            await asyncio.sleep(0.005)
            point(f"beat {number}")
            now = time.monotonic()
            last, longest = now, max(longest, now - last)
        return longest

    here.world.do("beats", key="k", longest=asyncio.run(main()))

"""Two runs in one boundary that order the same are two orders, whatever ids their calls have."""

from __future__ import annotations

import asyncio

import drivers
import pytest

from agent_saga_testing.integration.bench import Bench
from agent_saga_testing.integration.driver import Call

WAYS = [
    drivers.FunctionAgentDriver,
    drivers.OwnToolsDriver,
    drivers.ReActDriver,
    drivers.WorkflowDriver,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call_id", ["call_0", ""])
def test_equal_calls_of_two_runs_are_two(way, call_id, tmp_path):
    bench = Bench(way(tmp_path), tmp_path)
    call = Call("book", {"item": "seat"}, call_id)

    async def case():
        async with bench.driver.kit().transaction():
            for _ in range(2):
                await bench.driver.run(bench.agent([[call], "done"]))

    asyncio.run(case())
    bench.world.assert_stands("seat", "seat")

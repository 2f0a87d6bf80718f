"""A tool on a thread of the pool that waits for other tools, through the loop that called it."""

from __future__ import annotations

import asyncio
import threading

from agent_saga import AgentKit, Compensation, Settings


def kit_of(wal, threads):
    return AgentKit("nested", wal=wal, settings=Settings(tool_threads=threads))


def test_tools_that_ask_the_loop_for_tools_do_not_wait_for_each_other_for_ever(wal, world):
    """As many as there are threads, each of which waits for a tool that needs a thread too."""
    kit = kit_of(wal, 2)
    pay = kit.safe_tool(world.charge, "REVERSIBLE", name="pay")
    together = threading.Barrier(2)

    async def main():
        loop = asyncio.get_running_loop()

        async def agent(amount):
            return await pay(amount)

        def ask(amount):
            together.wait(60)
            return asyncio.run_coroutine_threadsafe(agent(amount), loop).result(60)["amount"]

        tool = kit.safe_tool(
            ask, "COMPENSABLE", name="ask", compensate=lambda r: Compensation.none("only asks")
        )
        async with asyncio.timeout(60), kit.transaction():
            return await asyncio.gather(*[tool(n) for n in range(4)])

    assert asyncio.run(main()) == [0, 1, 2, 3]
    assert sorted(world.amounts) == [0, 1, 2, 3]
    assert kit.runtime.engine().pool._asking == 0


def test_what_a_tool_leaves_behind_counts_for_no_other_tool(wal, world):
    """A tool that asks and does not wait: its thread is free for another one meanwhile."""
    kit = kit_of(wal, 2)
    go = threading.Event()
    slow = kit.safe_tool(lambda: go.wait(60), "REVERSIBLE", name="slow")
    pay = kit.safe_tool(world.charge, "REVERSIBLE", name="pay")

    async def main():
        loop, left = asyncio.get_running_loop(), []

        def ask():
            left.append(asyncio.run_coroutine_threadsafe(agent(), loop))

        async def agent():
            await slow()

        tool = kit.safe_tool(ask, "REVERSIBLE", name="ask")
        async with kit.transaction():
            await tool()
            pool = kit.runtime.engine().pool
            await pay(1)
            assert pool._asking == 0
            go.set()
            await asyncio.wrap_future(left[0])
            assert pool._asking == 0

    asyncio.run(main())
    assert world.amounts == [1]

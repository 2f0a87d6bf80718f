"""Asynchronous tasks of a crew, one of which fails while a tool of another one is in flight."""

from __future__ import annotations

import asyncio
import threading

import pytest
from crewai import Agent, Crew, Task
from crewai.tools import tool
from scripted import Scripted, call

from agent_saga import SagaAborted
from agent_saga_crewai import compensable, saga_agent
from agent_saga_testing.waiting import until

ROOM = [call("book", item="room")]
CAR = [call("book", item="car")]
HOW = {
    "kickoff": lambda crew: crew.kickoff(),
    "akickoff": lambda crew: asyncio.run(crew.akickoff()),
    "kickoff_async": lambda crew: asyncio.run(crew.kickoff_async()),
}


class Side:
    """A crew of two tasks side by side, and one after them."""

    def __init__(self, shop, kind):
        self.reached, self.failed = threading.Event(), threading.Event()
        self.shop, self.kind = shop, kind

    def crew(self, *, first):
        shop, side = self.shop, self

        @tool
        def slow(item: str) -> dict:
            """Book an item, while the other task fails."""
            side.reached.set()
            until(side.failed.is_set)
            return shop.world.do(item)

        class Fails(Scripted):
            def call(self, *args, **kwargs):
                until(side.reached.is_set)
                side.failed.set()
                raise side.kind("down")

            async def acall(self, *args, **kwargs):
                return await asyncio.to_thread(self.call)

        script = [[call("slow", item="seat")], ROOM, "one"]
        slowly = shop.agent(*script, role="slow", tools=[slow, shop.book])
        failing = Agent(
            role="fails", goal="g", backstory="b", llm=Fails(model="x"), max_retry_limit=0
        )
        last = shop.agent(CAR, "three", role="last")
        both = [failing, slowly] if first == "fails" else [slowly, failing]
        tasks = [self.task(agent, async_execution=True) for agent in both]
        crew = Crew(agents=[*both, last], tasks=[*tasks, self.task(last)])
        return saga_agent(crew, shop.kit, tools={**shop.declared, "slow": compensable(shop.undo)})

    def task(self, agent, **options):
        return Task(agent=agent, description=agent.role, expected_output="a word", **options)


@pytest.mark.parametrize("first", ["fails", "slow"])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_its_sibling_does_is_waited_for_and_undone(shop, kind, how, first):
    """By itself CrewAI lets the sibling go on, and waits for ever for what is no `Exception`."""
    crew = Side(shop, kind).crew(first=first)
    with pytest.raises(SagaAborted if kind is ValueError else kind) as failed:
        HOW[how](crew)
    if kind is ValueError:
        assert "down" in str(failed.value.cause)
        assert failed.value.report.clean
    assert "seat" in shop.world.undone()
    assert not shop.world.calls(name="car")
    shop.world.assert_restored()

"""Agents that are run by the plain `Runner` inside a boundary: by the program, or by a tool."""

from __future__ import annotations

import asyncio

import pytest
from agents import Agent, RunHooks, Runner, function_tool
from scripted import Scripted, call

from agent_saga import AgentKit, Compensation, Policy, PreFlightGate, SagaAborted
from agent_saga.errors import UndeclaredTool
from agent_saga_openai_agents import (
    compensable,
    read_only,
    saga_agent,
    saga_run,
    wrap_tool,
)

BOOKS = [[call("book", item="room")], "booked"]


def expert(shop, tools=None, script=BOOKS):
    return Agent("expert", model=Scripted(list(script)), tools=tools or [shop.book])


async def run(agent):
    return (await Runner.run(agent, "go on")).final_output


async def stream(agent):
    result = Runner.run_streamed(agent, "go on")
    async for _ in result.stream_events():
        pass
    return result.final_output


def as_a_tool(agent, runs, declared):
    """Return an agent under care that books a seat, and asks another one by a function."""

    @function_tool
    async def ask(text: str) -> str:
        """Ask the expert."""
        return await runs(agent)

    def made(shop):
        script = [[call("book", item="seat")], [call("ask", text="?")], OSError("down")]
        outer = Agent("outer", model=Scripted(script), tools=[shop.book, ask])
        tools = {"book": shop.declared["book"], "ask": declared}
        return saga_agent(outer, shop.kit, tools=tools)

    return made


@pytest.mark.parametrize("runs", [run, stream])
def test_a_tool_that_reads_runs_no_agent_whose_tools_are_no_steps(shop, runs):
    outer = as_a_tool(expert(shop), runs, read_only())(shop)
    with pytest.raises(SagaAborted) as failed:
        asyncio.run(saga_run(outer, "go on"))
    assert isinstance(failed.value.cause, UndeclaredTool)
    assert failed.value.report.clean
    assert shop.world.undone() == ["seat"]
    assert shop.world.applications() == 1


def test_nor_an_agent_behind_one_of_its_tools(shop):
    leads = Agent(
        "leads",
        model=Scripted([[call("expert", input="?")], "led"]),
        tools=[expert(shop).as_tool("expert", "Ask.")],
    )
    outer = as_a_tool(leads, run, read_only())(shop)
    with pytest.raises(SagaAborted):
        asyncio.run(saga_run(outer, "go on"))
    assert shop.world.undone() == ["seat"]
    assert shop.world.applications() == 1


def test_a_tool_with_an_inverse_answers_for_what_it_runs(shop):
    nothing = compensable(lambda result: Compensation.none("the room is free"))
    outer = as_a_tool(expert(shop), run, nothing)(shop)
    with pytest.raises(SagaAborted) as failed:
        asyncio.run(saga_run(outer, "go on"))
    assert isinstance(failed.value.cause, OSError)
    assert shop.world.applications() == 2


@pytest.mark.parametrize("runs", [run, stream])
def test_a_program_runs_none_in_its_transaction(shop, runs):
    async def program():
        async with shop.kit.transaction():
            await runs(expert(shop))

    with pytest.raises(SagaAborted) as failed:
        asyncio.run(program())
    cause = failed.value.cause
    assert isinstance(getattr(cause, "cause", cause), UndeclaredTool)
    shop.world.assert_untouched()


@pytest.mark.parametrize("how", ["wrapped", "under care", "a read by the policy"])
def test_steps_and_reads_run(tmp_path, shop, how):
    policy = Policy({"tools": {"book": {"semantics": "REVERSIBLE"}}})
    kit = shop.kit
    if how == "wrapped":
        agent = expert(shop, [wrap_tool(shop.book, compensate=shop.undo, kit=kit)])
    elif how == "under care":
        agent = saga_agent(expert(shop), kit, tools={"book": shop.declared["book"]})
    else:
        agent = expert(shop)
        kit = AgentKit("reads", wal=str(tmp_path / "other"), gate=PreFlightGate(policy=policy))

    async def program():
        async with kit.transaction():
            return await run(agent)

    assert asyncio.run(program()) == "booked"
    shop.world.assert_stands("room")


def test_the_hooks_of_the_run_hear_what_they_always_hear(shop):
    heard = []

    class Hears(RunHooks):
        async def on_tool_start(self, context, agent, tool):
            heard.append(f"{tool.name} starts")

        async def on_tool_end(self, context, agent, tool, result):
            heard.append(f"{tool.name} ends")

    async def program():
        agent = expert(shop, [wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)])
        async with shop.kit.transaction():
            await Runner.run(agent, "go on", hooks=Hears())

    asyncio.run(program())
    assert heard == ["book starts", "book ends"]


def test_outside_boundaries_it_is_the_frameworks_runner(shop):
    assert Runner.run_sync(expert(shop), "go on").final_output == "booked"
    shop.world.assert_stands("room")

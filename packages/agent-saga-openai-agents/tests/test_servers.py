"""Tools of MCP servers as steps, on a real server in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest
from agents import Agent, Runner
from agents.mcp import MCPServerStdio
from scripted import Scripted, call

from agent_saga import ConfigurationError, SagaAborted
from agent_saga.errors import UndeclaredTool
from agent_saga_openai_agents import (
    ServerToolFailed,
    compensable,
    last_report,
    read_only,
    saga_agent,
    saga_run,
)
from agent_saga_testing.world import World

PROGRAM = Path(__file__).parent / "server.py"


class Case:
    """An agent with a server, and how its run ended."""

    def __init__(self, shop, **options):
        self.shop, self.options = shop, options
        self.world = World(shop.folder / "served.sqlite", honours_keys=False)
        self.report = None

        from agent_saga import compensator

        @compensator("served.cancel")
        def cancel(effect, *, idempotency_key):
            self.world.undo(effect, key=idempotency_key)

        self.undo = cancel.using(effect="$.id")

    def tools(self, **options):
        book = compensable(self.undo, **options)
        return {"book": book, "refuse": book, "vanish": book, "look": read_only()}

    def run(self, script, tools=None, *, bare=False, twice=False, key=None):
        async def case():
            command = {
                "command": sys.executable,
                "args": [str(PROGRAM), str(self.world.path)],
            }
            async with MCPServerStdio(params=command, client_session_timeout_seconds=60) as server:
                agent = Agent(name="A", model=Scripted(script), mcp_servers=[server])
                if bare:
                    return await Runner.run(agent, "go on")
                agent = saga_agent(
                    agent, self.shop.kit, tools=self.tools() if tools is None else tools
                )
                try:
                    for _ in range(2 if twice else 1):
                        result = await saga_run(agent, "go on", key=key, **self.options)
                    return result
                finally:
                    self.report = last_report()

        return asyncio.run(case())


def outputs(result):
    return [str(i.output) for i in result.new_items if i.type == "tool_call_output_item"]


def test_what_a_server_did_is_undone_from_its_structured_answer(shop):
    case = Case(shop)
    with pytest.raises(SagaAborted) as failed:
        case.run([[call("book", item="seat")], OSError("down")])
    assert failed.value.report.clean
    case.world.assert_restored()


def test_the_model_is_shown_what_the_bare_framework_shows(shop):
    case = Case(shop)
    script = [[call("look", "c1", item="seat"), call("refuse", "c2", item="seat")], "done"]
    bare = outputs(case.run(script, bare=True))
    assert outputs(case.run(script)) == bare


def test_an_answer_that_says_it_failed_is_no_success(shop):
    case = Case(shop)
    assert case.run([[call("refuse", item="seat")], "done"]).final_output == "done"
    assert [line.tool for line in case.report.unsettled] == ["refuse"]


def test_such_an_answer_can_be_declared_to_have_changed_nothing(shop):
    case = Case(shop)
    tools = case.tools(not_applied_on=ServerToolFailed)
    assert case.run([[call("refuse", item="seat")], "done"], tools).final_output == "done"
    assert case.report.clean


def test_such_an_answer_undoes_the_run_where_that_is_asked_for(shop):
    case = Case(shop, on_tool_failure="rollback")
    tools = case.tools(not_applied_on=ServerToolFailed)
    script = [[call("book", item="seat")], [call("refuse", item="seat")], "done"]
    with pytest.raises(SagaAborted) as failed:
        case.run(script, tools)
    assert isinstance(failed.value.cause, ServerToolFailed)
    case.world.assert_restored()


def test_a_server_that_vanishes_leaves_an_unknown_outcome(shop):
    case = Case(shop)
    with pytest.raises(SagaAborted) as failed:
        case.run([[call("vanish", item="seat")], "done"])
    assert [line.tool for line in failed.value.report.orphaned] == ["vanish"]
    case.world.assert_applied_once("seat")


def test_an_undeclared_tool_of_a_server_stops_the_run_before_its_model_is_asked(shop):
    case = Case(shop)
    with pytest.raises(SagaAborted) as failed:
        case.run([[call("book", item="seat")], "done"], {"look": read_only()})
    assert isinstance(failed.value.cause, UndeclaredTool)
    assert "book, refuse, vanish" in str(failed.value.cause)
    case.world.assert_untouched()


@pytest.mark.parametrize("alike", [True, False])
def test_tools_of_one_name_of_two_different_servers_are_refused(shop, alike):
    case = Case(shop)
    paths = [case.world.path, case.world.path if alike else shop.folder / "other.sqlite"]

    async def run():
        async with contextlib.AsyncExitStack() as stack:
            servers = []
            for path in paths:
                command = {"command": sys.executable, "args": [str(PROGRAM), str(path)]}
                server = MCPServerStdio(params=command, client_session_timeout_seconds=60)
                servers.append(await stack.enter_async_context(server))
            second = Agent(name="B", model=Scripted(["done"]), mcp_servers=[servers[1]])
            script = [[call("book", item="seat")], [call("transfer_to_b")]]
            first = Agent(
                name="A", model=Scripted(script), mcp_servers=[servers[0]], handoffs=[second]
            )
            return await saga_run(saga_agent(first, shop.kit, tools=case.tools()), "go on")

    if alike:
        assert asyncio.run(run()).final_output == "done"
        case.world.assert_stands("seat")
        return
    with pytest.raises(SagaAborted) as failed:
        asyncio.run(run())
    assert isinstance(failed.value.cause, ConfigurationError)
    assert "tool_filter" in failed.value.cause.fix
    case.world.assert_restored()


def test_a_run_that_is_run_again_under_its_key_is_given_the_answers_again(shop):
    case = Case(shop)
    script = [[call("book", item="seat")], "done"] * 2
    assert case.run(script, twice=True, key="order-1").final_output == "done"
    case.world.assert_applied_once("seat")

"""The tools of a real MCP server, in a process of its own, behind AutoGen's own workbench."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams
from scripted import call

from agent_saga import SagaAborted, UndeclaredTool
from agent_saga_autogen import (
    SagaWorkbench,
    WorkbenchToolFailed,
    compensable,
    last_report,
    read_only,
    saga_agent,
    saga_run,
)

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]
FAILS = [call("fails", item="room")]
DOWN = OSError("the model is down")


@pytest.fixture
def declared(shop):
    return {
        "book": compensable(shop.undo),
        "fails": read_only(),
        "dies": compensable(shop.undo),
    }


def server(shop):
    file = str(Path(__file__).with_name("mcp_server.py"))
    params = StdioServerParams(
        command=sys.executable, args=[file, str(shop.world.path)], read_timeout_seconds=60
    )
    return McpWorkbench(params)


def run(shop, declared, *script, team=False, **options):
    async def case():
        async with server(shop) as bench:
            agent = shop.agent(*script, workbench=SagaWorkbench(bench, tools=declared))
            if team:
                agent = RoundRobinGroupChat([agent], max_turns=1)
            try:
                return await saga_run(saga_agent(agent, shop.kit), "go on", **options)
            finally:
                reports.append(last_report())

    reports = []
    try:
        return asyncio.run(case())
    finally:
        run.report = reports[-1]


@pytest.mark.parametrize("team", [False, True], ids=["agent", "team"])
class TestACallOfAServer:
    def test_is_a_step_and_stands_when_the_run_ends_well(self, shop, declared, team):
        result = run(shop, declared, SEAT, ROOM, "done", team=team)
        assert result.messages[-1].content == "done"
        shop.world.assert_applied_once("seat", "room")
        assert run.report.outcome == "COMMITTED"

    def test_is_undone_by_what_the_server_answered(self, shop, declared, team):
        with pytest.raises(SagaAborted):
            run(shop, declared, SEAT, ROOM, DOWN, team=team)
        assert shop.world.undone() == ["room", "seat"]
        shop.world.assert_restored()

    def test_that_failed_is_told_to_the_model(self, shop, declared, team):
        result = run(shop, declared, SEAT, FAILS, "done", team=team)
        [told] = [m for m in result.messages if m.type == "ToolCallExecutionEvent"][1].content
        assert told.is_error
        assert "no room" in told.content

    def test_that_failed_undoes_the_run_where_that_is_asked_for(self, shop, declared, team):
        with pytest.raises(SagaAborted) as aborted:
            run(shop, declared, SEAT, FAILS, "no", team=team, on_tool_failure="rollback")
        assert isinstance(aborted.value.cause, WorkbenchToolFailed)
        shop.world.assert_restored()


def test_a_call_whose_server_died_has_an_unknown_outcome(shop, declared):
    """The effect was made, and nobody answers any more."""
    result = run(shop, declared, SEAT, [call("dies", item="lost")], "done")
    [told] = [m for m in result.messages if m.type == "ToolCallExecutionEvent"][1].content
    assert told.is_error
    assert "lost" in [effect.name for effect in shop.world.standing()]
    assert not run.report.clean


def test_a_tool_of_a_server_that_nobody_declared_is_refused_before_the_run(shop, declared):
    del declared["dies"]
    with pytest.raises(UndeclaredTool, match="dies"):
        run(shop, declared, SEAT, "done")
    shop.world.assert_untouched()

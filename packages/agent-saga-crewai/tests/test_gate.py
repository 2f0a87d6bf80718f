"""The gate behind the tools: tools that come late or undeclared, and the user's own hooks."""

from __future__ import annotations

from contextlib import nullcontext
from typing import ClassVar

import pytest
from crewai import Agent, Crew, Task
from crewai.agent import core as agent_core
from crewai.flow.flow import Flow, start
from crewai.hooks.dispatch import (
    HookAborted,
    InterceptionPoint,
    clear_all,
    get_hooks,
    register,
    register_scoped,
    scoped_hooks,
)
from crewai.tools.memory_tools import RecallMemoryTool
from scripted import Scripted, call

from agent_saga import SagaAborted
from agent_saga.errors import UndeclaredTool
from agent_saga_crewai import last_report, saga_agent, saga_run_sync, wrap_tool

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]


class Late(Agent):
    """An agent that gets its tools only while it runs, as from an MCP server."""

    late: ClassVar[list] = []

    def create_agent_executor(self, tools=None, task=None):
        given = [*(tools or self.tools or []), *self.late]
        return super().create_agent_executor(tools=given, task=task)


def late_crew(shop, *script, native=True):
    agent = Late(
        role="clerk",
        goal="do it",
        backstory="you do",
        llm=Scripted.of(*script, native=native),
        max_retry_limit=0,
    )
    Late.late[:] = [shop.book]
    return Crew(agents=[agent], tasks=[Task(description="d", expected_output="e", agent=agent)])


STOPS = ["PRE_STEP"]
if HookAborted in agent_core._passthrough_exceptions:  # older versions hide it at these points
    STOPS += ["PRE_MODEL_CALL", "POST_TOOL_CALL"]


@pytest.mark.parametrize("point", STOPS)
def test_a_hook_of_the_user_stops_the_run_now(shop, point):
    seen = []

    def stops(_):
        seen.append(1)
        if len(seen) > (1 if point == "PRE_MODEL_CALL" else 0):
            raise HookAborted("enough")

    run = saga_agent(shop.crew(SEAT, ROOM, "done"), shop.kit, tools=shop.declared)
    with scoped_hooks(), pytest.raises(SagaAborted) as aborted:
        register_scoped(InterceptionPoint[point], stops)
        run.kickoff()
    assert isinstance(aborted.value.cause, HookAborted)
    assert shop.world.applications() <= 1
    shop.world.assert_restored()


@pytest.mark.guarantee("CREWAI-13")
@pytest.mark.parametrize("what", ["crew", "agent"])
def test_a_scope_of_hooks_inside_a_run_does_not_open_the_gate(shop, what):
    """The user's scope hides the one round it."""
    run = {
        "crew": late_crew(shop, SEAT, "done").akickoff,
        "agent": lambda: shop.agent(SEAT, "done").kickoff_async("go on"),
    }[what]

    class Scoped(Flow):
        @start()
        async def act(self):
            with scoped_hooks():
                return (await run()).raw

    with pytest.raises(SagaAborted) as aborted:
        saga_run_sync(Scoped(suppress_flow_events=True), kit=shop.kit)
    assert isinstance(aborted.value.cause, UndeclaredTool)
    shop.world.assert_untouched()


@pytest.fixture
def emptied():
    """Give what takes all hooks of the process away; they are put back afterwards."""
    before = {point: get_hooks(point) for point in InterceptionPoint}
    yield clear_all
    clear_all()
    for point, hooks in before.items():
        for hook in hooks:
            register(point, hook)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("policy", ["continue", "rollback"])
def test_a_wrapped_tool_is_called_once_where_all_hooks_were_taken_away(
    shop, emptied, native, hidden, policy
):
    shop.world.lose_answers(10)
    book = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)

    class Bare(Flow):
        @start()
        def act(self):
            emptied()
            with scoped_hooks() if hidden else nullcontext():
                return shop.crew(SEAT, "done", tools=[book], native=native).kickoff().raw

    flow = Bare(suppress_flow_events=True)
    if policy == "continue":
        assert saga_run_sync(flow, kit=shop.kit) == "done"
    else:
        with pytest.raises(SagaAborted) as aborted:
            saga_run_sync(flow, kit=shop.kit, on_tool_failure=policy)
        assert isinstance(aborted.value.cause, ConnectionError)
    assert not last_report().clean
    assert shop.world.attempts() == 1


def test_a_hook_of_the_user_blocks_one_call(shop):
    def blocks(context):
        return context.tool_input != {"item": "seat"}

    run = saga_agent(shop.crew(SEAT, ROOM, "done"), shop.kit, tools=shop.declared)
    with scoped_hooks():
        register_scoped(InterceptionPoint.PRE_TOOL_CALL, blocks)
        assert run.kickoff().raw == "done"
    shop.world.assert_applied_once("room")


@pytest.mark.parametrize("native", [True, False])
def test_a_tool_that_comes_while_a_crew_runs_is_a_step(shop, native):
    crew = late_crew(shop, SEAT, ROOM, ValueError("down"), native=native)
    run = saga_agent(crew, shop.kit, tools=shop.declared)
    with pytest.raises(SagaAborted) as aborted:
        run.kickoff()
    assert [line.tool for line in aborted.value.report.compensated] == ["book", "book"]
    shop.world.assert_restored()


@pytest.mark.guarantee("CREWAI-11")
@pytest.mark.parametrize("native", [True, False])
def test_a_tool_that_comes_undeclared_ends_the_run_before_its_call(shop, native):
    crew = late_crew(shop, SEAT, ROOM, "done", native=native)
    with pytest.raises(SagaAborted) as aborted:
        saga_agent(crew, shop.kit).kickoff()
    assert isinstance(aborted.value.cause, UndeclaredTool)
    shop.world.assert_untouched()


def test_a_tool_of_the_framework_itself_passes(shop):
    class Memory:
        def recall(self, *args, **kwargs):
            return []

    recall = RecallMemoryTool(name="search_memory", description="Search.", memory=Memory())
    crew = late_crew(shop, [call("search_memory", queries=["seat"])], "done")
    Late.late[:] = [recall]
    assert saga_agent(crew, shop.kit).kickoff().raw == "done"


def test_a_tool_that_does_not_exist_is_the_frameworks_affair(shop):
    crew = shop.crew([call("fly", item="seat")], SEAT, "done")
    assert saga_agent(crew, shop.kit, tools=shop.declared).kickoff().raw == "done"
    shop.world.assert_applied_once("seat")

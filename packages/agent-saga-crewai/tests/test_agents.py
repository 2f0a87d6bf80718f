"""Crews and agents under `saga_agent`: what they stay, their copies, tools that somebody forgot."""

from __future__ import annotations

import asyncio

import pytest
from crewai import Agent, Crew, Process, Task
from crewai.state.checkpoint_config import CheckpointConfig
from crewai.tools import tool
from scripted import Scripted, call

from agent_saga import (
    ConfigurationError,
    FileSwitchStore,
    Halted,
    KillSwitch,
    PreFlightGate,
    SagaAborted,
)
from agent_saga.errors import UndeclaredTool
from agent_saga_crewai import (
    SagaAgent,
    compensable,
    irreversible,
    last_report,
    read_only,
    saga_agent,
    saga_run,
    saga_run_sync,
    saga_stream,
    wrap_tool,
)
from agent_saga_testing.integration.driver import QUICK

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]


def test_a_crew_stays_what_it_was(shop):
    crew = shop.crew(SEAT, "done", crew={"name": "night"})
    run = saga_agent(crew, shop.kit, tools=shop.declared)
    assert isinstance(run, Crew)
    assert isinstance(run, SagaAgent)
    assert (run.name, run.agents, run.tasks) == ("night", crew.agents, crew.tasks)
    assert run.saga_kit is shop.kit
    assert run.kickoff().raw == "done"
    assert run.usage_metrics is not None
    assert run.tasks[0].output.raw == "done"
    assert crew.agents[0].tools[0].name == "book"
    assert type(run.saga_plain) is Crew


def test_every_copy_of_a_crew_is_a_saga_of_its_own(shop):
    script = [SEAT, "one", ROOM, ValueError("down"), [call("book", item="car")], "three"]
    crew = shop.crew(*script, max_retry_limit=0, task={"description": "go to {where}"})
    run = saga_agent(crew, shop.kit, tools=shop.declared)
    assert isinstance(run.copy(), SagaAgent)
    with pytest.raises(SagaAborted):
        run.kickoff_for_each([{"where": "a"}, {"where": "b"}, {"where": "c"}])
    shop.world.assert_stands("seat")
    assert shop.world.undone() == ["room"]
    [third] = run.kickoff_for_each([{"where": "c"}])
    assert third.raw == "three"
    shop.world.assert_stands("seat", "car")


def test_all_copies_of_a_crew_are_undone_inside_a_boundary(shop):
    crew = shop.crew(SEAT, "one", ROOM, ValueError("down"), max_retry_limit=0)
    run = saga_agent(crew, shop.kit, tools=shop.declared)
    with pytest.raises(SagaAborted), shop.kit.transaction():
        run.kickoff_for_each([{}, {}])
    shop.world.assert_restored()


@pytest.mark.parametrize("how", ["kickoff_for_each_async", "akickoff_for_each"])
def test_copies_of_a_crew_run_side_by_side(shop, how):
    crew = shop.crew(SEAT, ROOM, "one", "two")
    run = saga_agent(crew, shop.kit, tools=shop.declared)
    results = asyncio.run(getattr(run, how)([{}, {}]))
    assert len(results) == 2
    shop.world.assert_stands("seat", "room")


def test_an_agent_by_itself_is_a_boundary(shop):
    agent = shop.agent(SEAT, "done", SEAT, ValueError("down"), "done")
    run = saga_agent(agent, shop.kit, tools=shop.declared)
    assert isinstance(run, Agent)
    assert run.kickoff("go on").raw == "done"
    with pytest.raises(SagaAborted):
        run.kickoff("go on")
    shop.world.assert_stands("seat")
    assert asyncio.run(run.kickoff_async("go on")).raw == "done"
    with pytest.raises(ConfigurationError, match="message"):
        saga_run_sync(agent, kit=shop.kit)

    async def streamed():
        async for _ in saga_stream(agent, "go on", kit=shop.kit):
            pass

    with pytest.raises(ConfigurationError, match="does not stream"):
        asyncio.run(streamed())


def test_a_run_does_not_block_an_event_loop(shop):
    crew = saga_agent(shop.crew("done"), shop.kit, tools=shop.declared)
    agent = saga_agent(shop.agent(SEAT, "done"), shop.kit, tools=shop.declared)

    async def case():
        with pytest.raises(ConfigurationError, match="block the event loop"):
            crew.kickoff()
        return await agent.kickoff("go on")

    assert asyncio.run(case()).raw == "done"
    shop.world.assert_applied_once("seat")


@pytest.mark.guarantee("CREWAI-20")
def test_a_checkpoint_of_the_framework_is_not_restored_in_a_boundary(shop):
    crew = saga_agent(shop.crew(SEAT, "done"), shop.kit, tools=shop.declared)
    with pytest.raises(ConfigurationError, match="vouch"):
        crew.kickoff(from_checkpoint=CheckpointConfig(restore_from="somewhere.json"))
    shop.world.assert_untouched()


def test_an_agent_by_itself_that_is_guarded_repeats_no_effect(shop):
    said = []

    def second(output):
        said.append(output.raw)
        return len(said) > 1, output.raw if len(said) > 1 else "again"

    agent = shop.agent(SEAT, "one", SEAT, "two", SEAT, "three", guardrail=second)
    run = saga_agent(agent, shop.kit, tools=shop.declared)
    with shop.kit.transaction():
        assert run.kickoff("go on").raw == "two"
        shop.world.assert_applied_once("seat")
        assert run.kickoff("once more").raw == "three"
    assert shop.world.applications() == 2


def test_a_replayed_crew_is_a_boundary(shop):
    crew = shop.crew(SEAT, "done", ROOM, ValueError("down"), max_retry_limit=0)
    run = saga_agent(crew, shop.kit, tools=shop.declared)
    run.kickoff()
    with pytest.raises(SagaAborted):
        run.replay(str(crew.tasks[0].id))
    shop.world.assert_stands("seat")
    assert shop.world.undone() == ["room"]


def test_a_tool_that_nobody_declared_is_named_before_anything_runs(shop):
    crew = shop.crew(SEAT, "done")
    with pytest.raises(UndeclaredTool, match="book, fails"):
        saga_agent(crew, shop.kit)
    with pytest.raises(UndeclaredTool, match="book, fails"):
        saga_run_sync(crew, kit=shop.kit)
    shop.world.assert_untouched()


def test_work_that_is_delegated_is_in_the_same_saga(shop):
    helper = shop.agent(SEAT, "booked", role="helper")
    ask = call("delegate_work_to_coworker", task="book a seat", context="now", coworker="helper")
    chief = shop.agent([ask], ValueError("down"), tools=[], role="chief", max_retry_limit=0)
    chief.allow_delegation = True
    task = Task(description="go on", expected_output="a word", agent=chief)
    run = saga_agent(Crew(agents=[chief, helper], tasks=[task]), shop.kit, tools=shop.declared)
    with pytest.raises(SagaAborted) as aborted:
        run.kickoff()
    assert [line.tool for line in aborted.value.report.compensated] == ["book"]
    shop.world.assert_restored()


def test_a_managed_crew_is_a_boundary(shop):
    helper = shop.agent(SEAT, "booked", role="helper")
    ask = call("delegate_work_to_coworker", task="book a seat", context="now", coworker="helper")
    manager = shop.agent([ask], "all done", tools=[], role="chief")
    crew = Crew(
        agents=[helper],
        tasks=[Task(description="go on", expected_output="a word")],
        process=Process.hierarchical,
        manager_agent=manager,
    )
    assert saga_agent(crew, shop.kit, tools=shop.declared).kickoff().raw == "all done"
    shop.world.assert_applied_once("seat")


def test_a_manager_that_is_tried_again_repeats_no_effect(shop):
    helper = shop.agent(SEAT, "booked", SEAT, "booked", role="helper")
    ask = call("delegate_work_to_coworker", task="book a seat", context="now", coworker="helper")
    crew = Crew(
        agents=[helper],
        tasks=[Task(description="go on", expected_output="a word")],
        process=Process.hierarchical,
        manager_llm=Scripted.of([ask], ConnectionError("the network"), [ask], "all done"),
    )
    assert saga_agent(crew, shop.kit, tools=shop.declared).kickoff().raw == "all done"
    shop.world.assert_applied_once("seat")


def test_tasks_that_run_side_by_side_are_in_one_saga(shop):
    agents = [shop.agent(SEAT, "one", role="a"), shop.agent(ROOM, "two", role="b")]
    last = shop.agent(ValueError("down"), role="c", max_retry_limit=0)
    tasks = [
        Task(description="d", expected_output="e", agent=agent, async_execution=True)
        for agent in agents
    ]
    tasks.append(Task(description="d", expected_output="e", agent=last, context=tasks[:]))
    run = saga_agent(Crew(agents=[*agents, last], tasks=tasks), shop.kit, tools=shop.declared)
    with pytest.raises(SagaAborted):
        run.kickoff()
    assert sorted(shop.world.undone()) == ["room", "seat"]
    shop.world.assert_restored()


def test_a_halt_ends_the_run_and_is_no_text_for_the_model(shop):
    switch = KillSwitch(FileSwitchStore(shop.kit.runtime.wal.path))
    switch.halt("tool:book", reason="fraud", by="soc")
    with pytest.raises(SagaAborted) as aborted:
        saga_agent(shop.crew(SEAT, "done"), shop.kit, tools=shop.declared).kickoff()
    assert isinstance(aborted.value.cause, Halted)
    shop.world.assert_untouched()


def test_what_cannot_be_undone_is_refused_without_a_human(shop):
    crew = shop.crew(SEAT, "done")
    run = saga_agent(crew, shop.kit, tools={**shop.declared, "book": irreversible()})
    assert run.kickoff().raw == "done"
    assert "was refused and had no effect" in str(crew.agents[0].llm.seen[-1])
    shop.world.assert_untouched()


def test_what_does_not_fit_is_refused(shop, tmp_path):
    run = saga_agent(shop.crew("done"), shop.kit, tools=shop.declared)
    with pytest.raises(ConfigurationError, match="already"):
        saga_agent(run, shop.kit)
    with pytest.raises(ConfigurationError, match="takes a Crew"):
        saga_agent("crew", shop.kit)
    with pytest.raises(ConfigurationError, match="not str"):
        saga_run_sync("crew", kit=shop.kit)
    with pytest.raises(ConfigurationError, match="on_tool_failure"):
        saga_agent(shop.crew("done"), shop.kit, tools=shop.declared, on_tool_failure="ask")
    with pytest.raises(ConfigurationError, match="by name"):
        run.kickoff({}, {})
    with pytest.raises(ConfigurationError, match="which run"):
        run.kickoff(resume="yes")
    with pytest.raises(ConfigurationError, match="waits for none"):
        run.kickoff(key="new", resume="yes")
    with pytest.raises(SagaAborted, match="part of that saga"), shop.kit.transaction():
        run.kickoff(key="mine")
    gate = PreFlightGate()
    other = type(shop.kit)("other", wal=str(tmp_path / "other"), gate=gate, settings=QUICK)
    with pytest.raises(SagaAborted, match="another kit"), shop.kit.transaction():
        saga_run_sync(shop.crew("done", tools=[]), kit=other)


def test_a_run_that_can_be_gone_on_with_needs_named_inverses(shop):
    unnamed = compensable(lambda result: shop.cancel.compensation(result["id"]))
    crew = shop.crew(SEAT, "done")
    run = saga_agent(crew, shop.kit, tools={**shop.declared, "book": unnamed})
    with pytest.raises(SagaAborted, match="its inverse has no name"):
        run.kickoff(key="order-1")
    shop.world.assert_untouched()


def test_runs_side_by_side_keep_to_their_own(shop):
    crews = [
        saga_agent(
            shop.crew(SEAT, ValueError("down"), max_retry_limit=0), shop.kit, tools=shop.declared
        ),
        saga_agent(shop.crew(ROOM, "done"), shop.kit, tools=shop.declared),
    ]

    async def case():
        return await asyncio.gather(*(crew.akickoff() for crew in crews), return_exceptions=True)

    failed, done = asyncio.run(case())
    assert isinstance(failed, SagaAborted)
    assert done.raw == "done"
    shop.world.assert_stands("room")


def test_the_same_tool_for_two_agents_is_wrapped_once(shop):
    agents = [shop.agent("one", role="a"), shop.agent("two", role="b")]
    tasks = [Task(description="d", expected_output="e", agent=agent) for agent in agents]
    saga_agent(Crew(agents=agents, tasks=tasks), shop.kit, tools=shop.declared)
    assert agents[0].tools[0] is agents[1].tools[0] is tasks[0].tools[0]


def test_a_tool_that_is_cancelled_by_itself_is_a_failure(shop):
    @tool
    async def stops(item: str) -> str:
        """Stop."""
        raise asyncio.CancelledError

    stops = wrap_tool(stops, semantics="REVERSIBLE", kit=shop.kit)
    crew = shop.crew([call("stops", item="x")], "done", tools=[stops])
    assert asyncio.run(saga_run(crew, kit=shop.kit)).raw == "done"


def test_a_read_is_declared_where_it_is_a_read(shop):
    run = saga_agent(
        shop.crew(SEAT, "done"), shop.kit, tools={**shop.declared, "book": read_only()}
    )
    run.kickoff()
    assert last_report() is None or not last_report().compensated

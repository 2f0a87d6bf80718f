"""Streamed runs: kept when they are taken to their end, undone when they are closed early."""

from __future__ import annotations

import pytest
from scripted import call

from agent_saga import ConfigurationError, SagaAborted
from agent_saga_crewai import (
    Waiting,
    ask_human,
    last_report,
    saga_agent,
    saga_run_sync,
    saga_stream_sync,
    saga_tool,
)

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]


def test_a_crew_that_streams_is_a_boundary_while_its_items_are_taken(shop):
    crew = shop.crew(SEAT, ValueError("down"), max_retry_limit=0, crew={"stream": True})
    run = saga_agent(crew, shop.kit, tools=shop.declared)
    output = run.kickoff()
    with pytest.raises(SagaAborted):
        list(output)
    shop.world.assert_restored()
    with pytest.raises(ConfigurationError, match="saga_stream"):
        saga_run_sync(crew, kit=shop.kit)


def test_a_stream_without_an_event_loop(shop):
    crew = shop.crew(SEAT, "done")
    saga_agent(crew, shop.kit, tools=shop.declared)
    chunks = list(saga_stream_sync(crew, kit=shop.kit))
    assert {chunk.content for chunk in chunks} == {"…"}
    assert last_report().outcome == "COMMITTED"
    assert crew.stream is False
    assert crew.tasks[0].output.raw == "done"
    items = saga_stream_sync(
        shop.crew(SEAT, ROOM, "done", tools=crew.agents[0].tools), kit=shop.kit
    )
    before = shop.world.applications()
    for _ in items:
        if shop.world.applications() > before:
            break
    items.close()
    assert last_report().outcome == "ROLLED_BACK"
    shop.world.assert_stands("seat")


def test_a_stream_of_a_run_that_waits_ends_with_what_it_waits_for(shop):
    @saga_tool("REVERSIBLE", kit=shop.kit)
    def ask(question: str) -> str:
        """Ask a human."""
        return ask_human(question)

    def crew(*script):
        return saga_agent(shop.crew(*script, tools=[ask]), shop.kit)

    items = list(saga_stream_sync(crew([call("ask", question="now?")]), kit=shop.kit, key="1"))
    assert isinstance(items[-1], Waiting)
    assert items[-1].question["text"] == "now?"
    rest = list(saga_stream_sync(crew("done"), kit=shop.kit, key="1", resume="yes"))
    assert not any(isinstance(item, Waiting) for item in rest)
    assert last_report().outcome == "COMMITTED"

"""What is told of sagas on CrewAI's event bus."""

from __future__ import annotations

from collections import Counter

import pytest
from crewai.events import crewai_event_bus
from crewai.events.event_context import get_current_parent_id
from scripted import call

from agent_saga import SagaAborted
from agent_saga_crewai import SagaEndedEvent, SagaEventListener, ask_human, saga_agent, saga_tool


def test_steps_waits_and_ends_are_told(shop):
    told, ends = [], []

    @saga_tool("REVERSIBLE", kit=shop.kit)
    def ask(question: str) -> str:
        """Ask a human."""
        return ask_human(question)

    def crew(*script):
        made = shop.crew(*script, tools=[shop.book, ask], max_retry_limit=0)
        return saga_agent(made, shop.kit, tools=shop.declared)

    with crewai_event_bus.scoped_handlers():
        SagaEventListener(told.append)
        crewai_event_bus.register_handler(SagaEndedEvent, lambda _, event: ends.append(event))
        crew([call("book", item="seat")], [call("ask", question="now?")]).kickoff(key="1")
        with pytest.raises(SagaAborted):
            crew(ValueError("down")).kickoff(key="1", resume="yes")
        crewai_event_bus.flush()
    said = [(one["event"], one.get("tool"), one.get("ended")) for one in told]
    wanted = [
        ("saga_step", "book", "well"),
        ("saga_step", "ask", "HumanAsked"),
        ("saga_paused", None, None),
        ("saga_step", "book", "well"),
        ("saga_step", "ask", "well"),
        ("saga_ended", None, None),
    ]
    assert Counter(said) == Counter(wanted)  # on threads, in no promised order
    assert [one["arguments"] for one in told if one.get("tool") == "book"] == [["item"]] * 2
    assert [one["waits"]["text"] for one in told if one["event"] == "saga_paused"] == ["now?"]
    [end] = ends
    assert (end.outcome, end.clean, end.undone) == ("ROLLED_BACK", True, ["book"])


def test_runs_that_were_ended_leave_no_scope_of_events_open(shop):
    """CrewAI leaves one open for each, and refuses to begin anything in the hundredth."""

    def ended():
        crew = shop.crew([call("fails", item="x")], "done")
        run = saga_agent(crew, shop.kit, tools=shop.declared, on_tool_failure="rollback")
        with pytest.raises(SagaAborted, match="no such item"):
            run.kickoff()

    ended()
    before = get_current_parent_id()
    ended()
    assert get_current_parent_id() == before


def test_a_listener_that_fails_changes_nothing(shop):
    with crewai_event_bus.scoped_handlers():
        SagaEventListener(lambda _: 1 / 0)
        run = saga_agent(shop.crew([call("book", item="seat")]), shop.kit, tools=shop.declared)
        assert run.kickoff().raw == "done"
        crewai_event_bus.flush()
    shop.world.assert_applied_once("seat")

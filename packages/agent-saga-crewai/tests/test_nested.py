"""Crews, flows and calls inside a tool, when the agent that calls it is asked again."""

from __future__ import annotations

import pytest
from crewai import Crew, Task
from crewai.flow.flow import Flow, start
from crewai.tools import tool
from scripted import call, once_more

from agent_saga import AgentKit, Approval, PreFlightGate
from agent_saga_crewai import irreversible, read_only, saga_agent, saga_run_sync, wrap_tool
from agent_saga_testing.integration.driver import QUICK

SEAT = [call("book", item="seat")]
DELEGATE = [call("delegate", item="seat")]


def delegating(body):
    """Return a tool that changes nothing itself, and what it is declared to be."""

    @tool
    def delegate(item: str) -> str:
        """Let others do it."""
        return str(body(item))

    return delegate, {"delegate": read_only()}


def crew_in(shop, item):
    return saga_agent(shop.crew(SEAT, "done"), shop.kit, tools=shop.declared).kickoff().raw


def flow_in(shop, item):
    book = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)

    class Trip(Flow):
        @start()
        def reserve(self):
            return book.run(item=item)

    return saga_run_sync(Trip(suppress_flow_events=True), kit=shop.kit)


def call_in(shop, item):
    return wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit).run(item=item)


BODIES = [crew_in, flow_in, call_in]


@pytest.mark.guarantee("CREWAI-1")
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("again", ["guardrail", "model"])
def test_what_is_in_a_tool_that_is_called_again_is_not_repeated(shop, body, again):
    delegate, declared = delegating(lambda item: body(shop, item))
    between = "first" if again == "guardrail" else ConnectionError("the network")
    task = once_more() if again == "guardrail" else {}
    crew = shop.crew(DELEGATE, between, DELEGATE, "second", tools=[delegate], task=task)
    assert saga_agent(crew, shop.kit, tools=declared).kickoff().raw == "second"
    shop.world.assert_applied_once("seat")


@pytest.mark.parametrize("body", BODIES)
def test_what_a_new_attempt_does_beyond_the_earlier_one_is_done(shop, body):
    delegate, declared = delegating(lambda item: body(shop, item))
    script = [DELEGATE, "first", DELEGATE, DELEGATE, "second"]
    crew = shop.crew(*script, tools=[delegate], task=once_more())
    saga_agent(crew, shop.kit, tools=declared).kickoff()
    shop.world.assert_stands("seat", "seat")


def test_what_another_agents_tool_did_is_not_taken_for_it(shop):
    delegate, declared = delegating(lambda item: crew_in(shop, item))
    first = shop.agent(DELEGATE, "one", tools=[delegate], role="first")
    other = shop.agent(DELEGATE, "one", DELEGATE, DELEGATE, "two", tools=[delegate], role="other")
    tasks = [
        Task(agent=agent, description="go on", expected_output="a word", **options)
        for agent, options in ((first, {}), (other, once_more()))
    ]
    saga_agent(Crew(agents=[first, other], tasks=tasks), shop.kit, tools=declared).kickoff()
    shop.world.assert_stands("seat", "seat", "seat")


def test_money_that_an_undone_crew_had_wired_is_not_wired_again(shop):
    class Yes:
        def ask(self, request):
            return Approval(approved=True, by="ann")

    gate = PreFlightGate(approval_provider=Yes())
    kit = AgentKit("wires", wal=str(shop.folder / "wires"), gate=gate, settings=QUICK)

    def inner(item):
        @tool
        def wire(item: str) -> dict:
            """Wire money."""
            return shop.world.do(item)

        crew = shop.crew(
            [call("wire", item="money")], ValueError("down"), tools=[wire], max_retry_limit=0
        )
        return saga_agent(crew, kit, tools={"wire": irreversible()}).kickoff().raw

    delegate, declared = delegating(inner)
    crew = shop.crew(DELEGATE, "first", DELEGATE, "second", tools=[delegate], task=once_more())
    assert saga_agent(crew, kit, tools=declared).kickoff().raw == "second"
    assert shop.world.applications(name="money") == 1


def test_two_crews_one_after_the_other_are_two(shop):
    class Twice(Flow):
        @start()
        def both(self):
            return [crew_in(shop, "seat") for _ in range(2)]

    saga_run_sync(Twice(suppress_flow_events=True), kit=shop.kit)
    shop.world.assert_stands("seat", "seat")

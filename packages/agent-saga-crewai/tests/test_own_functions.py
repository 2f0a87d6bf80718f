"""Functions of the kit that the body of a tool calls, when CrewAI tries the tool's task again."""

from __future__ import annotations

import pytest
from crewai.tools import tool
from scripted import call, once_more

from agent_saga import SagaAborted
from agent_saga_crewai import compensable, last_report, read_only, saga_agent, wrap_tools


@pytest.fixture
def delegate(shop):
    """Return a tool that leaves its work to functions of the kit."""
    book = shop.kit.tool("COMPENSABLE", compensate=shop.undo)(shop.book.func)

    @tool
    def delegate(item: str) -> str:
        """Let others do it."""
        return f"{book(item)['id']} {book(item)['id']} {book('lunch')['id']}"

    return delegate


DELEGATES = [call("delegate", item="seat")]


@pytest.mark.guarantee("CREWAI-7")
@pytest.mark.parametrize("declared", ["reads", "is undone"])
def test_a_task_that_is_tried_again_repeats_none(shop, delegate, declared):
    about = read_only() if declared == "reads" else compensable(lambda: None)
    crew = shop.crew(DELEGATES, "1st", DELEGATES, "2nd", tools=[delegate], task=once_more())
    saga_agent(crew, shop.kit, tools={"delegate": about}).kickoff()
    assert last_report().clean
    shop.world.assert_stands("seat", "seat", "lunch")


def test_a_second_call_in_one_attempt_is_another_one(shop, delegate):
    crew = shop.crew(DELEGATES, DELEGATES, "done", tools=[delegate])
    saga_agent(crew, shop.kit, tools={"delegate": read_only()}).kickoff()
    shop.world.assert_stands("seat", "seat", "lunch", "seat", "seat", "lunch")


def test_one_that_fails_for_good_undoes_each_once(shop, delegate):
    gone = [RuntimeError("the model is gone")] * 9
    script = (DELEGATES, "1st", DELEGATES, *gone)
    crew = shop.crew(*script, tools=[delegate], task=once_more())
    with pytest.raises(SagaAborted) as failed:
        saga_agent(crew, shop.kit, tools={"delegate": read_only()}).kickoff()
    assert failed.value.report.clean
    assert sorted(shop.world.undone()) == ["lunch", "seat", "seat"]


@pytest.mark.guarantee("CREWAI-8")
@pytest.mark.parametrize("wrapped", [True, False])
def test_nor_does_a_crew_that_is_run_by_its_own_kickoff(shop, delegate, wrapped):
    tools = wrap_tools([delegate], {"delegate": read_only()}) if wrapped else [delegate]
    crew = shop.crew(DELEGATES, "1st", DELEGATES, "2nd", tools=tools, task=once_more())
    with shop.kit.transaction():
        assert crew.kickoff().raw == "2nd"
    shop.world.assert_stands("seat", "seat", "lunch")


def test_what_the_program_calls_beside_the_tools_is_called_as_often_as_it_says(shop, delegate):
    book = shop.kit.tool("COMPENSABLE", compensate=shop.undo, name="note")(shop.book.func)
    said = []

    def guardrail(output):
        said.append(book("note"))
        return len(said) > 1, output.raw

    crew = shop.crew(DELEGATES, "1st", "2nd", tools=[delegate], task={"guardrail": guardrail})
    with shop.kit.transaction():
        crew.kickoff()
    shop.world.assert_stands("seat", "seat", "lunch", "note", "note")

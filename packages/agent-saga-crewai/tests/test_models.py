"""The models of runs that can be gone on with: what is recorded, and what is asked again."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from crewai.tools import tool
from pydantic import BaseModel
from scripted import Scripted, call

from agent_saga import SagaAborted
from agent_saga.errors import ReplayConflict
from agent_saga_crewai import ask_human, last_report, saga_agent, saga_tool
from agent_saga_crewai.models import once, sharing, to_record, watched
from agent_saga_crewai.place import call_of, digest_of

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]
ASK = [call("ask", question="now?")]


@pytest.fixture
def crew(shop):
    @saga_tool("REVERSIBLE", kit=shop.kit)
    def ask(question: str) -> str:
        """Ask a human."""
        return ask_human(question)

    def made(*script, **options):
        plain = shop.crew(*script, tools=[shop.book, ask], max_retry_limit=0, **options)
        return saga_agent(plain, shop.kit, tools=shop.declared)

    return made


@pytest.mark.guarantee("CREWAI-4")
def test_a_model_is_asked_once_for_each_question(shop, crew):
    crew(SEAT, ASK).kickoff(key="1")
    last = crew("done")
    last.kickoff(key="1", resume="yes")
    assert len(last.agents[0].llm.seen) == 1
    assert "yes" in str(last.agents[0].llm.seen[0])
    crew().kickoff(key="1")
    shop.world.assert_applied_once("seat")


def test_an_answer_with_a_secret_is_asked_for_again(shop, crew):
    """The log masks it, so it is not given again; an equal call is still the recorded step."""
    secret = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"
    told = [call("book", item="seat", id="c1"), call("ask", question=secret)]
    crew(ROOM, told).kickoff(key="1")
    assert last_report().outcome == "SUSPENDED"
    again = crew(told, "done")
    again.kickoff(key="1", resume="yes")
    assert len(again.agents[0].llm.seen) == 2
    shop.world.assert_applied_once("seat", "room")


@pytest.mark.guarantee("CREWAI-3")
def test_a_run_that_takes_another_way_is_undone(shop, crew):
    crew(SEAT, ASK).kickoff(key="1")
    other = {"description": "go on, it is another day"}
    with pytest.raises(SagaAborted) as aborted:
        crew(ROOM, "done", task=other).kickoff(key="1", resume="yes")
    assert isinstance(aborted.value.cause, ReplayConflict)
    shop.world.assert_restored()


@pytest.mark.guarantee("CREWAI-2")
def test_a_run_whose_question_changed_meets_its_steps_by_what_they_are(shop, crew):
    crew(SEAT, ROOM, ASK).kickoff(key="1")
    other = {"description": "go on, it is another day"}
    crew(ROOM, SEAT, ASK, "done", task=other).kickoff(key="1", resume="yes")
    assert last_report().outcome == "COMMITTED"
    shop.world.assert_applied_once("seat", "room")


def test_an_attempt_that_failed_before_the_wait_is_not_repeated(shop, crew):
    plain = crew(SEAT, ConnectionError("the network"), SEAT, ROOM, ASK)
    plain.agents[0].max_retry_limit = 2
    plain.kickoff(key="1")
    shop.world.assert_applied_once("seat", "room")
    crew(ROOM, ASK, "done").kickoff(key="1", resume="yes")
    assert last_report().outcome == "COMMITTED"
    shop.world.assert_applied_once("seat", "room")


class Form(BaseModel):
    seat: int


def test_a_model_that_is_asked_on_the_loop_is_recorded_too(shop):
    """CrewAI's crews ask on a thread; code of a flow may await a model."""
    asked = []

    class Async(Scripted):
        async def acall(self, messages, *args, **kwargs):
            asked.append(messages)
            return Form(seat=7) if kwargs.get("response_model") else "seven"

    from crewai.flow.flow import Flow, start

    from agent_saga_crewai import saga_run

    agent = SimpleNamespace(llm=Async(model="scripted"))
    watched(agent)
    watched(agent)

    class Asks(Flow):
        @start()
        async def ask(self):
            question = [{"role": "user", "content": "which seat?"}]
            form = await agent.llm.acall(question, response_model=Form)
            return form.seat, await agent.llm.acall([{"role": "user", "content": "say it"}])

    for _ in range(2):
        flow = Asks(suppress_flow_events=True)
        assert asyncio.run(saga_run(flow, kit=shop.kit, key="1")) == (7, "seven")
    assert len(asked) == 2
    assert asyncio.run(agent.llm.acall("hi")) == "seven"


def test_a_model_stays_what_it_is():
    model = Scripted.of("hello")
    agent = SimpleNamespace(llm=model)
    watched(agent)
    assert isinstance(agent.llm, Scripted)
    assert agent.llm.call([{"role": "user", "content": "hi"}]) == "hello"
    assert model.seen == agent.llm.seen
    assert sharing(agent.llm, Scripted).seen is model.seen


ANTHROPIC = SimpleNamespace(id="t1", name="book", input={"item": "seat"})
GEMINI = SimpleNamespace(function_call=None, name="book", args={"item": "seat"})
OPENAI = SimpleNamespace(id="t1", function=SimpleNamespace(name="book", arguments='{"item": "a"}'))


@pytest.mark.parametrize("given", [ANTHROPIC, GEMINI, OPENAI, call("book", id="t1", item="a")])
def test_a_call_is_read_in_whatever_form_a_model_gives_it(given):
    _, name, arguments = call_of(given)
    assert name == "book"
    assert "item" in arguments
    [plain] = to_record([given])["calls"]
    assert plain["function"] == {"name": name, "arguments": arguments}


@pytest.mark.guarantee("CREWAI-5")
def test_a_call_without_an_id_is_never_taken_for_another_one():
    assert len(once([GEMINI, GEMINI])) == 2
    assert len(once([OPENAI, OPENAI])) == 1
    assert once("text") == "text"


def test_a_question_is_known_by_what_it_says_and_not_by_ids():
    def asked(key):
        said = {"role": "assistant", "content": None, "tool_calls": [call("book", key, item="a")]}
        return [{"role": "user", "content": "go"}, said]

    assert digest_of(asked("one")) == digest_of(asked("two"))
    assert digest_of(asked("one")) != digest_of(asked("one")[:1])
    assert digest_of("go") != digest_of("stop")


def test_a_planner_is_asked_once_although_it_is_told_where_tools_lie_in_memory(shop):
    plan = {"task_number": 1, "task": "go on", "plan": ", slowly"}
    said = json.dumps({"list_of_plans_per_task": [plan]})

    def crew(planner, *script):
        @tool
        def book(item: str) -> dict:
            """Book an item."""
            return shop.world.do(item)

        planning = {"planning": True, "planning_llm": planner}
        plain = shop.crew(*script, tools=[book, shop.fails], crew=planning)
        return saga_agent(plain, shop.kit, tools=shop.declared)

    assert crew(Scripted.of(said), SEAT, "done").kickoff(key="1").raw == "done"
    again = Scripted.of(OSError("the planner is not asked again"))
    assert crew(again).kickoff(key="1").raw == "done"
    assert not again.seen
    shop.world.assert_applied_once("seat")

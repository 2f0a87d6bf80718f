"""What a session of the SDK holds of a run that was undone, and calls that the SDK cannot read."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from agents import Agent, Runner, SQLiteSession, function_tool
from openai.types.responses import ResponseFunctionToolCall
from scripted import Scripted, call

from agent_saga import SagaAborted
from agent_saga_openai_agents import last_report, read_only, saga_agent, saga_run, saga_stream

SEAT = [call("book", "c1", item="seat")]


@pytest.fixture
def session(shop):
    with closing(SQLiteSession("one", shop.folder / "session.sqlite")) as made:
        yield made


def agent_of(shop, script, tools=None):
    return Agent(name="A", model=Scripted(script), tools=tools or [shop.book, shop.fails])


def bounded(shop, script, **options):
    return saga_agent(agent_of(shop, script), shop.kit, tools=shop.declared, **options)


async def streamed(agent, session):
    async for _ in saga_stream(agent, "go on", session=session):
        pass


async def ran(agent, session):
    await saga_run(agent, "go on", session=session)


def told(session):
    items = asyncio.run(session.get_items())
    return [item["content"] for item in items if item.get("role") == "system"]


class TestASession:
    def test_of_the_bare_framework_keeps_what_a_failed_run_did(self, shop, session):
        with pytest.raises(OSError, match="down"):
            asyncio.run(Runner.run(agent_of(shop, [SEAT, OSError("down")]), "go", session=session))
        kept = [item.get("type") for item in asyncio.run(session.get_items())]
        assert kept[1:] == ["function_call", "function_call_output"]

    @pytest.mark.parametrize("run", [ran, streamed])
    def test_is_told_behind_it_that_it_was_undone(self, shop, session, run):
        with pytest.raises(SagaAborted):
            asyncio.run(run(bounded(shop, [SEAT, OSError("down")]), session))
        shop.world.assert_restored()
        [said] = told(session)
        assert said.startswith("The run before this message failed")
        assert said.endswith(" Undone: book.")
        asyncio.run(run(bounded(shop, [SEAT, "done"]), session))
        shop.world.assert_stands("seat")
        assert len(told(session)) == 1

    def test_is_told_what_may_stand(self, shop, session):
        shop.world.lose_answers(1)
        agent = bounded(shop, [SEAT, OSError("down")], on_tool_failure="rollback")
        with pytest.raises(SagaAborted):
            asyncio.run(ran(agent, session))
        assert told(session)[0].endswith(" May still stand: book.")

    def test_is_told_nothing_where_nothing_was_done(self, shop, session):
        with pytest.raises(SagaAborted):
            asyncio.run(ran(bounded(shop, [OSError("down")]), session))
        asyncio.run(ran(bounded(shop, [SEAT, "done"]), session))
        assert told(session) == []

    def test_that_cannot_be_told_hides_no_error(self, shop, session, monkeypatch, caplog):
        add = session.add_items

        async def refuses(items):
            if items[0].get("role") == "system":
                raise OSError("the disk is full")
            await add(items)

        monkeypatch.setattr(session, "add_items", refuses)
        with pytest.raises(SagaAborted, match="down"):
            asyncio.run(ran(bounded(shop, [SEAT, OSError("down")]), session))
        shop.world.assert_restored()
        assert "the session could not be told" in caplog.text


@pytest.mark.parametrize("text", ["{no json", "[1]", ""])
def test_arguments_that_nobody_can_read_make_no_run_wait(shop, text):
    """The SDK lets such a call wait for a human where a function says whether calls must."""
    bad = ResponseFunctionToolCall(
        id="c1", call_id="c1", type="function_call", name="book", arguments=text
    )

    async def case():
        result = await saga_run(bounded(shop, [[bad], "done"]), "go on")
        return result.final_output, result.interruptions, last_report().clean

    assert asyncio.run(case()) == ("done", [], True)
    assert shop.world.calls() == []


def test_a_tool_ends_the_program_where_the_framework_is_run_in_a_transaction(shop):
    @function_tool
    async def quits() -> str:
        """End the program."""
        raise SystemExit("all")

    agent = agent_of(shop, [SEAT, [call("quits", "c2")], "done"], [shop.book, quits])
    agent = saga_agent(agent, shop.kit, tools={"book": shop.declared["book"], "quits": read_only()})

    async def case():
        async with shop.kit.transaction():
            await Runner.run(agent, "go on")

    with pytest.raises(SystemExit, match="all"):
        asyncio.run(case())
    shop.world.assert_restored()

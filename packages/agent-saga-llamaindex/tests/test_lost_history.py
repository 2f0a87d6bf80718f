"""Runs that are begun again under their key: what they did stands, and their history is lost.

The model is asked from the beginning, and calls its tools under new ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from drivers import asks
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import (
    Context,
    Event,
    HumanResponseEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from pydantic import BaseModel
from scripted import Scripted, call

from agent_saga import SagaAborted, SagaClosed, compensator
from agent_saga.errors import ResultNotRecorded
from agent_saga_llamaindex import (
    Waiting,
    compensable,
    read_only,
    saga_agent,
    saga_run,
    wrap_tool,
)

ASKS = call("ask", question="shall I?")


class Ticket(BaseModel):
    """A result that LlamaIndex can put away, and no log can give again as it was."""

    id: object


@pytest.fixture
def desk(shop):
    def ticket(item: str) -> Ticket:
        """Buy a ticket."""
        return Ticket(id=shop.world.do(item)["id"])

    shop.tools = [
        shop.book,
        shop.fails,
        FunctionTool.from_defaults(ticket),
        FunctionTool.from_defaults(asks()),
    ]
    shop.declared |= {"ticket": compensable(shop.undo), "ask": read_only()}
    return shop


def run(desk, *script, kind=None, given="go on", **options):
    agent = desk.agent(*script, tools=desk.tools)
    if kind is not None:
        agent = kind(llm=Scripted.of(*script, native=False), tools=desk.tools, streaming=False)
    bounded = saga_agent(agent, desk.kit, tools=desk.declared)
    return asyncio.run(saga_run(bounded, given, **options))


@pytest.mark.guarantee("LLAMAINDEX-1")
def test_a_run_that_waited_and_is_begun_again_repeats_no_effect(desk):
    seat = call("book", item="seat")
    assert isinstance(run(desk, [seat], [ASKS], key="k"), Waiting)
    assert isinstance(run(desk, [call("book", item="seat")], [ASKS], key="k"), Waiting)
    desk.world.assert_applied_once("seat")


def test_a_result_that_cannot_be_given_again_ends_the_run(desk):
    assert isinstance(run(desk, [call("ticket", item="seat")], [ASKS], key="k"), Waiting)
    again = [call("ticket", item="seat")], [call("ticket", item="seat")], "done"
    with pytest.raises(SagaAborted) as failed:
        run(desk, *again, key="k")
    assert isinstance(failed.value.cause, ResultNotRecorded)
    desk.world.assert_never_twice()
    desk.world.assert_restored()


@pytest.mark.guarantee("LLAMAINDEX-2")
def test_what_an_undone_agent_had_to_keep_is_not_done_again(desk):
    """An inner agent booked, failed, and its booking could not be taken back."""

    @compensator("shop.stuck")
    def stuck(effect):
        raise RuntimeError("it cannot be taken back")

    ids = iter(range(100))

    def outer(*turns):
        async def delegate(item: str) -> str:
            """Let another agent do it."""
            script = [[call("book", item="seat")], ValueError("the inner model is down")]
            inner = desk.agent(*script, tools=[desk.book])
            declared = {"book": compensable(stuck.using(effect="$.id"))}
            with contextlib.suppress(SagaAborted):
                await saga_run(saga_agent(inner, desk.kit, tools=declared), f"go {next(ids)}")
            return item

        tools = [*desk.tools, FunctionTool.from_defaults(delegate)]
        declared = {**desk.declared, "delegate": read_only()}
        agent = desk.agent(*turns, tools=tools)
        return saga_agent(agent, desk.kit, tools=declared)

    asyncio.run(saga_run(outer([call("delegate", item="x")], [ASKS]), "go on", key="k"))
    assert desk.world.applications(name="seat") == 1
    again = [call("fails", item="y")], [call("delegate", item="x")], "done"
    with contextlib.suppress(SagaAborted):
        asyncio.run(saga_run(outer(*again), "go on", key="k"))
    desk.world.assert_applied_once("seat")


def test_an_agent_that_calls_by_text_waits_and_is_gone_on_with_once(desk):
    seat = call("book", item="seat")
    waiting = run(desk, [seat], [ASKS], kind=ReActAgent)
    assert isinstance(waiting, Waiting)
    context = json.dumps(waiting.context)
    yes = {"kind": ReActAgent, "given": HumanResponseEvent(response="yes")}
    room = [call("book", item="room")], "done"
    assert str(run(desk, *room, ctx=json.loads(context), **yes)) == "done"
    with pytest.raises(SagaClosed, match="COMMITTED"):
        run(desk, *room, ctx=json.loads(context), **yes)
    desk.world.assert_applied_once("seat", "room")


class Work(Event):
    item: str


@pytest.mark.parametrize("key", [None, "k"])
def test_a_context_that_was_taken_in_a_run_that_was_then_kept_is_not_gone_on_with(desk, key):
    taken = []
    book = wrap_tool(desk.book, compensate=desk.undo, kit=desk.kit)

    class Trip(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Work:
            await book.acall(item="seat")
            return Work(item="room")

        @step
        async def end(self, ctx: Context, ev: Work) -> StopEvent:
            await book.acall(item=ev.item)
            taken.append(json.dumps(self.context.to_dict()))
            return StopEvent(result="done")

    async def go(context=None):
        work = Trip()
        work.context = context = Context(work) if context is None else context
        return await saga_run(work, ctx=context, kit=desk.kit, key=key)

    assert asyncio.run(go()) == "done"
    assert json.loads(taken[0])["is_running"]
    with pytest.raises(SagaClosed, match="COMMITTED"):
        asyncio.run(go(json.loads(taken[0])))
    desk.world.assert_applied_once("seat", "room")

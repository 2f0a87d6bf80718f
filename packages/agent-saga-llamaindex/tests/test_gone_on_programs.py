"""Programs that go on with their boundary: what runs did in it is met again, or undone."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from scripted import call

from agent_saga import SagaAborted, SagaSuspended
from agent_saga.errors import ReplayConflict
from agent_saga_llamaindex import saga_agent, saga_run, saga_tool


async def under_care(shop, *items):
    script = [*([call("book", item=item)] for item in items), "done"]
    agent = saga_agent(shop.agent(*script), shop.kit, tools=shop.declared)
    await saga_run(agent, user_msg="go on")


async def bare(shop, *items):
    tool = saga_tool(shop.do, compensate=shop.undo, name="book", kit=shop.kit)

    class Trip(Workflow):
        @step
        async def act(self, ev: StartEvent) -> StopEvent:
            for item in items:
                await tool.acall(item=item)
            return StopEvent(result="done")

    await Trip(timeout=None).run()


async def gone_on_with(shop, run, *parts):
    """Run a program that is left after each run but the last, and gone on with."""
    for number, items in enumerate(parts, 1):
        with contextlib.suppress(SagaSuspended):
            async with shop.kit.transaction(saga_id="p", resume=True, suspendable=True) as saga:
                await run(shop, *items)
                if number < len(parts):
                    saga.suspend("the program is left here")
    return saga


RUNS = [
    pytest.param(under_care, marks=pytest.mark.guarantee("LLAMAINDEX-21")),
    pytest.param(bare, marks=pytest.mark.guarantee("LLAMAINDEX-22")),
]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("items", [["room"], [], ["seat"]])
def test_one_of_whose_runs_goes_another_way_is_undone(shop, run, items):
    with pytest.raises(SagaAborted) as failed:
        asyncio.run(gone_on_with(shop, run, ["seat", "seat"], items))
    assert isinstance(failed.value.cause, ReplayConflict)
    assert failed.value.report.clean
    shop.world.assert_stands()


@pytest.mark.parametrize("run", [under_care, bare])
def test_one_whose_runs_go_the_same_way_is_committed(shop, run):
    report = asyncio.run(gone_on_with(shop, run, ["seat"], ["seat"], ["seat", "room"])).report
    assert (report.outcome, report.clean) == ("COMMITTED", True)
    shop.world.assert_applied_once("seat", "room")

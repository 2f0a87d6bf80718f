"""Programs that go on with their boundary: what runs did in it is met again, or undone."""

from __future__ import annotations

import contextlib

import pytest
from scripted import call

from agent_saga import SagaAborted, SagaSuspended
from agent_saga.errors import ReplayConflict
from agent_saga_crewai import saga_agent, wrap_tools


def under_care(shop, item, *script):
    """Run a crew whose answers of the model are recorded: another task has others."""
    crew = shop.crew(*script, task={"description": f"get a {item}"})
    saga_agent(crew, shop.kit, tools=shop.declared).kickoff()


def bare(shop, item, *script):
    tools = wrap_tools([shop.book, shop.fails], shop.declared, kit=shop.kit)
    shop.crew(*script, tools=tools).kickoff()


def gone_on_with(shop, run, *items):
    """Run a program that is left after each run but the last, and gone on with."""
    for number, item in enumerate(items, 1):
        script = [[call("book", item=item)], "done"] if item else ["done"]
        with contextlib.suppress(SagaSuspended):  # noqa: SIM117 - the saga is left inside
            with shop.kit.transaction(saga_id="p", resume=True, suspendable=True) as saga:
                run(shop, item, *script)
                if number < len(items):
                    saga.suspend("the program is left here")
    return saga


@pytest.mark.guarantee("CREWAI-21")
@pytest.mark.parametrize("run", [under_care, bare])
@pytest.mark.parametrize("item", ["room", ""])
def test_one_of_whose_runs_goes_another_way_is_undone(shop, run, item):
    with pytest.raises(SagaAborted) as failed:
        gone_on_with(shop, run, "seat", item)
    assert isinstance(failed.value.cause, ReplayConflict)
    assert failed.value.report.clean
    shop.world.assert_stands()


@pytest.mark.parametrize("run", [under_care, bare])
def test_one_whose_runs_go_the_same_way_is_committed(shop, run):
    report = gone_on_with(shop, run, "seat", "seat", "seat").report
    assert (report.outcome, report.clean) == ("COMMITTED", True)
    shop.world.assert_applied_once("seat")

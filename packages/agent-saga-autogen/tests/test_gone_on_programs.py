"""Programs that go on with their boundary: what runs did in it is met again, or undone."""

from __future__ import annotations

import contextlib

import pytest
from scripted import call

from agent_saga import SagaAborted, SagaSuspended
from agent_saga.errors import ReplayConflict
from agent_saga_autogen import last_report, saga_agent, saga_run_sync


def gone_on_with(shop, *items):
    """Run a program that is left after each run but the last, and gone on with."""
    for number, item in enumerate(items, 1):
        script = [[call("book", item=item)], "done"] if item else ["done"]
        agent = saga_agent(shop.agent(*script), shop.kit, tools=shop.declared)
        with contextlib.suppress(SagaSuspended):  # noqa: SIM117 - the saga is left inside
            with shop.kit.transaction(saga_id="p", resume=True, suspendable=True) as saga:
                saga_run_sync(agent, "go on")
                if number < len(items):
                    saga.suspend("the program is left here")


@pytest.mark.parametrize("item", ["room", ""])
def test_one_of_whose_runs_goes_another_way_is_undone(shop, item):
    with pytest.raises(SagaAborted) as failed:
        gone_on_with(shop, "seat", item)
    assert isinstance(failed.value.cause, ReplayConflict)
    assert failed.value.report.clean
    shop.world.assert_stands()


def test_one_whose_runs_go_the_same_way_is_committed(shop):
    gone_on_with(shop, "seat", "seat", "seat")
    assert (last_report().outcome, last_report().clean) == ("COMMITTED", True)
    shop.world.assert_applied_once("seat")

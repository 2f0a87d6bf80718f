"""An error of another tool's call says nothing of whoever lets it through.

A tool, an inverse or a prober may call another tool: inside a boundary, outside any, in a thread of
its own that has no boundary. What that one raises of itself must not be taken for theirs.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent_saga import Applied, NotApplied, SagaAborted


class Gone(Exception):
    """What the tools here declare to be harmless."""


def helper(kit, world, error=NotApplied):
    """A tool that never has an effect and says so."""

    @kit.tool("COMPENSABLE", outside="run", not_applied_on=(Gone,))
    def notify(amount):
        raise error("there is no such customer")

    notify.undo(lambda result: None)
    return notify


def async_helper(kit, world):
    @kit.tool("COMPENSABLE", outside="run")
    async def notify(amount):
        raise NotApplied("there is no such customer")

    notify.undo(lambda result: None)
    return notify


def deferred_helper(kit, world):
    """A tool whose plain function returns a coroutine."""
    raising = async_helper(kit, world).tool.fn

    def fn(amount):
        return raising(amount)

    notify = kit.safe_tool(fn, "COMPENSABLE", name="deferred", outside="run")
    notify.undo(lambda result: None)
    return notify


def paid(kit, world, after):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="charge")

    @tool.undo
    def refund(result):
        world.refund(result["id"])
        return after(result["amount"])

    return tool


def run_until_failed(kit, tool):
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        tool(1)
        raise RuntimeError("the run fails")
    return failed.value.report


@pytest.mark.guarantee("WHOSE-1")
@pytest.mark.parametrize("made", [helper, async_helper, deferred_helper])
def test_an_inverse_that_calls_a_tool_without_an_effect_is_not_repeated(kit, world, made):
    other = made(kit, world)

    def after(amount):
        value = other(amount)
        return None if value is None else asyncio.run(_finished(value))

    report = run_until_failed(kit, paid(kit, world, after))
    assert world.refunds == ["ch1"]
    assert not report.clean


async def _finished(value):
    return await value


@pytest.mark.guarantee("WHOSE-1")
def test_nor_is_one_that_calls_it_in_a_boundary_of_its_own(kit, world):
    other = helper(kit, world)

    def after(amount):
        with kit.transaction(reraise=True):
            other(amount)

    report = run_until_failed(kit, paid(kit, world, after))
    assert world.refunds == ["ch1"]
    assert not report.clean


def test_an_inverse_that_speaks_for_itself_is_tried_again(kit, world):
    tries = []

    def after(amount):
        tries.append(amount)
        if len(tries) < 3:
            world.refunds.clear()
            raise NotApplied("not this time")

    report = run_until_failed(kit, paid(kit, world, after))
    assert len(tries) == 3
    assert report.clean


@pytest.mark.guarantee("WHOSE-1")
def test_a_prober_that_lets_it_through_cannot_tell(kit, world):
    other = helper(kit, world)

    def lost(amount):
        world.charge(amount)
        raise ConnectionError("the answer was lost")

    tool = kit.safe_tool(lost, "COMPENSABLE", name="charge")
    tool.undo(lambda result: world.refund(result["id"]))

    @tool.probe
    def find(args):
        other(args["amount"])
        return Applied({"id": "ch1"})

    report = run_until_failed(kit, _caught(tool))
    assert [line.tool for line in report.orphaned] == ["charge"]
    assert world.standing == ["ch1"]


def _caught(tool):
    def call(amount):
        with pytest.raises(ConnectionError):
            tool(amount)

    return call


@pytest.mark.guarantee("WHOSE-1")
@pytest.mark.parametrize("error", [NotApplied, Gone])
def test_a_tool_that_runs_another_in_a_bare_thread_does_not_speak_by_it(kit, world, error):
    other = helper(kit, world, error)

    @kit.tool("COMPENSABLE", not_applied_on=(Gone,))
    def charge(amount):
        world.charge(amount)
        raised = []

        def without_boundary():
            try:
                other(amount)
            except Exception as caught:
                raised.append(caught)

        thread = threading.Thread(target=without_boundary)
        thread.start()
        thread.join()
        raise raised[0]

    charge.undo(lambda result: world.refund(result["id"]))
    with pytest.raises(SagaAborted) as failed, kit.transaction():
        charge(1)
    assert world.standing == ["ch1"]
    assert not failed.value.report.clean


def test_outside_any_boundary_a_tool_is_its_bare_function(kit, world):
    error = Gone("as it came")

    async def fail():
        raise error

    tool = kit.safe_tool(fail, "REVERSIBLE", name="fail", outside="run")
    coroutine = tool()
    assert asyncio.iscoroutine(coroutine)
    with pytest.raises(Gone) as raised:
        asyncio.run(coroutine)
    assert raised.value is error

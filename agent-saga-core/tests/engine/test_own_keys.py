"""A caller may give an idempotency key of its own; whoever asks about the call uses that one."""

from __future__ import annotations

import pytest

from agent_saga import Applied, NotApplied, SagaAborted


class Boom(Exception):
    pass


class Provider:
    """Charges once for a key, and loses every answer."""

    def __init__(self, world):
        self.world = world
        self.known = {}

    def charge(self, amount, idempotency_key=None):
        if idempotency_key not in self.known:
            self.known[idempotency_key] = self.world.charge(amount, idempotency_key)
        raise ConnectionError("the answer was lost")

    def any_names(self, amount, **given):
        return self.charge(amount, given.get("idempotency_key"))

    def find(self, *, idempotency_key):
        found = self.known.get(idempotency_key)
        return NotApplied(final=True) if found is None else Applied(found)


@pytest.fixture
def provider(world):
    return Provider(world)


def wrapped(kit, mode, provider, world, function):
    tool = kit.safe_tool(mode.fn(function), "COMPENSABLE", name="charge")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    tool.probe(provider.find)
    return tool


def calls(provider):
    return {
        "by keyword": (provider.charge, (5,), {"idempotency_key": "order-1"}),
        "by position": (provider.charge, (5, "order-1"), {}),
        "among any names": (provider.any_names, (5,), {"idempotency_key": "order-1"}),
    }


@pytest.mark.guarantee("PROBE-2")
@pytest.mark.parametrize("how", ["by keyword", "by position", "among any names"])
def test_a_lost_answer_is_looked_up_by_the_caller_s_own_key(mode, kit, world, provider, how):
    function, args, kwargs = calls(provider)[how]
    tool = wrapped(kit, mode, provider, world, function)

    async def body(_saga):
        await mode.call(tool, *args, **kwargs)

    error = mode.attempt(kit, body)
    assert isinstance(error, SagaAborted)
    assert world.keys == ["order-1"]
    assert world.standing == []
    assert error.report.clean


@pytest.mark.parametrize(("args", "kwargs"), [((5, None), {}), ((5,), {"idempotency_key": None})])
def test_none_is_no_key(mode, kit, world, provider, args, kwargs):
    tool = wrapped(kit, mode, provider, world, provider.charge)

    async def body(_saga):
        await mode.call(tool, *args, **kwargs)

    error = mode.attempt(kit, body)
    assert isinstance(error, SagaAborted)
    assert len(world.keys[0]) == 64
    assert world.standing == []
    assert error.report.clean


def test_a_step_without_a_tool_has_the_key_among_its_named_arguments(mode, kit, world, provider):
    async def body(saga):
        await mode.call(
            saga.execute,
            tool="charge",
            semantics="COMPENSABLE",
            forward=mode.fn(lambda idempotency_key: provider.charge(5, idempotency_key)),
            arguments={"amount": 5, "idempotency_key": "order-1"},
            prober=provider.find,
            compensate=lambda result: {"handler": "refund", "kwargs": {"number": result["id"]}},
        )

    error = mode.attempt(kit, body)
    assert isinstance(error, SagaAborted)
    assert world.keys == ["order-1"]
    assert not error.report.clean


@pytest.mark.parametrize("args", [(), ("order-1",), (None,)])
def test_a_tool_outside_gets_one_key(kit, world, args):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="charge", outside="run")
    tool(5, *args)
    assert world.keys == [args[0]] if args and args[0] else len(world.keys[0]) == 64

"""What a program hangs on a saga may fail in any way: its log handlers, its exceptions' classes."""

from __future__ import annotations

import logging

import pytest

from agent_saga import SagaAborted
from agent_saga.domain.records import Ev


class Boom(Exception):
    pass


class Raising(logging.Handler):
    """A handler that raises at every record, as one that formats what it should not."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def handle(self, record):
        raise self.error


@pytest.fixture
def raising():
    log = logging.getLogger("agent_saga")
    added = []

    def add(error):
        added.append(Raising(error))
        log.addHandler(added[-1])

    yield add
    for handler in added:
        log.removeHandler(handler)


def paid(kit, world, mode):
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", name="charge")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    return tool


def stuck(kit, world, mode):
    """A tool whose inverse always fails, which the engine says at each attempt."""
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", name="stuck")

    @tool.undo
    def refund(result):
        raise Boom

    return tool


def test_a_log_handler_that_raises_keeps_nothing_from_being_undone(
    mode, kit, world, raising, capsys
):
    first, second = paid(kit, world, mode), stuck(kit, world, mode)

    async def body(saga):
        await mode.call(second, 1)
        await mode.call(first, 2)
        raising(ValueError("a handler of the program"))
        raise Boom

    error = mode.attempt(kit, body)
    assert isinstance(error, SagaAborted)
    assert error.report.outcome == "STUCK"
    assert world.standing == ["ch1"]
    assert "a handler of the program" in capsys.readouterr().err


def test_a_saga_whose_undoing_is_ended_by_surprise_is_released(mode, kit, world, wal, raising):
    tool = stuck(kit, world, mode)

    async def body(saga):
        await mode.call(tool, 1)
        raising(SystemExit(3))
        raise Boom

    error = mode.attempt(kit, body)
    assert isinstance(error, SystemExit)
    assert world.standing == ["ch1"]
    assert [record.event for record in wal.read_all()][-1] == Ev.SAGA_RELEASED


class Closed(BaseException):
    """An exception that takes neither notes nor attributes."""

    def add_note(self, note):
        raise RuntimeError("no notes")

    def __setattr__(self, name, value):
        raise RuntimeError("no attributes")


def test_an_exception_that_takes_no_report_passes_on_all_the_same(mode, kit, world):
    tool = paid(kit, world, mode)
    leaves = Closed("as it came")

    async def fail():
        raise leaves

    failing = kit.safe_tool(fail, "REVERSIBLE", name="fail", loop_free=True)

    async def body(saga):
        await mode.call(tool, 1)
        await mode.call(failing)

    assert mode.attempt(kit, body) is leaves
    assert world.standing == []

"""What ends the program, raised where code of others calls tools in tasks of its own."""

from __future__ import annotations

import asyncio

import pytest

from agent_saga import AgentKit, SagaAborted, compensator
from agent_saga.engine.quitting import ENDS_THE_PROGRAM, LEAVES_A_TOOL, ProgramEnds, held
from agent_saga.plugins.registry import process_handlers


class Desk:
    def __init__(self, folder):
        self.kit = AgentKit("desk", wal=str(folder / "log"))
        self.booked = []

        @compensator("quitting.cancel")
        def cancel(item):
            self.booked.remove(item)

        self.book = self.kit.safe_tool(
            self._book, "COMPENSABLE", compensate=cancel.using(item="$.item"), name="book"
        )

    def _book(self, item):
        self.booked.append(item)
        return {"item": item}

    def quits(self, ending, **options):
        async def quits():
            await asyncio.sleep(0.001)
            raise ending("all")

        return self.kit.safe_tool(quits, "REVERSIBLE", name="quits", **options)


@pytest.fixture
def desk(tmp_path):
    with process_handlers().isolated():
        yield Desk(tmp_path)


async def as_a_framework_does(tool, depth=2):
    """Call a tool in a task inside a task, as frameworks do, and as their packages must."""
    if depth:
        return await asyncio.create_task(as_a_framework_does(tool, depth - 1))
    try:
        return await tool()
    except LEAVES_A_TOOL as error:
        raise held(error) from error


def on_a_loop(coroutine):
    """Run a coroutine as `asyncio.run` does, but cancel nothing that is left behind."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@pytest.mark.guarantee("QUIT-1")
@pytest.mark.parametrize("ending", ENDS_THE_PROGRAM)
def test_everything_is_undone_before_the_program_ends(desk, ending):
    async def case():
        async with desk.kit.transaction():
            await desk.book("seat")
            await as_a_framework_does(desk.quits(ending))

    with pytest.raises(ending, match="all") as raised:
        on_a_loop(case())
    assert desk.booked == []
    assert raised.value.saga_report.clean


@pytest.mark.guarantee("QUIT-1")
def test_so_it_is_where_somebody_made_another_error_of_it(desk):
    async def case():
        async with desk.kit.transaction():
            await desk.book("seat")
            try:
                await as_a_framework_does(desk.quits(SystemExit))
            except Exception:
                raise ExceptionGroup("of the framework", [ValueError("no answer")])  # noqa: B904

    with pytest.raises(SystemExit, match="all"):
        on_a_loop(case())
    assert desk.booked == []


def test_a_savepoint_that_is_undone_passes_it_on_as_an_error(desk):
    async def inner():
        async with desk.kit.transaction():
            await desk.book("room")
            await as_a_framework_does(desk.quits(SystemExit))

    async def case():
        async with desk.kit.transaction():
            await desk.book("seat")
            with pytest.raises(SagaAborted) as failed:
                await asyncio.create_task(inner())
            assert isinstance(failed.value.cause, ProgramEnds)
            assert desk.booked == ["seat"]
            raise held(failed.value)

    with pytest.raises(SystemExit, match="all"):
        on_a_loop(case())
    assert desk.booked == []


@pytest.mark.parametrize("ending", ENDS_THE_PROGRAM)
def test_a_tool_with_a_timeout_ends_the_program_when_everything_was_undone(desk, ending):
    async def case():
        async with desk.kit.transaction():
            await desk.book("seat")
            await desk.quits(ending, timeout=5)()

    with pytest.raises(ending, match="all"):
        on_a_loop(case())
    assert desk.booked == []


def test_what_is_held_once_is_not_held_again():
    once = held(SystemExit(3))
    assert held(once) is once
    assert once.ending.code == 3
    error = ValueError("no")
    assert held(error) is error


def test_an_outer_tool_whose_inner_one_quits_has_had_no_answer(desk):
    """What it raises in the place of an interrupt is no answer of a provider."""

    async def outer():
        raise held(SystemExit("all"))

    tool = desk.kit.safe_tool(
        outer, "COMPENSABLE", compensate=lambda result: None, name="outer", settle_after=0.01
    )
    steps = []

    async def case():
        async with desk.kit.transaction() as handle:
            try:
                await tool()
            finally:
                steps.extend(handle._scope.saga.steps_of(handle._scope.saga.root))

    with pytest.raises(SystemExit):
        on_a_loop(case())
    assert [step.answered for step in steps] == [False]

"""What CrewAI repeats, hides or leaves running: each by itself, and with agent-saga round it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence import persist
from crewai.flow.persistence.sqlite import SQLiteFlowPersistence
from crewai.hooks.dispatch import InterceptionPoint, register_scoped, scoped_hooks
from crewai.tools import tool
from pydantic import BaseModel
from scripted import call

from agent_saga import SagaAborted
from agent_saga_crewai import (
    compensable,
    last_report,
    read_only,
    saga_agent,
    saga_run,
    saga_run_sync,
    wrap_tool,
)
from agent_saga_testing.waiting import until

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]


class Held:
    """A tool that has its effect when it is released."""

    def __init__(self, shop):
        self.reached, self.released, self.ended = (threading.Event() for _ in range(3))

        @tool
        def held(item: str) -> dict:
            """Book an item, slowly."""
            self.reached.set()
            until(self.released.is_set)
            effect = shop.world.do(item)
            self.ended.set()
            return effect

        self.tool = held
        self.declared = {**shop.declared, "held": compensable(shop.undo)}


def as_it_is(crew):
    return crew.kickoff()


@pytest.mark.parametrize(("with_saga", "runs"), [(False, 6), (True, 1)])
def test_a_raising_tool_that_is_called_by_text_runs_six_times_or_once(shop, with_saga, runs):
    shop.world.lose_answers(10)
    crew = shop.crew([call("book", item="seat")], native=False)
    if with_saga:
        crew = saga_agent(crew, shop.kit, tools=shop.declared)
    assert crew.kickoff().raw == "done"
    assert shop.world.attempts() == runs


@pytest.mark.guarantee("CREWAI-9")
@pytest.mark.parametrize("native", [True, False])
def test_a_read_that_fails_runs_once_for_each_call_of_the_model(shop, native):
    ran = []

    @tool
    def look(item: str) -> str:
        """Look an item up."""
        ran.append(item)
        raise LookupError(item)

    crew = shop.crew(
        [call("look", item="a")], [call("look", item="b")], tools=[look], native=native
    )
    saga_agent(crew, shop.kit, tools={"look": read_only()}).kickoff()
    assert ran == ["a", "b"]


@pytest.mark.guarantee("CREWAI-14")
def test_a_failure_that_undoes_a_run_lets_nothing_more_of_it_begin(shop):
    crew = shop.crew(SEAT, [call("fails", item="x")], ROOM, "done")
    run = saga_agent(crew, shop.kit, tools=shop.declared, on_tool_failure="rollback")
    with pytest.raises(SagaAborted):
        run.kickoff()
    assert [one.name for one in shop.world.calls("forward")] == ["seat"]
    assert len(crew.agents[0].llm.seen) == 2
    shop.world.assert_restored()


@pytest.mark.guarantee("CREWAI-12")
@pytest.mark.parametrize(("with_saga", "runs"), [(False, 1), (True, 0)])
def test_a_gate_that_fails_lets_the_call_go_on_or_ends_the_run(shop, with_saga, runs, monkeypatch):
    crew = shop.crew(SEAT, "done")
    if not with_saga:
        with scoped_hooks():
            register_scoped(InterceptionPoint.PRE_TOOL_CALL, lambda _: 1 / 0)
            crew.kickoff()
    else:
        monkeypatch.setattr("agent_saga_crewai.gate.is_wrapped", lambda _: 1 / 0)
        with pytest.raises(SagaAborted) as aborted:
            saga_agent(crew, shop.kit, tools=shop.declared).kickoff()
        assert isinstance(aborted.value.cause, ZeroDivisionError)
    assert shop.world.applications() == runs


@pytest.mark.guarantee("CREWAI-10")
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("with_saga", "runs"), [(False, 1), (True, 2)])
def test_the_cache_answers_for_an_effect_or_never_does(shop, native, with_saga, runs):
    """Two orders of the same thing are two; between them comes another one."""
    crew = shop.crew(SEAT, ROOM, SEAT, "done", native=native, crew={"cache": True})
    if with_saga:
        crew = saga_agent(crew, shop.kit, tools=shop.declared)
    assert crew.kickoff().raw == "done"
    assert shop.world.applications(name="seat") == runs


def guarded(shop, *script, **options):
    said = []

    def second(output):
        said.append(output.raw)
        return len(said) > 1, output.raw if len(said) > 1 else "once more"

    return shop.crew(*script, task={"guardrail": second}, **options)


@pytest.mark.guarantee("CREWAI-1")
@pytest.mark.parametrize(("with_saga", "runs"), [(False, 2), (True, 1)])
def test_a_guardrail_that_says_no_repeats_an_effect_or_not(shop, with_saga, runs):
    crew = guarded(shop, SEAT, "first", SEAT, "second")
    if with_saga:
        crew = saga_agent(crew, shop.kit, tools=shop.declared)
    assert crew.kickoff().raw == "second"
    assert shop.world.applications() == runs


@pytest.mark.guarantee("CREWAI-1")
@pytest.mark.parametrize(("with_saga", "runs"), [(False, 2), (True, 1)])
def test_a_model_that_fails_repeats_an_effect_or_not(shop, with_saga, runs):
    crew = shop.crew(SEAT, ConnectionError("the network"), SEAT, "done")
    if with_saga:
        crew = saga_agent(crew, shop.kit, tools=shop.declared)
    assert crew.kickoff().raw == "done"
    assert shop.world.applications() == runs


def test_a_task_that_is_tried_again_after_a_payment_pays_once(shop):
    """Retries of a task after its tool succeeded: by a guardrail, twice, and by the model."""
    crew = guarded(shop, SEAT, "first", ConnectionError("once"), SEAT, ROOM, "second")
    assert saga_agent(crew, shop.kit, tools=shop.declared).kickoff().raw == "second"
    shop.world.assert_applied_once("seat", "room")


def test_a_crew_does_not_repeat_what_the_program_does_not_know_the_end_of(shop):
    book = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)
    shop.world.lose_answers(1)
    with pytest.raises(SagaAborted), shop.kit.transaction():
        with pytest.raises(ConnectionError):
            book.run(item="seat")
        saga_run_sync(shop.crew(SEAT, SEAT, "done", tools=[book]), kit=shop.kit)
        raise RuntimeError("the program fails")
    assert shop.world.attempts() == 1


def test_two_equal_calls_of_one_attempt_are_two_and_stay_two(shop):
    crew = guarded(shop, SEAT, SEAT, "first", SEAT, SEAT, SEAT, "second")
    saga_agent(crew, shop.kit, tools=shop.declared).kickoff()
    assert shop.world.applications() == 3


@pytest.mark.parametrize("with_saga", [False, True])
def test_a_cancelled_crew_goes_on_in_its_thread_or_is_undone(shop, with_saga):
    held = Held(shop)
    crew = shop.crew([call("held", item="seat")], ROOM, "done", tools=[shop.book, held.tool])
    if with_saga:
        crew = saga_agent(crew, shop.kit, tools=held.declared)

    async def case():
        task = asyncio.ensure_future(crew.kickoff_async())
        await asyncio.to_thread(until, held.reached.is_set)
        task.cancel()
        held.released.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        if not with_saga:
            await asyncio.to_thread(until, lambda: shop.world.applications(name="room"))

    asyncio.run(case())
    if with_saga:
        assert [one.name for one in shop.world.calls("forward")] == ["seat"]
        shop.world.assert_restored()
    else:
        shop.world.assert_stands("seat", "room")


@pytest.mark.parametrize("with_saga", [False, True])
def test_a_time_limit_lets_all_tools_run_or_undoes_them(shop, with_saga):
    @tool
    def slow(item: str) -> dict:
        """Book an item; takes longer than the agent may."""
        time.sleep(1.1)
        return shop.world.do(item)

    declared = {**shop.declared, "slow": compensable(shop.undo)}
    script = [call("slow", item="seat")], ROOM
    crew = shop.crew(*script, tools=[shop.book, slow], max_execution_time=1)
    if with_saga:
        with pytest.raises(SagaAborted) as aborted:
            saga_agent(crew, shop.kit, tools=declared).kickoff()
        assert isinstance(aborted.value.cause, TimeoutError)
        shop.world.assert_restored()
    else:
        with pytest.raises(TimeoutError):
            as_it_is(crew)
        shop.world.assert_stands("seat", "room")


class State(BaseModel):
    id: str = ""


def flow_of(shop, book, fails):
    @persist(SQLiteFlowPersistence(str(shop.folder / "flows.sqlite")))
    class Trip(Flow[State]):
        @start()
        def reserve(self):
            return book.run(item="seat")["id"]

        @listen(reserve)
        def pay(self, _):
            if fails:
                raise RuntimeError("the bank is closed")
            book.run(item="room")
            return "paid"

    return Trip(suppress_flow_events=True)


@pytest.mark.parametrize("with_saga", [False, True])
def test_a_flow_that_is_begun_again_repeats_its_effects_or_had_none(shop, with_saga):
    book = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit) if with_saga else shop.book
    failing = flow_of(shop, book, fails=True)
    if not with_saga:
        with pytest.raises(RuntimeError):
            failing.kickoff()
        flow_of(shop, book, fails=False).kickoff(inputs={"id": failing.flow_id})
        shop.world.assert_stands("seat", "seat", "room")
        return
    with pytest.raises(SagaAborted):
        saga_run_sync(failing, kit=shop.kit)
    shop.world.assert_restored()
    assert saga_run_sync(flow_of(shop, book, fails=False), kit=shop.kit) == "paid"
    shop.world.assert_stands("seat", "room")


def test_a_tool_in_a_thread_without_context_finds_its_run(shop):
    """A tool that a library calls in a pool of its own; CrewAI's text path did so, too."""
    book = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)

    @tool
    def far(item: str) -> str:
        """Book an item from a thread that knows nothing."""
        done = []
        thread = threading.Thread(target=lambda: done.append(book.run(item=item)))
        thread.start()
        thread.join()
        return str(done)

    far = wrap_tool(far, semantics="REVERSIBLE", kit=shop.kit)
    crew = shop.crew(
        [call("far", item="seat")], ValueError("down"), tools=[far, book], max_retry_limit=0
    )
    with pytest.raises(SagaAborted) as aborted:
        saga_run_sync(crew, kit=shop.kit)
    assert [line.tool for line in aborted.value.report.compensated] == ["book"]
    shop.world.assert_restored()


def test_a_tool_that_two_runs_have_is_refused_in_a_thread_without_context(shop):
    book = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)
    seen, both = [], threading.Barrier(2, timeout=60)

    @tool
    def far(item: str) -> str:
        """Book an item from a thread that knows nothing."""
        both.wait()

        def book_it():
            try:
                book.run(item=item)
            except Exception as error:
                seen.append(error)

        thread = threading.Thread(target=book_it)
        thread.start()
        thread.join()
        both.wait()
        return "tried"

    far = wrap_tool(far, semantics="REVERSIBLE", kit=shop.kit)

    async def case():
        crews = [shop.crew([call("far", item="seat")], "done", tools=[far, book]) for _ in range(2)]
        await asyncio.gather(*(saga_run(crew, kit=shop.kit) for crew in crews))

    asyncio.run(case())
    assert [type(error).__name__ for error in seen] == ["NoBoundary", "NoBoundary"]
    shop.world.assert_untouched()


def test_the_run_ends_committed_where_nothing_failed(shop):
    saga_agent(shop.crew(SEAT, "done"), shop.kit, tools=shop.declared).kickoff()
    assert last_report().outcome == "COMMITTED"

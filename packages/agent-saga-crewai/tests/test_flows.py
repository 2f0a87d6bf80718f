"""Flows as boundaries: their methods, their crews, humans who are asked, states that are kept."""

from __future__ import annotations

import asyncio

import pytest
from crewai.flow import human_feedback
from crewai.flow.async_feedback import HumanFeedbackPending
from crewai.flow.flow import Flow, listen, or_, router, start
from crewai.flow.persistence import persist
from crewai.flow.persistence.sqlite import SQLiteFlowPersistence
from pydantic import BaseModel
from scripted import call

from agent_saga import ConfigurationError, PreFlightGate, RecoveryDaemon, SagaAborted
from agent_saga.errors import AgentSagaError, SagaClosed
from agent_saga_crewai import (
    CrewApprovals,
    SagaAgent,
    Waiting,
    approve,
    ask_human,
    deny,
    last_report,
    saga_agent,
    saga_run,
    saga_run_sync,
    saga_stream_sync,
    saga_tool,
    wrap_tool,
)
from agent_saga_testing.integration.driver import QUICK

SEAT = [call("book", item="seat")]


class State(BaseModel):
    id: str = ""
    asked: int = 0


class Later:
    """Lets a human answer later."""

    def request_feedback(self, context, flow):
        raise HumanFeedbackPending(context=context)


class Flows:
    """The flows of the tests."""

    def __init__(self, shop):
        self.shop = shop
        self.kept = SQLiteFlowPersistence(str(shop.folder / "flows.sqlite"))
        self.book = wrap_tool(shop.book, compensate=shop.undo, kit=shop.kit)
        self.fails = wrap_tool(shop.fails, semantics="REVERSIBLE", kit=shop.kit)
        self.breaks = False

    def asking(self):
        """Return the class of a flow that books, asks, and books again."""
        flows = self

        class Trip(Flow[State]):
            @start()
            @human_feedback(message="a room, too?", provider=Later())
            def reserve(self):
                self.state.asked += 1
                return flows.book.run(item="seat")["id"]

            @listen(reserve)
            def answered(self, said):
                flows.book.run(item="room")
                if flows.breaks:
                    raise RuntimeError("the hotel is closed")
                return said.feedback

        return Trip

    def made(self, cls, **options):
        return cls(persistence=self.kept, suppress_flow_events=True, **options)

    def pending(self, cls, flow_id):
        return cls.from_pending(flow_id, self.kept, suppress_flow_events=True)

    def of(self, *methods, **options):
        """Return a flow of plain methods, one after the other."""

        class Line(Flow):
            @start()
            def first(self):
                return methods[0]()

            @listen(first)
            async def second(self, _):
                result = methods[1]()
                return await result if asyncio.iscoroutine(result) else result

        return Line(suppress_flow_events=True, **options)


@pytest.fixture
def flows(shop):
    return Flows(shop)


def test_methods_and_crews_of_a_flow_are_in_one_saga(shop, flows):
    crew = shop.crew([call("book", item="room")], "done", tools=[flows.book])

    async def runs_the_crew():
        await crew.akickoff()
        raise RuntimeError("no invoice")

    flow = flows.of(lambda: flows.book.run(item="seat"), runs_the_crew)
    with pytest.raises(SagaAborted, match="no invoice") as aborted:
        asyncio.run(saga_run(flow, kit=shop.kit))
    assert len(aborted.value.report.compensated) == 2
    assert shop.world.undone() == ["room", "seat"]
    shop.world.assert_restored()


def test_a_flow_that_ends_well_is_kept(shop, flows):
    flow = flows.of(lambda: flows.book.run(item="seat"), lambda: "done")
    assert saga_run_sync(flow, kit=shop.kit) == "done"
    shop.world.assert_applied_once("seat")


@pytest.mark.guarantee("CREWAI-15")
def test_a_tool_that_a_method_calls_raises_there(shop, flows):
    def careful():
        with pytest.raises(RuntimeError, match="no such item"):
            flows.fails.run(item="x")
        return "went on"

    assert saga_run_sync(flows.of(careful, careful), kit=shop.kit) == "went on"
    with pytest.raises(SagaAborted) as aborted:
        saga_run_sync(flows.of(careful, careful), kit=shop.kit, on_tool_failure="rollback")
    assert isinstance(aborted.value.cause, RuntimeError)


def test_a_crew_in_a_method_that_has_a_tool_undeclared_ends_the_run(shop, flows):
    crew = shop.crew(SEAT, "done")
    flow = flows.of(lambda: "go", crew.akickoff)
    with pytest.raises(SagaAborted, match="book does to the world"):
        asyncio.run(saga_run(flow, kit=shop.kit))
    shop.world.assert_untouched()


@pytest.mark.guarantee("CREWAI-17")
def test_feedback_that_comes_later_suspends_the_saga(shop, flows):
    trip = flows.asking()
    waits = saga_run_sync(flows.made(trip), kit=shop.kit)
    assert isinstance(waits, HumanFeedbackPending)
    assert last_report().outcome == "SUSPENDED"
    RecoveryDaemon(shop.folder / "log", settings=QUICK).recover_all(undo_held=True)
    shop.world.assert_applied_once("seat")
    flow = flows.pending(trip, waits.context.flow_id)
    assert saga_run_sync(flow, kit=shop.kit, resume="yes") == "yes"
    assert last_report().outcome == "COMMITTED"
    shop.world.assert_applied_once("seat", "room")


@pytest.mark.parametrize("with_saga", [False, True])
def test_a_flow_that_waits_returns_as_if_it_had_ended_and_can_be_answered_twice(
    shop, flows, with_saga
):
    if not with_saga:
        flows.book = shop.book
    trip = flows.asking()
    made = flows.made(trip)
    waits = saga_run_sync(made, kit=shop.kit) if with_saga else made.kickoff()
    assert isinstance(waits, HumanFeedbackPending)
    both = [flows.pending(trip, waits.context.flow_id) for _ in range(2)]
    if with_saga:
        assert saga_run_sync(both[0], kit=shop.kit, resume="yes") == "yes"
        with pytest.raises(AgentSagaError):
            saga_run_sync(both[1], kit=shop.kit, resume="yes")
        shop.world.assert_applied_once("seat", "room")
    else:
        assert [flow.resume("yes") for flow in both] == ["yes", "yes"]
        shop.world.assert_stands("seat", "room", "room")


@pytest.mark.guarantee("CREWAI-19")
def test_feedback_after_which_the_flow_fails_undoes_all_of_it(shop, flows):
    trip = flows.asking()
    waits = asyncio.run(saga_run(flows.made(trip), kit=shop.kit))
    flows.breaks = True
    flow = flows.pending(trip, waits.context.flow_id)
    with pytest.raises(SagaAborted):
        asyncio.run(saga_run(flow, kit=shop.kit, resume="yes"))
    assert shop.world.undone() == ["room", "seat"]
    shop.world.assert_restored()
    flows.breaks = False
    again = flows.made(trip)
    with pytest.raises(SagaClosed, match="ROLLED_BACK"):
        saga_run_sync(again, {"id": waits.context.flow_id}, kit=shop.kit)
    shop.world.assert_restored()


@pytest.mark.guarantee("CREWAI-18")
def test_a_flow_that_was_answered_is_not_answered_again(shop, flows):
    trip = flows.asking()
    waits = saga_run_sync(flows.made(trip), kit=shop.kit)
    flow, late = (flows.pending(trip, waits.context.flow_id) for _ in range(2))
    saga_run_sync(flow, kit=shop.kit, resume="yes")
    with pytest.raises(ValueError, match="No pending feedback"):
        flows.pending(trip, waits.context.flow_id)
    with pytest.raises(SagaClosed, match="given already"):
        saga_run_sync(late, kit=shop.kit, resume="yes")
    shop.world.assert_applied_once("seat", "room")


def test_a_saga_agent_of_a_flow_is_the_same_flow(shop, flows):
    trip = flows.asking()
    flow = saga_agent(flows.made(trip), shop.kit)
    assert isinstance(flow, trip)
    assert isinstance(flow, SagaAgent)
    waits = asyncio.run(flow.kickoff_async())
    pending = saga_agent(flows.pending(trip, waits.context.flow_id), shop.kit)
    assert pending.resume("good") == "good"
    shop.world.assert_applied_once("seat", "room")
    more = saga_agent(flows.made(trip), shop.kit)
    waits = more.kickoff()
    pending = saga_agent(flows.pending(trip, waits.context.flow_id), shop.kit)
    assert asyncio.run(pending.resume_async("good")) == "good"
    assert shop.world.applications() == 4


def test_a_loop_of_feedback_is_new_work_each_time(shop, flows):
    class Draft(Flow[State]):
        @start("again")
        @human_feedback(message="good?", provider=Later())
        def write(self):
            return flows.book.run(item="seat")["id"]

        @router(write)
        def choose(self, said):
            return said.feedback

        @listen("fine")
        def send(self):
            return "sent"

    waits = saga_run_sync(flows.made(Draft), kit=shop.kit)
    for said in ("again", "again"):
        flow, stale = (flows.pending(Draft, waits.context.flow_id) for _ in range(2))
        waits = saga_run_sync(flow, kit=shop.kit, resume=said)
        assert isinstance(waits, HumanFeedbackPending)
        with pytest.raises(SagaClosed, match="given already"):
            saga_run_sync(stale, kit=shop.kit, resume="again")
    flow = flows.pending(Draft, waits.context.flow_id)
    assert saga_run_sync(flow, kit=shop.kit, resume="fine") == "sent"
    assert last_report().outcome == "COMMITTED"
    assert shop.world.applications() == 3


def persisted(shop, flows):
    """Return the class of a flow that keeps its state, and whose crew may die."""

    @persist(flows.kept)
    class Kept(Flow[State]):
        @start()
        def first(self):
            flows.book.run(item="seat")
            flows.book.run(item="seat")

        @listen(first)
        def second(self):
            flows.book.run(item="room")
            if flows.breaks:
                raise SystemExit
            return "done"

    return Kept


def test_a_flow_that_is_run_again_after_its_end_begins_a_new_saga(shop, flows):
    kept = persisted(shop, flows)
    flow = kept(suppress_flow_events=True)
    saga_run_sync(flow, kit=shop.kit)
    first = last_report().saga_id
    saga_run_sync(kept(suppress_flow_events=True), {"id": flow.flow_id}, kit=shop.kit)
    assert last_report().saga_id != first
    assert shop.world.applications() == 6


def test_a_key_names_the_run_of_a_flow(shop, flows):
    for _ in range(2):
        kept = persisted(shop, flows)(suppress_flow_events=True)
        assert saga_run_sync(kept, kit=shop.kit, key="order-7") == "done"
    assert shop.world.applications() == 3


@pytest.mark.parametrize("approved", [True, False])
def test_a_question_in_a_method_waits_and_the_flow_begins_again(shop, approved):
    gate = PreFlightGate(approval_provider=CrewApprovals())
    kit = type(shop.kit)("shop", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)
    shop.kit = kit
    flows = Flows(shop)

    @saga_tool("IRREVERSIBLE", kit=kit)
    def wire(item: str) -> dict:
        """Wire money."""
        return shop.world.do(item)

    def pays():
        flows.book.run(item="seat")
        try:
            wire.run(item="money")
        except AgentSagaError:
            return "refused"
        return "paid"

    def flow():
        return flows.of(pays, lambda: "done", persistence=flows.kept)

    begun = flow()
    waits = saga_run_sync(begun, kit=kit)
    assert isinstance(waits, Waiting)
    assert waits.question["tool"] == "wire"
    shop.world.assert_applied_once("seat")
    answer = approve(by="ann") if approved else deny(by="ann", note="no")
    again = {"id": begun.flow_id}
    assert saga_run_sync(flow(), again, kit=kit, resume=answer) == "done"
    shop.world.assert_applied_once("seat", *(["money"] if approved else []))


def test_a_method_that_asks_a_human_waits(shop, flows):
    def asks():
        flows.book.run(item="seat")
        return ask_human("window or aisle?")

    def flow():
        return flows.of(lambda: "go", asks, persistence=flows.kept)

    begun = flow()
    waits = saga_run_sync(begun, kit=shop.kit)
    assert waits.question["text"] == "window or aisle?"
    assert last_report().outcome == "SUSPENDED"
    with pytest.raises(ConfigurationError, match="waits for a text"):
        saga_run_sync(flow(), {"id": begun.flow_id}, kit=shop.kit, resume=approve(by="ann"))
    said = saga_run_sync(flow(), {"id": begun.flow_id}, kit=shop.kit, resume="aisle")
    assert said == "aisle"
    shop.world.assert_applied_once("seat")


def test_a_flow_that_waits_inside_another_boundary_is_refused(shop, flows):
    with pytest.raises(SagaAborted, match="cannot go on with it"), shop.kit.transaction():
        saga_run_sync(flows.made(flows.asking()), kit=shop.kit)
    shop.world.assert_restored()


def test_where_nothing_lasts_a_flow_cannot_wait(shop, tmp_path):
    shop.kit = type(shop.kit)("shop", wal="memory:", settings=QUICK)
    flows = Flows(shop)
    with pytest.raises(SagaAborted, match="ends with this process"):
        saga_run_sync(flows.made(flows.asking()), kit=shop.kit)
    shop.world.assert_restored()


def test_a_router_and_parallel_methods_are_in_one_saga(shop, flows):
    class Fork(Flow):
        @start()
        def left(self):
            flows.book.run(item="left")

        @start()
        def right(self):
            flows.book.run(item="right")

        @router(or_(left, right))
        def choose(self):
            return "on"

        @listen("on")
        def end(self):
            raise RuntimeError("no way")

    with pytest.raises(SagaAborted):
        saga_run_sync(Fork(suppress_flow_events=True), kit=shop.kit)
    shop.world.assert_restored()


def test_a_streamed_flow_is_a_boundary(shop, flows):
    flow = flows.of(lambda: flows.book.run(item="seat"), lambda: "done")
    flow.suppress_flow_events = False
    frames = list(saga_stream_sync(flow, kit=shop.kit))
    assert {frame.channel for frame in frames} >= {"flow"}
    assert last_report().outcome == "COMMITTED"
    shop.world.assert_applied_once("seat")


def test_a_flow_whose_description_is_named_otherwise_counts_as_one_that_can_wait(flows):
    """CrewAI keeps what the decorators said under a private name."""
    from agent_saga_crewai.works import Work

    plain = flows.of(lambda: 1, lambda: 2)
    assert Work(plain, None, None, {}).own_id == ""
    asking = flows.asking()()
    assert Work(asking, None, None, {}).own_id == asking.flow_id
    object.__setattr__(plain, "_definition", None)
    assert Work(plain, None, None, {}).own_id == plain.flow_id

"""Going back in time: what stands beside a branch is listed, and undone exactly."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import EmptyInputError, InvalidUpdateError
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from agent_saga import Approval, ConfigurationError, PreFlightGate, SagaAborted
from agent_saga.errors import BranchRefused, SagaClosed, SagaError, UndoRefused
from agent_saga.plugins.registry import process_handlers
from agent_saga_langgraph import (
    last_report,
    rollback_to,
    rollback_to_sync,
    safe_tool,
    saga_run,
    saga_run_sync,
)

THREAD = {"configurable": {"thread_id": "1"}}
GO = {"log": []}
FULL = settings.default.max_examples > 1000


class Log(TypedDict, total=False):
    log: Annotated[list, operator.add]
    suffix: str


class Trip:
    """A graph of three effects, each in a node of its own, whose state tells of each."""

    def __init__(self, shop, *, asks="", fails="", semantics=None):
        self.shop, self.fails = shop, fails
        how = {"compensate": shop.cancel.using(effect="$.id")}
        tool = safe_tool(
            shop.book.func, kit=shop.kit, **({"semantics": semantics} if semantics else how)
        )
        builder = StateGraph(Log)
        names = ["book", "charge", "email"]
        for name in names:
            builder.add_node(name, self.node(name, tool, asks == name))
        for one, other in zip([START, *names], names, strict=False):
            builder.add_edge(one, other)
        self.graph = builder.compile(checkpointer=InMemorySaver())

    def node(self, name, tool, asks):
        def run(state):
            item = name + state.get("suffix", "")
            tool.invoke({"item": item})
            if asks:
                interrupt("go on?")
            if self.fails == name:
                raise RuntimeError("the node failed")
            return {"log": [item]}

        return run

    def run(self, given=None, config=THREAD, **options):
        return saga_run_sync(self.graph, given, config, kit=self.shop.kit, **options)

    def before(self, name):
        """The newest checkpoint that stands before a node."""
        return next(s.config for s in self.graph.get_state_history(THREAD) if s.next == (name,))

    def back(self, name):
        return rollback_to_sync(self.graph, self.before(name), kit=self.shop.kit)

    def state(self):
        return self.graph.get_state(THREAD).values["log"]

    def assert_agrees(self):
        """World and state tell the same, and nothing happened twice."""
        self.shop.world.assert_stands(*self.state())


@pytest.fixture
def trip(shop):
    return Trip(shop)


@pytest.mark.guarantee("LANGGRAPH-7")
def test_a_replay_is_refused_and_lists_what_would_happen_again(trip):
    trip.run(GO)
    with pytest.raises(BranchRefused) as refused:
        trip.run(None, trip.before("charge"))
    assert "book(item='charge')" in refused.value.message
    assert "book(item='email')" in refused.value.message
    assert "book(item='book')" not in refused.value.message
    assert "rollback_to" in refused.value.fix
    assert trip.shop.world.applications() == 3


@pytest.mark.guarantee("LANGGRAPH-7")
def test_a_fork_by_hand_is_refused_too(trip):
    trip.run(GO)
    fork = trip.graph.update_state(trip.before("charge"), {"suffix": "!"})
    for config in (fork, THREAD):
        with pytest.raises(BranchRefused):
            trip.run(None, config)
    trip.shop.world.assert_applied_once("book", "charge", "email")


def test_exactly_what_came_after_is_undone_and_the_thread_goes_on(trip):
    trip.run(GO)
    config = trip.back("charge")
    assert trip.shop.world.undone() == ["email", "charge"]
    assert last_report().clean
    assert [line.tool for line in last_report().compensated] == ["book", "book"]
    assert trip.state() == ["book"]
    trip.run(None, config)
    assert trip.state() == ["book", "charge", "email"]
    trip.assert_agrees()
    assert trip.shop.world.applications() == 5


def test_the_thread_goes_on_without_naming_a_checkpoint(trip):
    trip.run(GO)
    trip.back("charge")
    trip.run(None)
    trip.assert_agrees()
    trip.run({"log": [], "suffix": "2"})
    assert trip.state()[-3:] == ["book2", "charge2", "email2"]
    trip.assert_agrees()


def test_a_fork_after_it_takes_another_way(trip):
    trip.run(GO)
    fork = trip.graph.update_state(trip.back("charge"), {"suffix": "!"})
    trip.run(None, fork)
    assert trip.state() == ["book", "charge!", "email!"]
    trip.assert_agrees()


def test_on_a_loop(trip):
    async def case():
        kit = trip.shop.kit
        await saga_run(trip.graph, GO, THREAD, kit=kit)
        config = await rollback_to(trip.graph, trip.before("email"), kit=kit)
        await saga_run(trip.graph, None, config, kit=kit)

    asyncio.run(case())
    assert trip.shop.world.undone() == ["email"]
    trip.assert_agrees()


def test_several_turns_of_a_thread_are_undone_latest_first(trip):
    trip.run(GO)
    first = trip.before("charge")
    trip.run({"log": [], "suffix": "2"})
    rollback_to_sync(trip.graph, first, kit=trip.shop.kit)
    assert trip.shop.world.undone() == ["email2", "charge2", "book2", "email", "charge"]
    trip.run(None)
    trip.assert_agrees()


def test_the_beginning_of_a_turn_can_be_gone_back_to(trip):
    trip.run(GO)
    trip.run({"log": [], "suffix": "2"})
    trip.back("book")
    assert trip.shop.world.undone() == ["email2", "charge2", "book2"]
    trip.run(None)
    trip.assert_agrees()


def test_it_can_be_done_again_and_again(trip):
    trip.run(GO)
    for name in ("charge", "charge", "email", "book", "email"):
        trip.back(name)
        trip.assert_agrees()
        trip.run(None)
        trip.assert_agrees()


def test_nothing_after_it_means_nothing_to_undo(trip):
    trip.run(GO)
    end = next(trip.graph.get_state_history(THREAD)).config
    rollback_to_sync(trip.graph, end, kit=trip.shop.kit)
    assert trip.shop.world.undone() == []
    trip.run({"log": [], "suffix": "2"})
    trip.assert_agrees()


def test_what_is_kept_is_told_in_the_report(trip):
    trip.run(GO)
    trip.run(None, trip.before("charge"), on_branch="keep")
    assert trip.state() == ["book", "charge", "email"]
    assert last_report().notes == [
        "beside this branch stands book(item='charge')",
        "beside this branch stands book(item='email')",
    ]
    assert trip.shop.world.applications() == 5
    trip.back("charge")
    assert trip.state() == ["book"]
    trip.assert_agrees()


def test_a_branch_of_reads_alone_needs_nothing(shop):
    trip = Trip(shop, semantics="REVERSIBLE")
    trip.run(GO)
    trip.run(None, trip.before("charge"))
    assert last_report().outcome == "COMMITTED"


def test_a_waiting_run_goes_back_in_its_own_saga(shop):
    trip = Trip(shop, asks="email")
    trip.run(GO)
    waiting = last_report().saga_id
    with pytest.raises(BranchRefused):
        trip.run(None, trip.before("charge"))
    with pytest.raises(BranchRefused):
        trip.run(None, trip.before("charge"), on_branch="keep")
    trip.back("charge")
    assert shop.world.undone() == ["email", "charge"]
    trip.run(None)
    assert last_report().outcome == "SUSPENDED"
    assert last_report().saga_id == waiting
    trip.run(Command(resume="yes"))
    assert last_report().outcome == "COMMITTED"
    trip.assert_agrees()


def test_what_is_kept_of_a_waiting_run_is_undone_when_it_fails(shop):
    trip = Trip(shop, asks="email")
    trip.run(GO)
    trip.back("charge")
    trip.fails = "charge"
    with pytest.raises(SagaAborted):
        trip.run(None)
    shop.world.assert_restored()


def test_the_beginning_of_a_waiting_run_ends_its_saga(shop):
    trip = Trip(shop, asks="email")
    trip.run(GO)
    first = last_report().saga_id
    trip.back("book")
    shop.world.assert_restored()
    trip.run(None)
    assert last_report().saga_id != first
    trip.run(Command(resume="yes"))
    trip.assert_agrees()


def test_a_thread_that_was_undone_goes_on_from_before_its_effects(shop):
    trip = Trip(shop, fails="email")
    with pytest.raises(SagaAborted):
        trip.run(GO)
    trip.fails = ""
    for config in (THREAD, trip.before("charge")):
        with pytest.raises(SagaClosed):
            trip.run(None, config)
    with pytest.raises(SagaClosed, match="undone"):
        trip.back("charge")
    trip.back("book")
    trip.run(None)
    assert trip.state() == ["book", "charge", "email"]
    trip.assert_agrees()


@pytest.mark.guarantee("LANGGRAPH-8")
def test_a_branch_that_was_left_is_not_gone_on_with(trip):
    trip.run(GO)
    end = next(trip.graph.get_state_history(THREAD)).config
    trip.back("charge")
    trip.run(None)
    with pytest.raises((BranchRefused, SagaClosed)):
        trip.run({"log": []}, end)
    with pytest.raises(SagaClosed, match="undone"):
        rollback_to_sync(trip.graph, end, kit=trip.shop.kit)
    trip.assert_agrees()


def test_an_effect_that_cannot_be_undone_is_refused_before_anything_is(shop):
    class Human:
        def ask(self, request):
            return Approval(True, "ann")

    shop.kit = type(shop.kit)(
        "shop", wal=str(shop.folder / "log"), gate=PreFlightGate(approval_provider=Human())
    )
    trip = Trip(shop, semantics="IRREVERSIBLE")
    trip.run(GO)
    with pytest.raises(UndoRefused, match="IRREVERSIBLE"):
        trip.back("charge")
    assert trip.state() == ["book", "charge", "email"]
    trip.assert_agrees()


def test_an_inverse_that_fails_leaves_the_thread_as_it_was(trip):
    trip.run(GO)
    trip.shop.world.fail_before(9, kind="inverse")
    with pytest.raises(SagaError) as failed:
        trip.back("charge")
    assert not failed.value.report.clean
    assert "agent-saga show" in failed.value.fix
    assert trip.state() == ["book", "charge", "email"]


def test_a_process_that_dies_before_the_copy_is_made_goes_on(trip, monkeypatch):
    trip.run(GO)
    with monkeypatch.context() as dying:
        dying.setattr(type(trip.graph), "update_state", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            trip.back("charge")
    with pytest.raises(SagaClosed, match="undone"):
        trip.run({"log": []})
    trip.back("charge")
    trip.run(None)
    trip.assert_agrees()
    assert trip.shop.world.undone() == ["email", "charge"]


def test_where_a_checkpoint_cannot_be_copied_the_run_begins_at_it(trip, monkeypatch):
    def refuses(*args, **options):
        raise InvalidUpdateError("there is no such node")

    trip.run(GO)
    target = trip.before("charge")
    with monkeypatch.context() as old:
        old.setattr(type(trip.graph), "update_state", refuses)
        config = trip.back("charge")
    assert config == target
    trip.run(None, config)
    trip.assert_agrees()


def test_the_checkpoint_must_be_named_and_known(trip):
    trip.run(GO)
    with pytest.raises(UndoRefused, match="names no checkpoint"):
        rollback_to_sync(trip.graph, THREAD, kit=trip.shop.kit)
    wrong = {"configurable": {"thread_id": "1", "checkpoint_id": "no such one"}}
    with pytest.raises(ConfigurationError, match="no such one"):
        rollback_to_sync(trip.graph, wrong, kit=trip.shop.kit)
    trip.assert_agrees()


# --- ways that nobody chose -----------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.sampled_from(["", "!", "?"])),
        st.tuples(st.just("back"), st.integers(0, 20)),
        st.tuples(st.just("go on"), st.just(0)),
        st.tuples(st.just("fail"), st.sampled_from(["book", "charge", "email"])),
        st.tuples(st.just("inside"), st.sampled_from(["", "fails"])),
    ),
    min_size=2,
    max_size=7,
)


@pytest.mark.property
@settings(max_examples=200 if FULL else 12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, asks=st.sampled_from(["", "charge"]))
def test_world_and_state_agree_after_any_travels(steps, asks, tmp_path_factory):
    from conftest import Shop

    with process_handlers().isolated():
        shop = Shop(tmp_path_factory.mktemp("shop"))
        trip = Trip(shop, asks=asks)
        for what, how in [("turn", ""), *steps]:
            undone = _travel(trip, what, how)
            if not undone and not trip.graph.get_state(THREAD).tasks:
                trip.assert_agrees()
        shop.kit.runtime.wal.close()


def _in_a_boundary_of_the_program(trip, *, fails):
    with trip.shop.kit.transaction():
        trip.run({"log": [], "suffix": ""})
        if fails:
            raise RuntimeError("the program failed")


def _travel(trip, what, how):
    """Do one thing; say whether the thread's state tells of effects that were undone."""
    trip.fails = how if what == "fail" else ""
    try:
        if what == "back":
            history = list(trip.graph.get_state_history(THREAD))
            target = history[how % len(history)].config
            rollback_to_sync(trip.graph, target, kit=trip.shop.kit)
            if not trip.graph.get_state(THREAD).interrupts:
                trip.assert_agrees()
        elif what == "inside":
            _in_a_boundary_of_the_program(trip, fails=how == "fails")
        elif what == "go on":
            trip.run(Command(resume="yes") if trip.graph.get_state(THREAD).interrupts else None)
        else:
            trip.run({"log": [], "suffix": how if what == "turn" else ""})
    except (SagaAborted, SagaClosed):
        return True
    except (BranchRefused, UndoRefused, EmptyInputError):
        return False
    return False

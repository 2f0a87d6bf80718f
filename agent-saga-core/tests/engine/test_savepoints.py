"""Savepoints: their own failure undoes them only, the outer failure undoes them too."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from agent_saga import (
    AbortRequested,
    AgentKit,
    Approval,
    CommittedUnsettled,
    Compensation,
    ConfigurationError,
    MemoryWAL,
    PreFlightGate,
    SagaAborted,
    SagaClosed,
    SagaUnwinding,
    current_saga,
    saga_scope,
)
from agent_saga.domain.fold import fold
from agent_saga.observe.correlation import SAGA_ID
from agent_saga_testing.waiting import until


class Boom(Exception):
    pass


def test_the_outer_failure_undoes_what_an_inner_boundary_did(mode, kit, world, charge):
    async def body(saga):
        async with mode.open(kit.transaction()):
            await mode.call(charge, 1)
        await mode.call(charge, 2)
        raise Boom

    error = mode.attempt(kit, body)
    assert error.report.clean
    assert world.refunds == ["ch2", "ch1"]


def test_an_inner_failure_undoes_the_inner_steps_only(mode, kit, world, charge):
    async def body(saga):
        await mode.call(charge, 1)
        with pytest.raises(SagaAborted) as caught:
            async with mode.open(saga.savepoint("inner")):
                await mode.call(charge, 2)
                raise Boom
        assert caught.value.report.clean
        await mode.call(charge, 3)

    assert mode.attempt(kit, body) is None
    assert world.standing == ["ch1", "ch3"]


def test_undone_savepoints_are_not_undone_again_by_the_outer_failure(mode, kit, world, charge):
    async def body(saga):
        with contextlib.suppress(SagaAborted):
            async with mode.open(saga.savepoint("inner")):
                await mode.call(charge, 1)
                raise Boom
        raise Boom

    error = mode.attempt(kit, body)
    assert world.refunds == ["ch1"]
    assert error.report.clean


def test_savepoints_in_savepoints_are_undone_from_the_inside_out(mode, kit, world, charge):
    async def body(saga):
        await mode.call(charge, 1)
        async with mode.open(saga.savepoint("a")):
            await mode.call(charge, 2)
            async with mode.open(saga.savepoint("b")):
                await mode.call(charge, 3)
            await mode.call(charge, 4)
        raise Boom

    mode.attempt(kit, body)
    assert world.refunds == ["ch4", "ch3", "ch2", "ch1"]


@pytest.mark.guarantee("SAVE-1")
@pytest.mark.parametrize("without", ["inverse", "success"])
def test_a_savepoint_that_leaves_something_standing_keeps_the_commit_from_being_clean(
    mode, kit, world, without
):
    def broken(number):
        raise RuntimeError("cannot")

    def inverse(result):
        return Compensation(fn=broken, kwargs={"number": result["id"]})

    tool = kit.safe_tool(
        mode.fn(world.charge),
        "COMPENSABLE",
        inverse if without == "success" else None,
        name="half",
    )

    async def body(saga):
        with contextlib.suppress(SagaAborted):
            async with mode.open(saga.savepoint("inner")):
                await mode.call(tool, 1)
                raise Boom

    error = mode.attempt(kit, body)
    assert isinstance(error, CommittedUnsettled)
    assert not error.report.clean
    assert world.standing == ["ch1"]


def test_a_pivot_in_a_failed_savepoint_is_reported_as_kept(mode, world, wal, fast):
    class Yes:
        def ask(self, request):
            return Approval(True, "ann")

    kit = AgentKit("pivot", wal=wal, settings=fast, gate=PreFlightGate(approval_provider=Yes()))
    wire = kit.safe_tool(mode.fn(world.charge), "IRREVERSIBLE", name="wire")

    async def body(saga):
        with contextlib.suppress(SagaAborted):
            async with mode.open(saga.savepoint("inner")):
                await mode.call(wire, 1)
                raise Boom

    scope = kit.transaction()

    async def whole():
        async with mode.open(scope) as saga:
            await body(saga)

    with contextlib.suppress(CommittedUnsettled):
        mode.run(whole())
    assert not scope.report.clean
    assert [line.tool for line in scope.report.kept] == ["wire"]


def test_a_late_arrival_in_a_savepoint_that_was_given_up_is_never_clean(kit, world):
    go = threading.Event()

    def pay(amount):
        go.wait(10)
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE", timeout=0.05, name="slowly")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    with pytest.raises(CommittedUnsettled) as caught, kit.transaction() as saga:
        with contextlib.suppress(SagaAborted), saga.savepoint("inner"):
            tool(5)
        go.set()
        until(lambda: world.charges)
    assert world.standing == ["ch1"]
    assert not caught.value.report.clean


def test_a_late_arrival_that_needs_no_undoing_is_told_as_the_log_tells_it(kit, wal, world):
    """Its savepoint was given up, and whoever reads the log finds it so: no report says better."""
    go = threading.Event()

    def note(amount):
        go.wait(10)
        return world.charge(amount)

    harmless = Compensation.none("a line that nobody reads")
    tool = kit.safe_tool(note, "COMPENSABLE", timeout=0.05, compensate=lambda result: harmless)

    with pytest.raises(CommittedUnsettled) as caught, kit.transaction() as saga:
        with contextlib.suppress(SagaAborted), saga.savepoint("inner"):
            tool(5)
        go.set()
        until(lambda: "STEP_LATE" in [record.event for record in wal.read_all()])
    assert not caught.value.report.clean
    assert not fold(wal.read_all())[saga.id].clean


def test_the_outer_failure_undoes_a_late_arrival_of_a_savepoint_that_was_given_up(kit, world):
    go = threading.Event()

    def pay(amount):
        go.wait(10)
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE", timeout=0.05, name="slowly")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    orphan = kit.safe_tool(world.charge, "COMPENSABLE", name="without_inverse")

    with pytest.raises(SagaAborted) as caught, kit.transaction() as saga:
        with contextlib.suppress(SagaAborted), saga.savepoint("inner"):
            orphan(1)
            tool(5)
        go.set()
        until(lambda: len(world.charges) == 2)
        raise Boom
    assert world.standing == ["ch1"]
    assert not caught.value.report.clean


@pytest.mark.guarantee("UNDO-1")
def test_an_inverse_that_failed_in_a_savepoint_is_not_run_again_by_the_outer_ones(kit, world):
    runs = []

    def refund(number):
        runs.append(number)
        if number == "ch1":
            raise RuntimeError("who knows")

    tool = kit.safe_tool(
        world.charge,
        compensate=lambda r: Compensation(fn=refund, kwargs={"number": r["id"]}),
        name="unsure",
    )

    with pytest.raises(SagaAborted) as caught, kit.transaction() as saga:
        with contextlib.suppress(SagaAborted), saga.savepoint("outer"):
            with contextlib.suppress(SagaAborted), saga.savepoint("middle"):
                with contextlib.suppress(SagaAborted), saga.savepoint("inner"):
                    tool(1)
                    raise Boom
                raise Boom
            raise Boom
        raise Boom
    assert runs == ["ch1"]
    assert not caught.value.report.clean


@pytest.mark.guarantee("UNDO-1")
def test_a_halt_does_not_hide_that_an_inverse_was_run(kit, world):
    runs, go = [], threading.Event()

    def refund(number):
        runs.append(number)
        if number == "ch1":
            raise RuntimeError("who knows")

    def inverse(result):
        return Compensation(fn=refund, kwargs={"number": result["id"]})

    def pay(amount):
        go.wait(10)
        return world.charge(amount)

    unsure = kit.safe_tool(world.charge, compensate=inverse, name="unsure")
    slowly = kit.safe_tool(pay, compensate=inverse, timeout=0.05, name="slowly")

    with pytest.raises(SagaAborted) as caught, kit.transaction() as saga:
        with contextlib.suppress(SagaAborted), saga.savepoint("outer"):
            with contextlib.suppress(SagaAborted), saga.savepoint("inner"):
                unsure(1)
                raise Boom
            slowly(2)
        go.set()
        until(lambda: len(world.charges) == 2)
        raise Boom
    assert runs == ["ch1", "ch2"]
    assert not caught.value.report.clean


def test_a_halted_inverse_does_not_run_again_after_another_one_halted_before_it(kit, world):
    runs = []

    def refund(number):
        runs.append(number)
        raise RuntimeError("who knows")

    tool = kit.safe_tool(
        world.charge,
        compensate=lambda r: Compensation(fn=refund, kwargs={"number": r["id"]}),
        name="unsure",
    )
    with pytest.raises(SagaAborted), kit.transaction() as saga:
        with contextlib.suppress(SagaAborted), saga.savepoint("outer"):
            with contextlib.suppress(SagaAborted), saga.savepoint("inner"):
                tool(1)
                raise Boom
            tool(2)
            raise Boom
        raise Boom
    assert len(set(runs)) == len(runs)


def test_a_reversible_inverse_that_failed_in_a_savepoint_is_not_run_again(kit, world):
    runs = []

    def refund(number):
        runs.append(number)
        raise RuntimeError("who knows")

    tool = kit.safe_tool(
        world.charge,
        "REVERSIBLE",
        lambda r: Compensation(fn=refund, kwargs={"number": r["id"]}),
        name="scratch",
    )
    with pytest.raises(SagaAborted), kit.transaction() as saga:
        with contextlib.suppress(SagaAborted), saga.savepoint("inner"):
            tool(1)
            raise Boom
        raise Boom
    assert runs == ["ch1"]


def test_a_keyed_step_runs_again_in_another_savepoint_as_a_new_generation(mode, kit, world, charge):
    async def body(saga):
        for attempt in range(2):
            with contextlib.suppress(SagaAborted):
                async with mode.open(saga.savepoint(f"try{attempt}")):
                    await mode.call(charge.keyed("order"), 5)
                    if attempt == 0:
                        raise Boom

    assert mode.attempt(kit, body) is None
    assert world.standing == ["ch2"]
    assert world.keys[0] != world.keys[1]


def test_a_step_that_ran_again_in_a_savepoint_is_undone_with_it(mode, kit, world):
    from agent_saga import NotApplied

    def flaky(amount):
        if not world.keys:
            world.keys.append("")
            raise NotApplied("no")
        return world.charge(amount)

    tool = kit.safe_tool(
        mode.fn(flaky),
        compensate=lambda r: Compensation(fn=world.refund, kwargs={"number": r["id"]}),
    )

    async def body(saga):
        with pytest.raises(NotApplied):
            await mode.call(tool.keyed("order"), 5)
        with contextlib.suppress(SagaAborted):
            async with mode.open(saga.savepoint("inner")):
                await mode.call(tool.keyed("order"), 5)
                raise Boom
        assert world.standing == []

    assert mode.attempt(kit, body) is None


def test_a_retried_execute_runs_the_new_function(mode, kit, world):
    from agent_saga import NotApplied

    def first():
        raise NotApplied("no")

    async def body(saga):
        with pytest.raises(NotApplied):
            await mode.call(
                saga.execute, tool="pay", forward=mode.fn(first), semantics="COMPENSABLE", key="k"
            )
        answer = await mode.call(
            saga.execute,
            tool="pay",
            forward=mode.fn(lambda: "second"),
            semantics="COMPENSABLE",
            key="k",
        )
        assert answer == "second"

    assert mode.attempt(kit, body) is None


# --- parallel -------------------------------------------------------------------------------------


def test_parallel_savepoints_fail_each_for_itself(kit, world):
    async def pay(amount):
        await asyncio.sleep(0)
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE", name="parallel")

    @tool.undo
    async def refund(result):
        await asyncio.sleep(0)
        world.refund(result["id"])

    async def branch(saga, number):
        async with saga.savepoint(f"branch{number}"):
            await tool(number)
            await asyncio.sleep(0)
            if number % 2:
                raise Boom

    async def main():
        async with kit.transaction() as saga:
            await asyncio.gather(*[branch(saga, n) for n in range(6)], return_exceptions=True)

    asyncio.run(main())
    standing = {number for number, amount in world.charges if amount % 2 == 0}
    assert set(world.standing) == standing


def test_a_savepoint_opened_while_its_parent_is_being_fenced_takes_no_step(kit, world, monkeypatch):
    from agent_saga.engine.saga import Saga

    whole = Saga.check_open
    looked = []

    def fenced_after_the_first_look(self, scope):
        whole(self, scope)
        if not looked:
            looked.append(scope)
            self.root.fence()

    with pytest.raises(SagaAborted), kit.transaction() as saga:
        tool = kit.safe_tool(world.charge, "COMPENSABLE")
        monkeypatch.setattr(Saga, "check_open", fenced_after_the_first_look)
        with pytest.raises(SagaUnwinding), saga.savepoint("late"):
            tool(1)
        raise Boom
    assert world.charges == []


def test_a_step_after_the_end_of_its_savepoint_is_refused(kit, world, charge):
    kept = []
    with contextlib.suppress(SagaAborted), kit.transaction() as saga:
        with saga.savepoint("inner") as inner:
            kept.append(inner)
        with pytest.raises(SagaClosed):
            kept[0].bind(lambda: charge.call(1))()
    assert world.charges == []


# --- detached, abort, nesting of kits -------------------------------------------------------------


def test_a_detached_boundary_stands_when_the_outer_one_fails(mode, kit, world, charge):
    async def body(saga):
        async with mode.open(kit.transaction(detached=True)) as other:
            assert other.id != saga.id
            await mode.call(charge, 1)
        await mode.call(charge, 2)
        raise Boom

    error = mode.attempt(kit, body)
    assert world.standing == ["ch1"]
    assert error.report.clean


def test_an_abort_undoes_the_saga_even_when_it_is_swallowed(mode, kit, world, charge):
    async def body(saga):
        await mode.call(charge, 1)
        with contextlib.suppress(AbortRequested):
            saga.abort("changed my mind")

    error = mode.attempt(kit, body)
    assert isinstance(error, SagaAborted)
    assert isinstance(error.cause, AbortRequested)
    assert "changed my mind" in str(error)
    assert world.standing == []


def test_an_abort_in_a_savepoint_undoes_the_whole_saga(mode, kit, world, charge):
    async def body(saga):
        await mode.call(charge, 1)
        with contextlib.suppress(SagaAborted):
            async with mode.open(saga.savepoint("inner")) as inner:
                await mode.call(charge, 2)
                inner.abort("stop")

    error = mode.attempt(kit, body)
    assert isinstance(error, SagaAborted)
    assert world.standing == []


def test_reraise_gives_the_cause_itself_with_the_report(mode, kit, world, charge):
    async def body(saga):
        await mode.call(charge, 1)
        raise Boom("mine")

    error = mode.attempt(kit, body, reraise=True)
    assert type(error) is Boom
    assert error.saga_report.clean
    assert "was undone" in error.__notes__[0]


def test_a_boundary_on_another_log_or_gate_is_refused_inside_another_one(kit, world):
    other = AgentKit("other", wal=MemoryWAL())
    with kit.transaction():
        with pytest.raises(ConfigurationError), other.transaction():
            pass
        with pytest.raises(ConfigurationError), saga_scope(gate=PreFlightGate()):
            pass
        with other.transaction(detached=True):
            pass


def test_a_plain_scope_inside_a_kit_s_boundary_is_a_savepoint_of_it(kit, world):
    with kit.transaction() as outer, saga_scope(name="inner") as inner:
        assert inner.id == outer.id


def test_what_a_handler_calls_during_the_undoing_is_no_step_of_the_outer_saga(kit, world):
    audit = kit.safe_tool(world.charge, "COMPENSABLE", name="audit", outside="run")

    @audit.undo
    def unaudit(result):
        world.refund(result["id"])

    tool = kit.safe_tool(lambda: None, "COMPENSABLE", name="audited")

    @tool.undo
    def undo():
        audit(99)

    with pytest.raises(SagaAborted), kit.transaction() as saga:
        with contextlib.suppress(SagaAborted), saga.savepoint("inner"):
            tool()
            raise Boom
        raise Boom
    assert world.amounts == [99]
    assert world.refunds == []


def test_a_boundary_object_may_be_used_again_and_by_several_tasks(kit, world, charge):
    scope = kit.transaction()

    async def run(fails):
        with contextlib.suppress(SagaAborted):
            async with scope:
                await charge.acall(1)
                await asyncio.sleep(0.001)
                if fails:
                    raise Boom

    async def main():
        await asyncio.gather(*[run(n % 2) for n in range(6)])

    asyncio.run(main())
    assert len(world.charges) == 6
    assert len(world.refunds) == 3


@pytest.mark.parametrize("detached", [False, True])
def test_boundaries_that_are_left_in_another_order_leave_none_of_them_current(kit, world, detached):
    """As generators do that are advanced in turn."""
    pay = kit.safe_tool(world.charge, "COMPENSABLE", name="pay")

    def run(**options):
        with kit.transaction(**options) as saga:
            yield saga
        yield saga

    first, second = run(), run(detached=detached)
    outer, inner = next(first), next(second)
    next(first)
    current = current_saga()
    assert (current.id if current else None) == (inner.id if detached else None)
    next(second)
    assert current_saga() is None
    assert SAGA_ID.get() == ""
    with kit.transaction() as saga:
        pay(1)
    assert saga.report.clean
    assert saga.id not in (outer.id, inner.id)
    assert world.amounts == [1]


def test_a_boundary_that_is_left_over_an_open_one_ends_it_too(kit, world):
    pay = kit.safe_tool(world.charge, "COMPENSABLE", name="pay")

    def run():
        with kit.transaction():
            yield

    with kit.transaction():
        open_one = run()
        next(open_one)
    assert current_saga() is None
    open_one.close()
    assert current_saga() is None
    with kit.transaction():
        pay(1)
    assert world.amounts == [1]

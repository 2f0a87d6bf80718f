"""Cancellation at every point keeps its meaning for the caller, and the report its truth."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time

import anyio
import pytest

from agent_saga import Applied, FileWAL, NotApplied, SagaAborted, current_saga
from agent_saga.engine.boundary import current_scope
from agent_saga_testing.waiting import until


def truthful(world, report):
    """What the report says must hold in the world."""
    if report.clean:
        assert world.standing == []


@pytest.fixture
def slow(kit, world):
    """A tool whose effect happens half-way, between two awaits."""

    async def pay(amount, idempotency_key):
        await asyncio.sleep(0)
        done = world.charge(amount, idempotency_key)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return done

    tool = kit.safe_tool(pay, "COMPENSABLE", name="slow_pay")

    @tool.undo
    async def refund(result, idempotency_key):
        await asyncio.sleep(0)
        world.refund(result["id"], idempotency_key)
        await asyncio.sleep(0)

    @tool.probe
    def find(args, idempotency_key):
        for (number, amount), key in zip(world.charges, world.keys, strict=True):
            if key == idempotency_key:
                return Applied({"id": number, "amount": amount})
        return NotApplied(final=True)

    return tool


@pytest.mark.guarantee("CANCEL-1")
@pytest.mark.parametrize("turns", range(30))
def test_a_task_cancelled_after_any_number_of_turns_is_undone(kit, world, slow, turns):
    async def agent():
        async with kit.transaction():
            await slow(1)
            await slow(2)

    async def main():
        task = asyncio.ensure_future(agent())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError as error:
            return error
        return None

    error = asyncio.run(main())
    if error is None:
        assert world.amounts == [1, 2]
        assert world.refunds == []
        return
    assert world.standing == []
    assert len(set(world.refunds)) == len(world.refunds)
    report = getattr(error, "saga_report", None)
    if report is not None:
        assert report.clean


@pytest.mark.parametrize("turns", range(0, 40, 3))
def test_a_cancelled_step_with_a_disk_is_undone(tmp_path, fast, world, turns):
    from agent_saga import AgentKit

    wal = FileWAL(tmp_path / "log")
    kit = AgentKit("disk", wal=wal, settings=fast)

    @kit.tool("COMPENSABLE")
    async def pay(amount):
        return world.charge(amount)

    @pay.undo
    async def refund(result):
        world.refund(result["id"])

    @pay.probe
    def find(args):
        return Applied({"id": "ch1"}) if world.charges else NotApplied(final=True)

    async def agent():
        async with kit.transaction():
            await pay(1)
            await asyncio.sleep(5)

    async def main():
        task = asyncio.ensure_future(agent())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert world.standing == []
    wal.close()


@pytest.mark.guarantee("CANCEL-1")
def test_a_cancelled_tool_that_gave_no_answer_is_never_clean_without_a_prober(kit, world):
    async def pay(amount):
        world.charge(amount)
        await asyncio.sleep(60)

    tool = kit.safe_tool(pay, "COMPENSABLE")

    async def main():
        task = asyncio.ensure_future(agent())
        while not world.charges:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.saga_report

    async def agent():
        async with kit.transaction():
            await tool(5)

    report = asyncio.run(main())
    assert world.standing == ["ch1"]
    assert not report.clean
    assert [line.tool for line in report.orphaned] == ["pay"]


def test_the_thread_of_a_cancelled_sync_tool_is_waited_for_and_undone(kit, world):
    entered, go = threading.Event(), threading.Event()

    def pay(amount):
        entered.set()
        go.wait(10)
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE", name="threaded")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    async def agent():
        async with kit.transaction():
            await tool(5)

    async def main():
        task = asyncio.ensure_future(agent())
        await asyncio.to_thread(entered.wait, 60)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, go.set)
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.saga_report

    report = asyncio.run(main())
    assert world.amounts == [5]
    assert world.standing == []
    assert report.clean


def test_a_thread_that_outlives_the_settling_is_never_clean(kit, world):
    entered, go = threading.Event(), threading.Event()

    def pay(amount):
        entered.set()
        go.wait(10)
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE")

    async def agent():
        async with kit.transaction():
            await tool(5)

    async def main():
        task = asyncio.ensure_future(agent())
        await asyncio.to_thread(entered.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.saga_report

    report = asyncio.run(main())
    assert not report.clean
    go.set()
    while not world.charges:
        time.sleep(0.001)


# --- the caller's own words for it ----------------------------------------------------------------


def test_asyncio_timeout_around_a_boundary_is_a_timeout_error_after_the_undoing(kit, world, charge):

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as bound, kit.transaction():
                await charge(5)
                bound.reschedule(0.0)
                await asyncio.sleep(10)
        assert world.standing == []
        assert world.refunds == ["ch1"]

    asyncio.run(main())


def test_wait_for_around_an_agent_is_a_timeout_error_after_the_undoing(kit, world, charge):
    async def agent():
        async with kit.transaction():
            await charge(5)
            loop = asyncio.get_running_loop()
            loop.time = lambda: time.monotonic() + 3600  # the bound is over now, and not before
            await asyncio.sleep(10)

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent(), 3600)
        assert world.refunds == ["ch1"]

    asyncio.run(main())


def test_a_timeout_inside_a_boundary_is_the_cause_of_its_failure(kit, world, charge):
    async def main():
        with pytest.raises(SagaAborted) as caught:
            async with kit.transaction():
                await charge(5)
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(10)
        assert isinstance(caught.value.cause, TimeoutError)
        assert world.refunds == ["ch1"]

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.003, 0.01, 0.03])
def test_a_timeout_round_a_tool_with_a_time_of_its_own_is_never_lost(kit, world, seconds):
    async def pay(amount):
        await asyncio.sleep(0)
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE", timeout=5, name="timed")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds), kit.transaction():
                while True:
                    await tool.keyed(str(len(world.charges)))(1)

    asyncio.run(main())
    assert world.standing == []


def test_a_cancellation_in_the_same_turn_in_which_a_timed_tool_ends_reaches_the_caller(kit, world):
    task = None

    async def pay(amount):
        task.cancel()
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE", timeout=5, name="same_turn")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    async def agent():
        async with kit.transaction():
            await tool(5)

    async def main():
        nonlocal task
        task = asyncio.ensure_future(agent())
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert world.amounts == [5]
    assert world.standing == []


def test_a_cancellation_while_a_prober_is_asked_at_the_commit_reaches_the_caller(kit, world):
    task = None

    async def pay(amount):
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    tool = kit.safe_tool(pay, "COMPENSABLE", name="probed")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    @tool.probe
    async def find(args):
        if not task.cancelling():
            task.cancel()
            await asyncio.sleep(1)
        return Applied({"id": "ch1"})

    async def agent():
        async with kit.transaction():
            with contextlib.suppress(RuntimeError):
                await tool(5)

    async def main():
        nonlocal task
        task = asyncio.ensure_future(agent())
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.saga_report

    report = asyncio.run(main())
    truthful(world, report)
    assert world.standing == []


def test_a_cancelled_question_to_a_prober_in_a_blind_retry_reaches_the_caller(kit, world):
    async def pay(amount):
        world.charge(amount)
        raise RuntimeError("the answer was lost")

    async def find(args):
        await asyncio.sleep(10)

    tool = kit.safe_tool(pay, "COMPENSABLE", prober=find)

    async def agent():
        async with kit.transaction():
            with contextlib.suppress(RuntimeError):
                await tool(5)
            async with asyncio.timeout(0.02):
                await tool(5)

    async def main():
        with pytest.raises(SagaAborted) as caught:
            await agent()
        assert isinstance(caught.value.cause, TimeoutError)

    asyncio.run(main())
    assert world.amounts == [5]


@pytest.mark.parametrize("turns", range(12))
def test_cancelling_again_during_the_undoing_leaves_nothing_undone(kit, world, slow, turns):
    async def agent():
        async with kit.transaction():
            for amount in (1, 2, 3):
                await slow(amount)
            raise RuntimeError("fail")

    async def main():
        task = asyncio.ensure_future(agent())
        while len(world.charges) < 3:
            await asyncio.sleep(0)
        for _ in range(5 + turns):
            await asyncio.sleep(0)
        task.cancel()
        task.cancel()
        with pytest.raises((asyncio.CancelledError, SagaAborted)):
            await task

    asyncio.run(main())
    assert world.standing == []
    assert sorted(world.refunds) == ["ch1", "ch2", "ch3"]


def test_a_task_group_sibling_s_failure_undoes_both(kit, world, slow):
    async def bad():
        await asyncio.sleep(0)
        raise ValueError("bad")

    async def main():
        with pytest.raises(SagaAborted):
            async with kit.transaction(), asyncio.TaskGroup() as group:
                group.create_task(slow(1))
                group.create_task(bad())
                group.create_task(slow(2))

    asyncio.run(main())
    assert world.standing == []


def test_a_gather_sibling_that_still_runs_is_waited_for_and_undone(kit, world):
    async def late(amount):
        await asyncio.sleep(0.05)
        return world.charge(amount)

    tool = kit.safe_tool(late, "COMPENSABLE", name="late_pay")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    async def bad():
        raise ValueError("bad")

    async def main():
        with pytest.raises(SagaAborted) as caught:
            async with kit.transaction():
                await asyncio.gather(tool(1), bad())
        assert caught.value.report.clean
        await asyncio.sleep(0.1)

    asyncio.run(main())
    assert world.standing == []


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.02])
def test_an_anyio_scope_keeps_its_meaning(kit, world, slow, seconds):
    async def main():
        with anyio.move_on_after(seconds) as scope:
            async with kit.transaction():
                while True:
                    await slow(1)
        assert scope.cancelled_caught
        assert world.standing == []

    anyio.run(main)


def test_waiting_for_the_disk_in_a_cancelled_anyio_scope_does_not_burn_the_processor(
    tmp_path, fast, world
):
    from agent_saga import AgentKit
    from agent_saga_testing.faults import FaultyPort

    port = FaultyPort()
    wal = FileWAL(tmp_path / "log", port=port)
    kit = AgentKit("anyio", wal=wal, settings=fast)

    @kit.tool("COMPENSABLE")
    async def pay(amount):
        return world.charge(amount)

    asked = []
    whole = wal.durable_future

    def counted(seq, loop):
        asked.append(seq)
        return whole(seq, loop)

    async def main():
        wal.append("SAGA_RELEASED", saga="x", epoch=1)
        await wal.barrier()
        hang = port.hang("fdatasync")
        wal.durable_future = counted
        with anyio.CancelScope() as scope:
            loop = asyncio.get_running_loop()
            loop.call_later(0.02, scope.cancel)
            loop.call_later(0.1, hang.release)
            async with kit.transaction():
                await pay(5)

    anyio.run(main)
    wal.close()
    assert world.charges == []
    assert len(asked) < 20


# --- the loop is torn down ------------------------------------------------------------------------


def test_a_background_agent_at_the_end_of_asyncio_run_is_undone(kit, world, slow):
    async def agent():
        async with kit.transaction():
            await slow(1)
            await asyncio.sleep(60)

    async def main():
        task = asyncio.ensure_future(agent())
        while len(world.charges) < 1:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        return task

    task = asyncio.run(main())
    assert task.cancelled()
    assert world.standing == []


def test_an_inverse_torn_down_with_the_loop_is_unknown_and_the_saga_released(
    kit, world, charge, events
):
    started = threading.Event()
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="stubborn")

    @tool.undo
    async def refund(result):
        started.set()
        await asyncio.sleep(60)

    task = None

    async def agent():
        async with kit.transaction():
            await tool(1)
            raise RuntimeError("fail")

    async def main():
        nonlocal task
        task = asyncio.ensure_future(agent())
        while not started.is_set():
            await asyncio.sleep(0.001)

    asyncio.run(main())
    written = events()
    assert "STEP_COMPENSATION_UNKNOWN" in written
    assert written[-1] == "SAGA_RELEASED"
    assert task.cancelled()


def test_a_closed_coroutine_releases_its_saga(kit, world, events):
    async def pay(amount):
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE")

    async def agent():
        async with kit.transaction():
            await tool(5)
            await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    coroutine = agent()

    async def some_turns():
        coroutine.send(None)
        while not world.charges:
            await asyncio.sleep(0)
            with contextlib.suppress(StopIteration):
                coroutine.send(None)

    with contextlib.suppress(RuntimeError):
        loop.run_until_complete(some_turns())
    coroutine.close()
    loop.close()
    assert current_scope.get() is None
    assert events()[-1] == "SAGA_RELEASED"


@pytest.mark.parametrize("timeout", [None, 5])
def test_a_tool_closed_while_it_runs_is_unknown_and_the_saga_released(kit, events, timeout):
    async def hang():
        await asyncio.sleep(60)

    tool = kit.safe_tool(hang, "COMPENSABLE", timeout=timeout)

    async def agent():
        async with kit.transaction():
            await tool()

    loop = asyncio.new_event_loop()
    task = loop.create_task(agent())
    for _ in range(20):
        loop.run_until_complete(asyncio.sleep(0))
    coroutine = task.get_coro()
    coroutine.close()
    written = events()
    assert "STEP_UNKNOWN" in written
    assert written[-1] == "SAGA_RELEASED"
    with contextlib.suppress(asyncio.CancelledError, RuntimeError):
        task.cancel()
        loop.run_until_complete(task)
    for left in asyncio.all_tasks(loop):
        left.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(left)
    loop.close()
    gc.collect()


def test_an_asynchronous_generator_closed_elsewhere_releases_its_saga(kit, events, charge):
    async def agent():
        async with kit.transaction():
            await charge(5)
            yield 1

    async def main():
        steps = agent()
        task = asyncio.ensure_future(anext(steps))
        assert await task == 1
        await steps.aclose()

    asyncio.run(main())
    assert events()[-1] == "SAGA_RELEASED"


def test_no_boundary_is_current_after_a_cancelled_one(kit, world, slow):
    async def main():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01), kit.transaction():
                await slow(1)
                await asyncio.sleep(5)
        assert current_saga() is None

    asyncio.run(main())


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_must_not_be_swallowed_leaves_a_boundary_as_it_came(mode, kit, world, kind, events):
    def pay(amount):
        world.charge(amount)
        raise kind

    tool = kit.safe_tool(mode.fn(pay), "COMPENSABLE")

    async def body(saga):
        await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert isinstance(error, kind)
    report = getattr(error, "saga_report", None)
    if report is None:
        assert events()[-1] == "SAGA_RELEASED"
    else:
        assert not report.clean
        assert len(report.orphaned) == 1


def test_a_saga_whose_loop_was_closed_while_a_tool_ran_is_released(kit, world):
    """An idle thread of the pool keeps nothing of what it ran last, so the coroutine ends."""
    began, goes_on = threading.Event(), threading.Event()

    def slow():
        began.set()
        goes_on.wait(10)
        return world.charge(1)

    tool = kit.safe_tool(slow, "COMPENSABLE", name="slow")
    sagas = []

    async def agent():
        async with kit.transaction() as saga:
            sagas.append(saga)
            await tool()

    loop = asyncio.new_event_loop()
    loop.create_task(agent())  # noqa: RUF006 - nobody keeps it, that is the point
    while not began.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del loop
    goes_on.set()

    def released():
        gc.collect()
        return sagas[0]._scope.saga.released

    until(released)

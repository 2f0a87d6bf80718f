"""Steps from several threads and loops, contexts that get lost, and what runs outside."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_saga import (
    AgentKit,
    CommittedUnsettled,
    ConfigurationError,
    MemoryWAL,
    NoBoundary,
    SagaAborted,
    SagaClosed,
    SagaUnwinding,
    Settings,
    current_saga,
    saga_scope,
    tool_executor_stats,
)
from agent_saga.engine.pool import ToolPool
from agent_saga.engine.requests import Ending
from agent_saga.plugins.importing import importing
from agent_saga_testing.waiting import until


class Boom(Exception):
    pass


@pytest.fixture
def pay(kit, world):
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="pay")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    return tool


def test_steps_from_many_threads_are_all_undone(kit, world, pay):
    with pytest.raises(SagaAborted) as caught, kit.transaction() as saga:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(saga.bind(pay), range(64)))
        raise Boom
    assert len(world.charges) == 64
    assert world.standing == []
    assert len(set(world.refunds)) == len(world.refunds) == 64
    assert caught.value.report.clean


def test_steps_from_several_loops_of_one_saga_are_all_undone(kit, world):
    async def pay(amount):
        await asyncio.sleep(0)
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE", name="loops")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    async def several(start):
        await asyncio.gather(*[tool(start + n) for n in range(5)])

    with pytest.raises(SagaAborted) as caught, kit.transaction() as saga:
        threads = [
            threading.Thread(target=saga.bind(lambda n: asyncio.run(several(n))), args=(n * 10,))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        raise Boom
    assert len(world.charges) == 20
    assert world.standing == []
    assert caught.value.report.clean


@pytest.mark.guarantee("KEY-1")
def test_the_same_key_at_the_same_time_is_one_effect(kit, world, pay):
    start = threading.Barrier(8)

    def call(_):
        start.wait()
        return pay.keyed("order")(5)

    with kit.transaction() as saga, ThreadPoolExecutor(8) as threads:
        results = list(threads.map(saga.bind(call), range(8)))
    assert world.amounts == [5]
    assert all(result == results[0] for result in results)


@pytest.mark.guarantee("KEY-1")
def test_the_same_key_at_the_same_time_on_one_loop_is_one_effect(kit, world):
    async def slowly(amount):
        await asyncio.sleep(0.01)
        return world.charge(amount)

    tool = kit.safe_tool(slowly, "COMPENSABLE")

    async def main():
        async with kit.transaction():
            results = await asyncio.gather(*[tool.keyed("order")(5) for _ in range(8)])
            assert all(result == results[0] for result in results)

    asyncio.run(main())
    assert world.amounts == [5]


def test_a_thread_of_one_s_own_loses_the_boundary_and_it_is_said(kit, world, pay, caplog):
    with kit.transaction():
        thread = threading.Thread(target=pay, args=(5,))
        thread.start()
        thread.join()
    assert world.amounts == [5]
    assert "outside any boundary" in caplog.text


def test_a_bound_function_keeps_the_boundary_in_a_thread_of_one_s_own(kit, world, pay):
    with pytest.raises(SagaAborted), kit.transaction() as saga:
        thread = threading.Thread(target=saga.bind(pay), args=(5,))
        thread.start()
        thread.join()
        raise Boom
    assert world.standing == []


@pytest.mark.guarantee("FENCE-1")
def test_a_background_task_that_calls_after_the_end_is_refused(kit, world):
    async def act(amount):
        return world.charge(amount)

    tool = kit.safe_tool(act, "COMPENSABLE")

    async def later(go):
        await go.wait()
        await tool(5)

    async def main():
        go = asyncio.Event()
        async with kit.transaction():
            task = asyncio.ensure_future(later(go))
            await asyncio.sleep(0)
        go.set()
        with pytest.raises(SagaClosed):
            await task
        go.clear()
        with contextlib.suppress(SagaAborted):
            async with kit.transaction():
                task = asyncio.ensure_future(later(go))
                await asyncio.sleep(0)
                raise Boom
        go.set()
        with pytest.raises(SagaUnwinding):
            await task

    asyncio.run(main())
    assert world.charges == []


@pytest.mark.guarantee("FENCE-1")
def test_no_step_starts_while_its_saga_is_being_undone(kit, world, pay):
    tried = []

    def undo_and_try(number):
        def attempt():
            try:
                pay.call(99)
            except Exception as error:
                tried.append(type(error))

        thread = threading.Thread(target=holder[0].bind(attempt))
        thread.start()
        thread.join()
        world.refund(number)

    holder = []
    other = kit.safe_tool(
        world.charge,
        compensate=lambda r: {"fn": undo_and_try, "handler": None, "kwargs": {"number": r["id"]}},
        name="other",
    )
    with pytest.raises(SagaAborted), kit.transaction() as saga:
        holder.append(saga)
        other(1)
        raise Boom
    assert tried == [SagaUnwinding]
    assert 99 not in world.amounts


# --- outside --------------------------------------------------------------------------------------


def test_a_tool_outside_runs_as_the_bare_function_with_one_warning(mode, kit, world, caplog):
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", name="bare")

    async def body():
        with caplog.at_level(logging.WARNING):
            await mode.call(tool, 5) if mode.name == "async" else tool(5)
            await mode.call(tool, 6) if mode.name == "async" else tool(6)

    mode.run(body())
    assert world.amounts == [5, 6]
    assert len([r for r in caplog.records if "bare runs outside" in r.getMessage()]) == 1
    assert all(len(key) == 64 for key in world.keys)


@pytest.mark.guarantee("OUTSIDE-1")
def test_an_irreversible_tool_outside_is_refused(kit, world):
    tool = kit.safe_tool(world.charge, "IRREVERSIBLE")
    with pytest.raises(NoBoundary):
        tool(5)
    assert world.charges == []


@pytest.mark.parametrize(
    ("policy", "semantics", "runs", "warns"),
    [
        ("run", "COMPENSABLE", True, False),
        ("warn", "COMPENSABLE", True, True),
        ("refuse", "COMPENSABLE", False, False),
        ("refuse", "REVERSIBLE", False, False),
        ("run", "IRREVERSIBLE", True, False),
        ("warn", "IRREVERSIBLE", True, True),
    ],
)
def test_what_a_tool_does_outside_is_its_declaration(
    kit, world, policy, semantics, runs, warns, caplog
):
    tool = kit.safe_tool(world.charge, semantics, outside=policy)
    with contextlib.suppress(NoBoundary):
        tool(5)
    assert bool(world.charges) is runs
    assert ("outside any boundary" in caplog.text) is warns


def test_the_kit_s_setting_holds_for_tools_that_do_not_say(world, fast):
    kit = AgentKit("strict", wal=MemoryWAL(), settings=fast.replace(outside="refuse"))
    tool = kit.safe_tool(world.charge, "COMPENSABLE")
    with pytest.raises(NoBoundary):
        tool(5)
    assert world.charges == []


def test_a_tool_of_another_kit_is_refused_in_a_boundary(kit, world):
    other = AgentKit("other", wal=MemoryWAL())
    tool = other.safe_tool(world.charge, "COMPENSABLE")
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        tool(5)
    assert isinstance(caught.value.cause, ConfigurationError)
    assert world.charges == []


def test_a_tool_of_a_kit_runs_in_a_boundary_of_no_kit(kit, world, pay):
    with saga_scope(wal=MemoryWAL()):
        pay(5)
    assert world.amounts == [5]


@pytest.mark.guarantee("IMPORT-1")
def test_nothing_happens_while_a_module_is_loaded_for_its_handlers(kit, world, pay):
    with importing("careless_module"):
        with pytest.raises(ConfigurationError, match="careless_module"):
            pay(5)
        with pytest.raises(ConfigurationError, match="careless_module"), kit.transaction():
            pass
    assert world.charges == []


def test_the_current_saga_is_known_inside_only(mode, kit):
    async def body(saga):
        assert current_saga().id == saga.id
        async with mode.open(kit.transaction()) as inner:
            assert current_saga().id == inner.id == saga.id

    assert mode.attempt(kit, body) is None
    assert current_saga() is None


# --- the pool -------------------------------------------------------------------------------------


def test_hanging_tools_do_not_starve_the_others(world, fast):
    kit = AgentKit("small", wal=MemoryWAL(), settings=fast.replace(tool_threads=2, settle=0.0))
    go = threading.Event()
    hang = kit.safe_tool(lambda: go.wait(20), "REVERSIBLE", timeout=0.05, name="hang")
    quick = kit.safe_tool(world.charge, "REVERSIBLE")

    async def main():
        async with kit.transaction():
            with contextlib.suppress(TimeoutError):
                await asyncio.gather(*[hang.keyed(str(n))() for n in range(4)])
            await quick(5)

    asyncio.run(main())
    go.set()
    assert world.amounts == [5]


def test_the_pool_keeps_its_bound_when_calls_that_were_given_up_end_after_all():
    pool = ToolPool(2)
    go, more = threading.Event(), threading.Event()

    def jobs(held):
        return [pool.submit(lambda: held.wait(60) and Ending(), lambda _: None) for _ in range(2)]

    given_up = jobs(go)
    until(lambda: pool.stats()["queued"] == 0)
    for job in given_up:
        assert job.give_up(None) is None
    jobs(go)
    until(lambda: pool.stats()["queued"] == 0)
    go.set()
    until(lambda: pool.stats()["threads"] == 2)
    jobs(more)
    jobs(more)
    until(lambda: (pool.stats()["idle"], pool.stats()["queued"]) == (0, 2))
    assert pool.stats()["threads"] == 2
    more.set()


def test_a_job_that_was_given_up_before_it_started_never_runs():
    pool = ToolPool(1)
    go, ran = threading.Event(), []
    first = pool.submit(lambda: go.wait(20) and Ending(), lambda ending: None)
    second = pool.submit(lambda: ran.append(1) or Ending(), lambda ending: None)
    given_up = second.give_up(None)
    assert given_up is not None
    assert not given_up.started
    go.set()
    done = threading.Event()
    pool.submit(Ending, lambda ending: done.set())
    assert done.wait(60)
    assert ran == []
    assert first.give_up(None) is not None
    assert pool.stats()["max_threads"] == 1


def test_a_thread_that_cannot_be_started_leaves_no_job_behind(monkeypatch):
    pool = ToolPool(1)
    ran = []

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    endings = []
    pool.submit(lambda: ran.append(1) or Ending(), endings.append)
    monkeypatch.undo()
    assert len(endings) == 1
    assert not endings[0].started
    done = threading.Event()
    pool.submit(Ending, lambda ending: done.set())
    assert done.wait(60)
    assert ran == []


def test_the_pool_can_be_asked_how_it_is():
    assert set(tool_executor_stats()) == {
        "max_threads",
        "threads",
        "idle",
        "busy",
        "abandoned",
        "queued",
    }


def test_a_step_that_waits_for_its_turn_when_the_boundary_fails_never_runs(world, fast):
    kit = AgentKit("small", wal=MemoryWAL(), settings=fast.replace(tool_threads=1))
    hangs, go = threading.Event(), threading.Event()
    hang = kit.safe_tool(lambda: hangs.set() or go.wait(20), "REVERSIBLE", name="hang")
    queued = kit.safe_tool(world.charge, "COMPENSABLE", name="queued")

    async def agent():
        async with kit.transaction() as saga:
            running, waiting = asyncio.ensure_future(hang()), asyncio.ensure_future(queued(5))
            pool = saga._scope.saga.engine.pool
            while not (hangs.is_set() and pool.stats()["queued"] == 1):
                await asyncio.sleep(0.001)
            # The one that waits is told first: else it may get the thread's place meanwhile.
            await asyncio.gather(waiting, running)

    async def main():
        boundary = asyncio.ensure_future(agent())
        await asyncio.to_thread(until, lambda: kit.runtime.engine().pool.stats()["queued"] == 1)
        boundary.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await boundary

    asyncio.run(main())
    go.set()
    assert world.charges == []


def test_a_running_step_at_the_end_of_a_boundary_is_never_clean(kit, world):
    go = threading.Event()

    def pay(amount):
        go.wait(20)
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE")

    async def main():
        async with kit.transaction():
            task = asyncio.ensure_future(tool(5))
            await asyncio.sleep(0.02)
        return task

    with pytest.raises(CommittedUnsettled) as caught:
        asyncio.run(main())
    go.set()
    assert not caught.value.report.clean


def test_tools_that_run_agents_of_their_own_do_not_wait_for_each_other_for_ever(wal, world):
    """As many as there are threads, each of which waits for a tool that needs a thread too."""
    kit = AgentKit("nested", wal=wal, settings=Settings(tool_threads=2))
    pay = kit.safe_tool(world.charge, "COMPENSABLE", name="pay")
    together = threading.Barrier(2)

    def ask(amount):
        async def agent():
            await asyncio.gather(pay(amount), pay(amount + 1))

        together.wait(60)
        asyncio.run(agent())

    tool = kit.safe_tool(ask, "REVERSIBLE", name="ask")

    async def main():
        async with kit.transaction():
            async with asyncio.timeout(60):
                await asyncio.gather(*[tool(10 * n) for n in range(4)])

    asyncio.run(main())
    assert sorted(world.amounts) == [0, 1, 10, 11, 20, 21, 30, 31]
    pool = kit.runtime.engine().pool
    assert pool._asking == 0
    until(lambda: pool.stats()["threads"] <= 2)

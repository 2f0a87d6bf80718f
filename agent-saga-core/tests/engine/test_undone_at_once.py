"""A boundary and a savepoint in it that are undone at the same time: each inverse runs once."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import random
import threading
import time

import pytest

from agent_saga import AgentKit, FileWAL, MemoryWAL, SagaAborted, Settings, compensator, last_report
from agent_saga.engine import in_hand
from agent_saga.errors import AgentSagaError
from agent_saga.wal.reader import records
from agent_saga_testing.waiting import until


class Desk:
    """Two bookings, one of them in a savepoint; its undoing takes as long as the test likes."""

    def __init__(self, *, idempotent=False, fails=False, settings=None):
        self.undone, self.stands = [], []
        self.reached, self.released = threading.Event(), threading.Event()
        self.kit = AgentKit("desk", wal=MemoryWAL(), settings=settings)

        @compensator("desk.cancel", idempotent=idempotent)
        def cancel(item, *, idempotency_key):
            self.undone.append(item)
            if item == "room":
                self.reached.set()
                until(self.released.is_set)
                if fails:
                    raise ValueError("the hotel is closed")
            self.stands.remove(item)

        def book(item):
            self.stands.append(item)
            return {"item": item}

        self.book = self.kit.safe_tool(book, "COMPENSABLE", compensate=cancel.using(item="$.item"))

    def inner(self, saga):
        with contextlib.suppress(SagaAborted), saga.savepoint("inner"):
            self.book("room")
            raise ValueError("the savepoint fails")

    def undoes(self, saga):
        """Let the savepoint be undone on another thread; its inverse is held."""
        self.book("seat")
        context = contextvars.copy_context()
        self.thread = threading.Thread(target=lambda: context.run(self.inner, saga))
        self.thread.start()
        until(self.reached.is_set)


@pytest.fixture
def waits(monkeypatch):
    """Tell when somebody waits for an undoing of somebody else; then the inverse may go on."""
    seen = threading.Event()
    given = in_hand.ended_by

    def ended_by(deadline, going, saga):
        if any(isinstance(one, in_hand.InHand) for one in going):
            seen.set()
        return given(deadline, going, saga)

    monkeypatch.setattr(in_hand, "ended_by", ended_by)
    return seen


def released_when(desk, waits):
    """Release the inverse when somebody waits for it, or runs it beside."""
    threading.Thread(
        target=lambda: (
            until(lambda: waits.is_set() or desk.undone.count("room") > 1),
            desk.released.set(),
        )
    ).start()


@pytest.mark.guarantee("SAVE-2")
@pytest.mark.parametrize("idempotent", [False, True])
def test_an_outer_failure_waits_for_the_inverse_that_runs(waits, idempotent):
    desk = Desk(idempotent=idempotent)
    with pytest.raises(SagaAborted) as failed, desk.kit.transaction() as saga:
        desk.undoes(saga)
        released_when(desk, waits)
        raise RuntimeError("all fails")
    desk.thread.join()
    assert desk.undone == ["room", "seat"]
    assert desk.stands == []
    assert failed.value.report.clean


@pytest.mark.guarantee("SAVE-2")
@pytest.mark.parametrize("idempotent", [False, True])
def test_so_it_does_on_an_event_loop(waits, idempotent):
    desk = Desk(idempotent=idempotent)

    async def inner(saga):
        with contextlib.suppress(SagaAborted):
            async with saga.savepoint("inner"):
                await book("room")
                raise ValueError("the savepoint fails")

    async def case():
        async with desk.kit.transaction() as saga:
            await book("seat")
            task = asyncio.ensure_future(inner(saga))
            tasks.append(task)
            await asyncio.to_thread(until, desk.reached.is_set)
            released_when(desk, waits)
            raise RuntimeError("all fails")

    async def whole():
        with pytest.raises(SagaAborted) as failed:
            await case()
        await tasks[0]
        return failed.value.report

    async def book(item):
        return await asyncio.to_thread(desk.book, item)

    tasks = []
    assert asyncio.run(whole()).clean
    assert desk.undone == ["room", "seat"]
    assert desk.stands == []


def test_what_that_inverse_could_not_do_is_told_of_both(waits):
    desk = Desk(fails=True)
    with pytest.raises(SagaAborted) as failed, desk.kit.transaction() as saga:
        desk.undoes(saga)
        released_when(desk, waits)
        raise RuntimeError("all fails")
    desk.thread.join()
    assert desk.undone.count("room") == 1
    assert "room" in desk.stands
    assert not failed.value.report.clean


def test_a_commit_waits_for_it(waits):
    desk = Desk()
    with desk.kit.transaction() as saga:
        desk.undoes(saga)
        released_when(desk, waits)
    desk.thread.join()
    assert desk.stands == ["seat"]
    assert last_report().clean


def test_what_does_not_end_in_time_is_not_undone_beside_it():
    desk = Desk(settings=Settings(settle=0.05))
    with pytest.raises(SagaAborted) as failed, desk.kit.transaction() as saga:
        desk.undoes(saga)
        raise RuntimeError("all fails")
    assert desk.undone == ["room"]
    assert not failed.value.report.clean
    desk.released.set()
    desk.thread.join()
    assert desk.stands == ["seat"]


class Crowd:
    """Three savepoints beside the body of their boundary; some of them fail, as a seed has it."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.undone, self.stands = [], []
        self.kit = AgentKit("crowd", wal=MemoryWAL(), settings=Settings(inverse_delay=0.0))

        @compensator("crowd.cancel", idempotent=True)
        def cancel(item, *, idempotency_key):
            self.undone.append(item)
            time.sleep(0.001)  # what an inverse takes: others come meanwhile
            self.stands.remove(item)

        def book(item):
            self.stands.append(item)
            return {"item": item}

        self.book = self.kit.safe_tool(book, "COMPENSABLE", compensate=cancel.using(item="$.item"))

    def plans(self):
        """Say of each savepoint how many steps it makes, and whether it fails."""
        return [(self.dice.randint(1, 3), self.dice.random() < 0.7) for _ in range(3)]

    def inner(self, saga, number, plan):
        with contextlib.suppress(AgentSagaError, ValueError), saga.savepoint(f"inner{number}"):
            for step in range(plan[0]):
                self.book(f"{number}.{step}")
            if plan[1]:
                raise ValueError

    async def inner_async(self, saga, number, plan):
        with contextlib.suppress(AgentSagaError, ValueError):
            async with saga.savepoint(f"inner{number}"):
                for step in range(plan[0]):
                    await asyncio.to_thread(self.book, f"{number}.{step}")
                if plan[1]:
                    raise ValueError

    def run(self):
        threads = []
        try:
            with self.kit.transaction() as saga:
                self.book("o")
                for number, plan in enumerate(self.plans()):
                    context = contextvars.copy_context()
                    work = functools.partial(context.run, self.inner, saga, number, plan)
                    threads.append(threading.Thread(target=work))
                    threads[-1].start()
                until(lambda: len(self.stands) + len(self.undone) > 2)
                if self.dice.random() < 0.7:
                    raise RuntimeError("all fails")
        finally:
            for thread in threads:
                thread.join()

    async def run_async(self):
        tasks = []
        try:
            async with self.kit.transaction() as saga:
                await asyncio.to_thread(self.book, "o")
                for number, plan in enumerate(self.plans()):
                    tasks.append(asyncio.ensure_future(self.inner_async(saga, number, plan)))
                await asyncio.to_thread(until, lambda: len(self.stands) + len(self.undone) > 2)
                if self.dice.random() < 0.7:
                    raise RuntimeError("all fails")
        finally:
            await asyncio.gather(*tasks)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("asynchronous", [False, True])
def test_savepoints_that_fail_beside_their_boundary_are_undone_once(seed, asynchronous):
    crowd = Crowd(seed)
    reports = []
    try:
        asyncio.run(crowd.run_async()) if asynchronous else crowd.run()
    except SagaAborted as failed:
        reports.append(failed.report)
    assert all(report.clean for report in reports)
    assert not (reports and crowd.stands)
    assert len(set(crowd.undone)) == len(crowd.undone)


@pytest.mark.guarantee("SAVE-2")
@pytest.mark.parametrize("commits", [True, False])
def test_a_savepoint_that_gives_the_saga_up_meanwhile_ends_what_waits_for_it(tmp_path, commits):
    """Its inverse ends the program; nothing more is undone here, and nothing else is recorded."""
    stands, undone, reached, ends = [], [], threading.Event(), threading.Event()
    wal = FileWAL(tmp_path / "log")
    kit = AgentKit("desk", wal=wal, settings=Settings(after_stuck="continue"))

    @kit.tool("COMPENSABLE", name="book")
    def book(item):
        stands.append(item)
        return item

    @book.undo
    def cancel(result):
        undone.append(result)
        if result == "room":
            reached.set()
            until(ends.is_set)
            raise SystemExit(3)
        stands.remove(result)

    def inner(saga):
        with contextlib.suppress(BaseException), saga.savepoint("inner"):
            book("room")
            raise ValueError("the savepoint fails")

    with pytest.raises(AgentSagaError), kit.transaction() as saga:
        book("seat")
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(inner, saga))
        thread.start()
        until(reached.is_set)
        threading.Timer(0.2, ends.set).start()
        if not commits:
            raise RuntimeError
    thread.join()
    report = last_report()
    assert report.outcome == "RELEASED"
    assert not report.clean
    assert undone == ["room"]
    assert set(stands) == {"seat", "room"}
    wal.close()
    events = [one.event for one in records(tmp_path / "log") if one.event != "MARK"]
    assert events.count("SAGA_RELEASED") == 1
    assert events[events.index("SAGA_RELEASED") + 1 :] in ([], ["WRITER_CLOSE"])


@pytest.mark.guarantee("SAVE-2")
def test_a_savepoint_that_outlives_its_boundary_is_really_undone():
    desk, booked, fails = Desk(), threading.Event(), threading.Event()
    reports = []

    def inner(saga):
        try:
            with saga.savepoint("inner"):
                desk.book("bed")
                booked.set()
                until(fails.is_set)
                raise ValueError("the savepoint fails")
        except SagaAborted as aborted:
            reports.append(aborted.report)

    with desk.kit.transaction() as saga:
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(inner, saga))
        thread.start()
        until(booked.is_set)
    fails.set()
    thread.join()
    assert reports[0].clean
    assert desk.undone == ["bed"]
    assert not desk.stands

"""A boundary and a savepoint in it that are undone at the same time: each inverse runs once."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading

import pytest

from agent_saga import AgentKit, MemoryWAL, SagaAborted, Settings, compensator, last_report
from agent_saga.engine import in_hand
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
    given = in_hand.ended

    def ended(going, saga):
        if any(isinstance(one, in_hand.InHand) for one in going):
            seen.set()
        return given(going, saga)

    monkeypatch.setattr(in_hand, "ended", ended)
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

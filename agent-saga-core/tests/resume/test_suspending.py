"""Suspending, whatever the program between the request and its boundary does."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from resume.conftest import QUICK, Shop

from agent_saga import (
    AgentKit,
    ConfigurationError,
    RecoveryDaemon,
    SagaAborted,
    SagaClosed,
    Settings,
)
from agent_saga.engine import suspend as suspending
from agent_saga.errors import (
    NotSuspendable,
    SagaSuspended,
    SuspendRequested,
    WALPoisoned,
)
from agent_saga.recovery.survey import look

pytestmark = pytest.mark.anyio


@pytest.mark.guarantee("RESUME-4")
def test_a_savepoint_on_the_way_is_not_undone_and_is_gone_on_with(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.charge(1)
        with saga.savepoint("outer"), saga.savepoint("inner"):
            shop.charge(2)
            saga.suspend("waits")
    assert shop.state() == ("SUSPENDED", False)
    with shop.open() as saga:
        shop.charge(1)
        with saga.savepoint("outer"), saga.savepoint("inner"):
            shop.charge(2)
            shop.charge(3)
    assert shop.world == [("charge", 1), ("charge", 2), ("charge", 3)]
    assert shop.state() == ("COMMITTED", True)


async def test_a_savepoint_on_the_way_is_not_undone_in_an_asynchronous_boundary(
    shop: Shop,
) -> None:
    with pytest.raises(SagaSuspended):
        async with shop.open() as saga, saga.savepoint("part"):
            await shop.charge(1)
            saga.suspend("waits")
    async with shop.open() as saga, saga.savepoint("part"):
        await shop.charge(1)
    assert shop.world == [("charge", 1)]
    assert shop.state() == ("COMMITTED", True)


def test_a_savepoint_that_was_suspended_in_can_still_fail(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga, saga.savepoint("part"):
        shop.charge(1)
        saga.suspend("waits")
    with shop.open() as saga, pytest.raises(SagaAborted), saga.savepoint("part"):
        shop.charge(1)
        raise RuntimeError
    assert shop.world == [("charge", 1), ("refund", 1)]
    assert shop.state() == ("COMMITTED", True)


@pytest.mark.guarantee("RESUME-4")
def test_no_step_starts_after_the_request(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga:
        try:
            saga.suspend("waits")
        except Exception:
            shop.world.append("swallowed")
        with pytest.raises(SagaClosed, match="being suspended"):
            shop.charge(1)
        with pytest.raises(SagaClosed), saga.savepoint("part"):
            shop.charge(2)
    assert shop.world == ["swallowed"]


def test_a_refused_step_that_leaves_the_boundary_suspends_it(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.charge(1)
        try:
            saga.suspend("waits")
        except Exception:
            shop.world.append("swallowed")
        shop.charge(2)
    assert shop.world == [("charge", 1), "swallowed"]


@pytest.mark.guarantee("RESUME-4")
def test_a_request_made_into_another_error_suspends(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.charge(1)
        try:
            saga.suspend("waits")
        except Exception as error:
            message = "the tool failed"
            raise RuntimeError(message) from error
    assert shop.world == [("charge", 1)]


async def test_a_request_out_of_a_task_group_suspends(shop: Shop) -> None:
    async def ask(saga: Any) -> None:
        saga.suspend("waits")

    with pytest.raises(SagaSuspended):
        async with shop.open() as saga:
            await shop.charge(1)
            async with asyncio.TaskGroup() as group:
                group.create_task(ask(saga))
    assert shop.state() == ("SUSPENDED", False)


def test_an_error_of_another_cause_after_the_request_undoes(shop: Shop) -> None:
    with pytest.raises(SagaAborted), shop.open() as saga:
        shop.charge(1)
        try:
            saga.suspend("waits")
        except Exception:
            shop.world.append("swallowed")
        raise RuntimeError
    assert shop.world == [("charge", 1), "swallowed", ("refund", 1)]


def test_an_abort_after_the_request_undoes(shop: Shop) -> None:
    with pytest.raises(SagaAborted), shop.open() as saga:
        shop.charge(1)
        try:
            saga.suspend("waits")
        except Exception:
            saga.abort("the human said no")
    assert shop.world == [("charge", 1), ("refund", 1)]


def test_a_request_suspends_its_own_saga_only(shop: Shop) -> None:
    with pytest.raises(SagaSuspended) as caught, shop.open("outer") as outer:
        shop.charge(1)
        with shop.open("inner", detached=True):
            shop.charge(2)
            outer.suspend("waits")
    assert caught.value.report.saga_id == outer.id
    assert shop.world == [("charge", 1), ("charge", 2), ("refund", 2)]
    with shop.open("outer"):
        assert shop.charge(1) == {"n": 1}
    assert len(shop.world) == 3


def test_it_can_be_suspended_again_and_again(shop: Shop) -> None:
    for upto in (1, 2, 3):
        shop.suspend(*range(1, upto + 1))
    with shop.open():
        for n in (1, 2, 3):
            shop.charge(n)
    assert shop.world == [("charge", 1), ("charge", 2), ("charge", 3)]
    assert shop.state() == ("COMMITTED", True)


def test_a_saga_that_has_ended_cannot_be_suspended(shop: Shop) -> None:
    with shop.open():
        shop.charge(1)
    before = shop.records()
    with pytest.raises(SagaClosed), shop.open() as saga:
        shop.charge(1)
        saga.suspend("waits")
    assert shop.records() == before


def test_a_log_in_memory_is_not_suspended_to() -> None:
    kit = AgentKit("here", wal="memory:", settings=QUICK)
    with pytest.raises(SagaAborted) as caught, kit.transaction() as saga:
        saga.suspend("waits")
    assert isinstance(caught.value.cause, NotSuspendable)
    with pytest.raises(ConfigurationError), kit.transaction(saga_id="x"):
        pass


@pytest.mark.parametrize("deadline", [float("nan"), float("inf"), -1, 0, "x", True])
def test_a_deadline_that_is_none_is_refused(shop: Shop, deadline: Any) -> None:
    with pytest.raises(SagaAborted) as caught, shop.open() as saga:
        shop.charge(1)
        saga.suspend("waits", deadline=deadline)
    assert isinstance(caught.value.cause, ConfigurationError)
    assert shop.world == [("charge", 1), ("refund", 1)]


@pytest.mark.parametrize("deadline", [1e12, 1e300, 10**400])
def test_a_deadline_beyond_all_clocks_never_comes(shop: Shop, deadline: float) -> None:
    shop.suspend(1, deadline=deadline)
    assert shop.recover().sagas == []
    assert len(str(shop.view().deadline)) == 16, "a moment that a clock can tell"
    with shop.open():
        shop.charge(1)
    assert shop.world == [("charge", 1)]


NOTHING = object()

WRONG: dict[str, dict[str, Any]] = {
    "not a number": {"deadline": float("nan")},
    "endless": {"deadline": float("inf")},
    "a text": {"deadline": "tomorrow"},
    "over": {"deadline": -5},
    "unknown": {"at_deadline": "forget"},
    "nothing": {"at_deadline": NOTHING},
}


@pytest.mark.guarantee("RESUME-4")
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_request_of_the_programs_own_that_would_never_end_fails_and_is_undone(
    shop: Shop, wrong: dict[str, Any]
) -> None:
    with pytest.raises(SagaAborted) as failed, shop.open():
        shop.charge(1)
        raise SuspendRequested("waits", **wrong)
    assert isinstance(failed.value.cause, ConfigurationError)
    assert shop.world == [("charge", 1), ("refund", 1)]
    assert shop.state() == ("ROLLED_BACK", True)


@pytest.fixture
def surprised(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*args: Any) -> Any:
        raise OverflowError("by surprise")

    monkeypatch.setattr(suspending, "clock_us", raises)


def recovered(shop: Shop) -> list[str]:
    daemon = RecoveryDaemon(shop.log, settings=QUICK)
    try:
        return [one.outcome for one in daemon.sweep().sagas]
    finally:
        daemon.close()


def test_what_meets_a_surprise_while_suspending_is_left_to_recovery(
    shop: Shop, surprised: None
) -> None:
    with pytest.raises(OverflowError), shop.open() as saga:
        shop.charge(1)
        saga.suspend("waits")
    assert shop.state() == ("RELEASED", False)
    assert recovered(shop) == ["undone"]


async def test_so_is_what_meets_it_in_an_asynchronous_boundary(shop: Shop, surprised: None) -> None:
    with pytest.raises(OverflowError):
        async with shop.open() as saga:
            await shop.charge(1)
            saga.suspend("waits")
    assert shop.state() == ("RELEASED", False)
    assert recovered(shop) == ["undone"]


@pytest.mark.parametrize("awaits", [object(), {1, 2}, {1: 2}, b"x", "\ud800", float("nan")])
def test_what_is_awaited_may_be_anything(shop: Shop, awaits: Any) -> None:
    shop.suspend(1, awaits=awaits)
    with shop.open():
        shop.charge(1)
    assert shop.world == [("charge", 1)]


@pytest.mark.guarantee("RESUME-4")
def test_a_disk_that_fails_while_suspending_is_never_told_as_suspended(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SagaAborted) as caught, shop.open() as saga:
        shop.charge(1)
        wal = shop.kit.runtime.engine().wal
        monkeypatch.setattr(wal, "check_fence", _poisoned)
        saga.suspend("waits")
    assert caught.value.report.outcome == "RELEASED"
    assert not caught.value.report.clean
    assert [line.tool for line in caught.value.report.unresolved] == ["charge"]


def _poisoned(saga: str, epoch: int, announced: int | None = None) -> None:
    raise WALPoisoned("the disk failed")


def test_a_step_in_flight_is_waited_for(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Settings(settle=60, inverse_delay=0.0))
    going, go_on = threading.Event(), threading.Event()

    @shop.kit.tool("COMPENSABLE")
    def slow() -> int:
        going.set()
        go_on.wait(10)
        shop.world.append("slow")
        return 1

    @slow.undo
    def undo_slow(result: int) -> None:
        shop.world.append("undone")

    with pytest.raises(SagaSuspended), shop.open() as saga:
        thread = threading.Thread(target=saga.bind(slow))
        thread.start()
        going.wait(10)
        threading.Timer(0.05, go_on.set).start()
        saga.suspend("waits")
    thread.join()
    with shop.open():
        assert slow() == 1
    assert shop.world == ["slow"]


def test_the_log_tells_until_when_it_waits(shop: Shop) -> None:
    shop.suspend(1, deadline=60.0, awaits={"form": 7})
    found = look(shop.log, shop.view().id)
    assert found is not None
    suspended = [r for r in found.effective.records if r.event == "SAGA_SUSPENDED"][-1]
    assert suspended.data["awaits"] == {"form": 7}
    assert suspended.data["at_deadline"] == "undo"

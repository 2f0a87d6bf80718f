"""Resuming a saga by an id of one's own: recorded results are given again, nothing runs twice."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from resume.conftest import QUICK, Shop

from agent_saga import (
    Applied,
    ConfigurationError,
    NotApplied,
    RecoveryDaemon,
    SagaAborted,
    SagaClosed,
)
from agent_saga.errors import (
    ClaimRefused,
    DuplicateSaga,
    NotSuspendable,
    OutcomeUnknown,
    RecoveryError,
    ReplayConflict,
    ResultNotRecorded,
    SagaSuspended,
    SagaUnwinding,
)
from agent_saga.recovery.queue import cases_in, close_case, retry_case

pytestmark = pytest.mark.anyio


def test_a_suspended_saga_goes_on_where_it_was(shop: Shop) -> None:
    shop.suspend(1, 2)
    assert shop.state() == ("SUSPENDED", False)
    with shop.open():
        assert shop.charge(1) == {"n": 1}
        assert shop.charge(2) == {"n": 2}
        assert shop.charge(3) == {"n": 3}
    assert shop.world == [("charge", 1), ("charge", 2), ("charge", 3)]
    assert shop.state() == ("COMMITTED", True)


async def test_it_goes_on_in_an_asynchronous_boundary(shop: Shop) -> None:
    with pytest.raises(SagaSuspended):
        async with shop.open() as saga:
            await shop.charge(1)
            saga.suspend("waits")
    async with shop.open():
        assert await shop.charge(1) == {"n": 1}
    assert shop.world == [("charge", 1)]


def test_a_failure_after_resuming_undoes_the_recorded_steps_too(shop: Shop) -> None:
    shop.suspend(1)
    with pytest.raises(SagaAborted) as caught, shop.open():
        shop.charge(1)
        shop.charge(2)
        raise RuntimeError
    assert caught.value.report.clean
    assert shop.world == [("charge", 1), ("charge", 2), ("refund", 2), ("refund", 1)]
    assert shop.state() == ("ROLLED_BACK", True)


def test_recorded_steps_are_undone_also_when_the_new_run_never_reached_them(shop: Shop) -> None:
    shop.suspend(1, 2)
    with pytest.raises(SagaAborted), shop.open():
        raise RuntimeError
    assert shop.world == [("charge", 1), ("charge", 2), ("refund", 2), ("refund", 1)]


def test_other_arguments_are_a_conflict_and_no_second_effect(shop: Shop) -> None:
    shop.suspend(1)
    with pytest.raises(SagaAborted) as caught, shop.open():
        shop.charge(99)
    assert isinstance(caught.value.cause, ReplayConflict)
    assert shop.world == [("charge", 1), ("refund", 1)]


def test_equal_calls_are_matched_in_order(shop: Shop) -> None:
    shop.suspend(1, 1, 2)
    with shop.open():
        assert [shop.charge(n)["n"] for n in (2, 1, 1, 1)] == [2, 1, 1, 1]
    assert shop.world == [("charge", n) for n in (1, 1, 2, 1)]


def test_keyed_steps_are_the_same_step_in_every_run(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.charge.keyed("first")(1)
        saga.suspend("waits")
    with shop.open():
        assert shop.charge.keyed("first")(1) == {"n": 1}
        with pytest.raises(ReplayConflict):
            shop.charge.keyed("first")(2)
    assert shop.world == [("charge", 1)]


def test_savepoints_keep_their_places(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga:
        with saga.savepoint("part"):
            shop.charge(1)
        with pytest.raises(SagaAborted), saga.savepoint("part"):
            shop.charge(2)
            raise RuntimeError
        saga.suspend("waits")
    with shop.open() as saga:
        with saga.savepoint("part"):
            assert shop.charge(1) == {"n": 1}
        with saga.savepoint("other"):
            shop.charge(3)
    assert shop.world == [("charge", 1), ("charge", 2), ("refund", 2), ("charge", 3)]
    assert shop.state() == ("COMMITTED", True)


def test_a_finished_saga_only_reads(shop: Shop) -> None:
    shop.suspend(1)
    with shop.open() as saga:
        shop.charge(1)
        with saga.savepoint("part"):
            shop.charge(2)
    with shop.open() as saga:
        assert shop.charge(1) == {"n": 1}
        with saga.savepoint("part"):
            assert shop.charge(2) == {"n": 2}
        with pytest.raises(SagaClosed, match="earlier run"):
            shop.charge(3)
    assert shop.world == [("charge", 1), ("charge", 2)]
    assert shop.state() == ("COMMITTED", True)


def test_an_id_is_used_once_unless_it_is_resumed(shop: Shop) -> None:
    with shop.open(resume=False):
        shop.charge(1)
    with pytest.raises(DuplicateSaga), shop.open(resume=False):
        shop.charge(2)
    assert shop.world == [("charge", 1)]


def test_a_live_saga_is_not_resumed(shop: Shop) -> None:
    with shop.open():
        shop.charge(1)
        with pytest.raises(ClaimRefused), shop.open(detached=True):
            shop.charge(2)
    assert shop.world == [("charge", 1)]
    assert shop.state() == ("COMMITTED", True)


def test_a_saga_id_inside_another_boundary_must_be_detached(shop: Shop) -> None:
    with shop.kit.transaction(), pytest.raises(ConfigurationError), shop.open():
        shop.charge(1)
    assert shop.world == []


def test_an_unknown_ending_is_settled_first_or_refused(shop: Shop) -> None:
    shop.fail = ConnectionError("the answer was lost")
    with pytest.raises(SagaSuspended), shop.open() as saga:
        with pytest.raises(ConnectionError):
            shop.charge(1)
        saga.suspend("waits")
    shop.fail = None
    with pytest.raises(SagaAborted) as caught, shop.open():
        shop.charge(1)
    assert isinstance(caught.value.cause, OutcomeUnknown)
    assert shop.world == [("charge", 1)]


@pytest.mark.parametrize(
    ("answer", "calls"),
    [(lambda: Applied({"n": 1}), 1), (lambda: NotApplied(final=True), 2)],
)
def test_a_prober_settles_what_is_resumed(
    shop: Shop, answer: Callable[[], Any], calls: int
) -> None:
    @shop.charge.probe
    def find(args: dict[str, Any]) -> Any:
        return answer()

    shop.fail = ConnectionError("the answer was lost")
    with pytest.raises(SagaSuspended), shop.open() as saga:
        with pytest.raises(ConnectionError):
            shop.charge(1)
        saga.suspend("waits")
    shop.fail = None
    with shop.open():
        assert shop.charge(1) == {"n": 1}
    assert shop.world == [("charge", 1)] * calls


def test_a_result_that_was_not_recorded_faithfully_is_no_stand_in(shop: Shop) -> None:
    class Receipt:
        id = 7

    @shop.kit.tool("COMPENSABLE")
    def buy() -> Receipt:
        shop.world.append("buy")
        return Receipt()

    @buy.undo(keep=("id",))
    def return_it(result: dict[str, int]) -> None:
        shop.world.append(("return", result["id"]))

    with pytest.raises(SagaSuspended), shop.open() as saga:
        buy()
        saga.suspend("waits")
    with pytest.raises(SagaAborted) as caught, shop.open():
        buy()
    assert isinstance(caught.value.cause, ResultNotRecorded)
    assert shop.world == ["buy", ("return", 7)]


def test_what_another_process_could_not_undo_is_not_suspended(shop: Shop) -> None:
    @shop.kit.tool("COMPENSABLE")
    def note() -> None:
        shop.world.append("note")

    with pytest.raises(SagaAborted) as caught, shop.open() as saga:
        shop.charge(1)
        note()
        saga.suspend("waits")
    assert isinstance(caught.value.cause, NotSuspendable)
    assert shop.world == [("charge", 1), "note", ("refund", 1)]


def test_a_suspendable_saga_refuses_it_before_its_effect(shop: Shop) -> None:
    @shop.kit.tool("COMPENSABLE")
    def note() -> None:
        shop.world.append("note")

    with shop.open(suspendable=True):
        with pytest.raises(ConfigurationError):
            note()
        shop.charge(1)
    assert shop.world == [("charge", 1)]


def test_suspending_cannot_be_swallowed(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.charge(1)
        try:
            saga.suspend("waits")
        except Exception:
            shop.world.append("swallowed")
    assert shop.state() == ("SUSPENDED", False)


def test_a_suspended_saga_is_left_alone_until_its_deadline(shop: Shop) -> None:
    shop.suspend(1, deadline=3600.0)
    daemon = RecoveryDaemon(str(shop.log), settings=QUICK)
    assert daemon.recover_all().sagas == []
    daemon.close()
    assert shop.world == [("charge", 1)]


def test_at_its_deadline_it_is_undone_and_cannot_be_resumed(shop: Shop) -> None:
    shop.suspend(1, deadline=0.001)
    daemon = RecoveryDaemon(str(shop.log), settings=QUICK)
    assert daemon.recover_all().clean
    daemon.close()
    assert shop.world == [("charge", 1), ("refund", 1)]
    with shop.open(), pytest.raises(SagaClosed):
        shop.charge(1)
    assert shop.world == [("charge", 1), ("refund", 1)]


def test_a_deadline_that_holds_waits_for_a_human(shop: Shop) -> None:
    shop.suspend(1, deadline=3600.0, at_deadline="hold")
    assert cases_in(str(shop.log)) == []
    shop.suspend(1, deadline=0.001, at_deadline="hold")
    [told] = shop.recover().needs_human
    assert "its deadline is over" in told.reason
    [found] = cases_in(str(shop.log))
    place = shop.place()
    with pytest.raises(RecoveryError):
        close_case(place, found.id, by="mara", reason="looked at it")
    assert shop.world == [("charge", 1)]
    assert retry_case(place, found.id, by="mara").outcome == "undone"
    assert shop.world == [("charge", 1), ("refund", 1)]
    assert cases_in(str(shop.log)) == []


DYING = """
import os, sys
from agent_saga import AgentKit, Settings
kit = AgentKit("dying", wal=sys.argv[1])

@kit.tool("COMPENSABLE")
def charge(n):
    with open(sys.argv[2], "a") as world:
        world.write(f"charge {n} ")
    return {"n": n}

@charge.undo
def refund(result):
    with open(sys.argv[2], "a") as world:
        world.write(f"refund {result['n']} ")

with kit.transaction(saga_id="order-17", resume=True):
    charge(1)
    charge(2)
    if sys.argv[3] == "die":
        os._exit(9)
    charge(3)
"""


@pytest.mark.crash
def test_a_saga_whose_process_died_goes_on_in_another(tmp_path: Path) -> None:
    script, world = tmp_path / "dying.py", tmp_path / "world"
    script.write_text(textwrap.dedent(DYING))

    def run(mode: str) -> int:
        words = [sys.executable, str(script), str(tmp_path / "log"), str(world), mode]
        return subprocess.run(words, env=dict(os.environ), check=False).returncode

    assert [run("die"), run("die"), run("live"), run("live")] == [9, 9, 0, 0]
    assert world.read_text() == "charge 1 charge 2 charge 3 "


def test_a_saga_that_is_being_undone_is_not_resumed(shop: Shop) -> None:
    refused: list[type[BaseException]] = []

    @shop.kit.tool("COMPENSABLE")
    def act() -> str:
        return "done"

    @act.undo
    def undo_act(result: str) -> None:
        try:
            with shop.open(detached=True):
                shop.world.append("resumed")
        except (SagaUnwinding, ClaimRefused) as error:
            refused.append(type(error))

    with pytest.raises(SagaAborted), shop.open():
        act()
        raise RuntimeError
    assert refused == [SagaUnwinding]
    assert shop.world == []


@pytest.mark.parametrize("way", [{}, {"fork_at": "begin", "abandoned": "undo"}])
def test_going_on_without_an_id_is_refused_and_nothing_begins_anew(
    shop: Shop, way: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError, match="saga_id"), shop.open(saga_id=None, **way):
        shop.charge(1)
    assert shop.world == []

"""Which recorded step a call of the new run is: every kind of step, result, argument and ending."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import time
from collections.abc import Callable
from typing import Any

import pytest
from resume.conftest import QUICK, Shop

from agent_saga import (
    AgentKit,
    Applied,
    Approval,
    CannotTell,
    NotApplied,
    PreFlightGate,
    SagaAborted,
    SagaClosed,
)
from agent_saga.errors import (
    CommittedUnsettled,
    OutcomeUnknown,
    ReplayConflict,
    ResultNotRecorded,
    SagaSuspended,
)
from agent_saga.wal.reader import scan


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int


VALUES: list[Any] = [
    None,
    True,
    1,
    1.0,
    -0.0,
    2**60,
    float("inf"),
    (1, 2),
    {"a": (1,)},
    {1: 2},
    {1, 2},
    b"x",
    "\ud800",
    "x" * 100_000,
    "password=hunter2",
    {"password": "x"},
    decimal.Decimal("1.10"),
    dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    Color.RED,
    Point(1),
]


def named(value: Any) -> str:
    return ascii(value)[:20]


# --- arguments and results ------------------------------------------------------------------------


@pytest.mark.parametrize("value", VALUES, ids=named)
def test_equal_arguments_are_known_again_whatever_they_are(shop: Shop, value: Any) -> None:
    @shop.kit.tool("COMPENSABLE")
    def act(value: Any, more: int = 3) -> int:
        shop.world.append("act")
        return 1

    @act.undo
    def undo_act(result: int) -> None:
        """Do nothing."""

    with pytest.raises(SagaSuspended), shop.open() as saga:
        act(value)
        saga.suspend("waits")
    with shop.open():
        assert act(value=value, more=3) == 1
    assert shop.world == ["act"]


@pytest.mark.guarantee("RESUME-1")
@pytest.mark.parametrize("value", VALUES, ids=named)
def test_a_result_is_given_again_as_it_was_or_not_at_all(shop: Shop, value: Any) -> None:
    @shop.kit.tool("COMPENSABLE")
    def act() -> Any:
        shop.world.append("act")
        return value

    @act.undo
    def undo_act() -> None:
        """Do nothing."""

    with pytest.raises(SagaSuspended), shop.open() as saga:
        act()
        saga.suspend("waits")
    given: list[Any] = []
    refused: Any = None
    with shop.open():
        try:
            given.append(act())
        except ResultNotRecorded as error:
            refused = error
    assert refused or [(type(one), repr(one)) for one in given] == [(type(value), repr(value))]
    assert shop.world == ["act"]


# --- keys, generations ----------------------------------------------------------------------------


@pytest.mark.guarantee("RESUME-3")
@pytest.mark.parametrize(("final", "same"), [(True, False), (False, True)])
def test_what_had_no_effect_runs_again_with_a_key_that_is_not_spent(
    shop: Shop, final: bool, same: bool
) -> None:
    keys: list[str] = []

    @shop.kit.tool("COMPENSABLE")
    def pay(idempotency_key: str) -> int:
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise NotApplied("no money", final=final)
        return 1

    @pay.undo
    def unpay(result: int) -> None:
        """Do nothing."""

    with pytest.raises(SagaSuspended), shop.open() as saga:
        with pytest.raises(NotApplied):
            pay()
        saga.suspend("waits")
    with shop.open():
        pay()
    assert len(keys) == 2
    assert (keys[0] == keys[1]) is same


@pytest.mark.guarantee("RESUME-3")
def test_what_was_undone_runs_again_with_another_key(shop: Shop) -> None:
    keys: list[str] = []

    @shop.kit.tool("COMPENSABLE")
    def pay(idempotency_key: str) -> int:
        keys.append(idempotency_key)
        return 1

    @pay.undo
    def unpay(result: int) -> None:
        shop.world.append("undone")

    def run(end: Callable[[Any], None]) -> None:
        with shop.open() as saga:
            with pytest.raises(SagaAborted), saga.savepoint("part"):
                pay()
                raise RuntimeError
            end(saga)

    with pytest.raises(SagaSuspended):
        run(lambda saga: saga.suspend("waits"))
    run(lambda saga: None)
    assert len(set(keys)) == 2
    assert shop.world == ["undone", "undone"]
    assert shop.state() == ("COMMITTED", True)


@pytest.mark.guarantee("RESUME-3")
def test_an_idempotent_call_is_not_repeated_after_its_window(shop: Shop) -> None:
    @shop.kit.tool("COMPENSABLE", idempotent=True, window=0.05)
    def pay() -> int:
        shop.world.append("pay")
        if len(shop.world) == 1:
            raise ConnectionError
        return 1

    @pay.undo
    def unpay(result: int) -> None:
        """Do nothing."""

    with pytest.raises(SagaSuspended), shop.open() as saga:
        with pytest.raises(ConnectionError):
            pay()
        saga.suspend("waits")
    time.sleep(0.1)
    with pytest.raises(SagaAborted) as caught, shop.open():
        pay()
    assert isinstance(caught.value.cause, OutcomeUnknown)
    assert shop.world == ["pay"]


def test_an_idempotent_call_is_repeated_inside_its_window_with_its_key(shop: Shop) -> None:
    keys: list[str] = []

    @shop.kit.tool("COMPENSABLE", idempotent=True, window=3600)
    def pay(idempotency_key: str) -> int:
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise ConnectionError
        return 1

    @pay.undo
    def unpay(result: int) -> None:
        """Do nothing."""

    with pytest.raises(SagaSuspended), shop.open() as saga:
        with pytest.raises(ConnectionError):
            pay()
        saga.suspend("waits")
    with shop.open():
        assert pay() == 1
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert shop.state() == ("COMMITTED", True)


# --- methods --------------------------------------------------------------------------------------


def accounts(shop: Shop, **options: Any) -> Any:
    class Account:
        def __init__(self, name: str) -> None:
            self.name = name

        @shop.kit.tool("COMPENSABLE", **options)
        def pay(self, n: int) -> str:
            shop.world.append((self.name, n))
            return self.name

    @Account.pay.undo
    def unpay(result: str) -> None:
        shop.world.append(("undo", result))

    return Account


def test_methods_are_known_again_with_keys_and_without(shop: Shop) -> None:
    account = accounts(shop)
    one, other = account("one"), account("other")
    with pytest.raises(SagaSuspended), shop.open() as saga:
        one.pay.keyed("k")(1)
        one.pay(2)
        other.pay(2)
        saga.suspend("waits")
    with shop.open():
        assert one.pay.keyed("k")(1) == "one"
        assert one.pay(2) == "one"
        assert other.pay(2) == "other"
    assert shop.world == [("one", 1), ("one", 2), ("other", 2)]


def test_a_method_is_never_taken_for_that_of_another_object(shop: Shop) -> None:
    broken = [RuntimeError("the row could not be read")]

    def prepare(args: Any) -> None:
        if broken:
            raise broken.pop()

    account = accounts(shop, prepare=prepare)
    one, other = account("one"), account("other")
    with pytest.raises(SagaSuspended), shop.open() as saga:
        with pytest.raises(RuntimeError):
            one.pay(1)
        other.pay(1)
        saga.suspend("waits")
    with pytest.raises(SagaAborted) as caught, shop.open():
        one.pay(1)
        other.pay(1)
    assert isinstance(caught.value.cause, ReplayConflict)
    assert shop.world == [("other", 1), ("undo", "other")]


# --- unknown endings ------------------------------------------------------------------------------


@pytest.mark.guarantee("RESUME-2")
def test_a_blind_retry_in_another_place_is_no_second_effect(shop: Shop) -> None:
    shop.lose_an_answer(inside="part")
    with pytest.raises(SagaAborted) as caught, shop.open():
        shop.charge(1)
    assert isinstance(caught.value.cause, OutcomeUnknown)
    assert shop.world == [("charge", 1)]


@pytest.mark.parametrize("answer", [CannotTell("no"), RuntimeError("no"), None, NotApplied()])
def test_a_prober_that_cannot_settle_it_lets_nothing_run(shop: Shop, answer: Any) -> None:
    @shop.charge.probe
    def find(args: dict[str, Any]) -> Any:
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    shop.kit.runtime.settings = QUICK
    shop.charge.tool.settle_after = 3600.0
    shop.lose_an_answer()
    with pytest.raises(CommittedUnsettled), shop.open(), pytest.raises(OutcomeUnknown):
        shop.charge(1)
    assert shop.world == [("charge", 1)]


def test_a_no_counts_when_settle_after_is_over(shop: Shop) -> None:
    @shop.charge.probe
    def find(args: dict[str, Any]) -> Any:
        return NotApplied()

    shop.charge.tool.settle_after = 0.0
    shop.lose_an_answer()
    with shop.open():
        assert shop.charge(1) == {"n": 1}
    assert shop.world == [("charge", 1)] * 2


def test_the_inverse_of_a_settled_step_is_that_of_an_answered_one(shop: Shop) -> None:
    read: list[str] = []

    @shop.kit.tool("COMPENSABLE", prepare=lambda args: {"before": len(read)})
    def write(text: str, secret: str = "password=1") -> dict[str, str]:
        read.append(text)
        raise ConnectionError

    @write.undo
    def unwrite(result: Any, args: Any, prepared: Any) -> None:
        shop.world.append((result, args["text"], prepared))

    @write.probe
    def find(args: dict[str, Any]) -> Any:
        return Applied({"id": 7})

    with pytest.raises(SagaSuspended), shop.open() as saga:
        with pytest.raises(ConnectionError):
            write("a")
        saga.suspend("waits")
    with pytest.raises(SagaAborted), shop.open():
        assert write("a") == {"id": 7}
        raise RuntimeError
    assert shop.world in ([({"id": 7}, "a", {"before": 0})], [])
    assert read == ["a"]


def test_a_read_whose_answer_was_lost_is_read_again(shop: Shop) -> None:
    reads: list[int] = []

    @shop.kit.tool("REVERSIBLE")
    def read() -> int:
        reads.append(1)
        if len(reads) == 1:
            raise ConnectionError
        return len(reads)

    with pytest.raises(SagaSuspended), shop.open() as saga:
        with pytest.raises(ConnectionError):
            read()
        assert read() == 2
        saga.suspend("waits")
    with shop.open():
        assert read() == 3
        assert read() == 2
    assert shop.state() == ("COMMITTED", True)


# --- pivots ---------------------------------------------------------------------------------------


def test_an_approved_step_is_neither_asked_about_nor_run_again(shop: Shop) -> None:
    asked: list[str] = []

    class Mara:
        def ask(self, request: Any) -> Approval:
            asked.append(request.tool)
            return Approval(True, "mara")

    gate = PreFlightGate(approval_provider=Mara())
    kit = AgentKit("pivots", wal=str(shop.log), settings=QUICK, gate=gate)

    @kit.tool("IRREVERSIBLE")
    def send(text: str) -> str:
        shop.world.append(text)
        return "sent"

    with pytest.raises(SagaSuspended), kit.transaction(saga_id="x", resume=True) as saga:
        assert send("a") == "sent"
        saga.suspend("waits")
    with pytest.raises(SagaAborted) as caught, kit.transaction(saga_id="x", resume=True):
        assert send("a") == "sent"
        raise RuntimeError
    assert len(asked) == 1
    assert shop.world == ["a"]
    [line] = caught.value.report.kept
    assert "mara" in line.detail


# --- order ----------------------------------------------------------------------------------------


def test_undoing_keeps_the_order_over_both_runs(shop: Shop) -> None:
    shop.suspend(1, 2)
    with pytest.raises(SagaAborted), shop.open() as saga:
        shop.charge(1)
        shop.charge(2)
        with saga.savepoint("part"):
            shop.charge(3)
        shop.charge(4)
        raise RuntimeError
    assert [n for what, n in shop.world if what == "refund"] == [4, 3, 2, 1]


def test_what_ran_again_is_undone_where_it_ran_again(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.fail = NotApplied("not yet")
        with pytest.raises(NotApplied):
            shop.charge(1)
        shop.fail = None
        shop.charge(2)
        saga.suspend("waits")
    with pytest.raises(SagaAborted), shop.open():
        shop.charge(2)
        shop.charge(1)
        raise RuntimeError
    assert [n for what, n in shop.world if what == "refund"] == [1, 2]


# --- savepoints -----------------------------------------------------------------------------------


def test_a_savepoint_in_which_something_stands_can_be_met_again(shop: Shop) -> None:
    @shop.kit.tool("COMPENSABLE")
    def lost() -> None:
        shop.world.append("lost")
        raise ConnectionError

    @lost.undo
    def unlose(result: None) -> None:
        shop.world.append("unlost")

    def run(end: Callable[[Any], None]) -> None:
        with shop.open() as saga:
            with pytest.raises(SagaAborted), saga.savepoint("part"):
                shop.charge(1)
                lost()
            end(saga)

    with pytest.raises(SagaSuspended):
        run(lambda saga: saga.suspend("waits"))
    with pytest.raises(CommittedUnsettled):
        run(lambda saga: None)
    assert shop.world == [
        ("charge", 1),
        "lost",
        ("refund", 1),
        ("charge", 1),
        ("refund", 1),
    ]
    assert shop.state() == ("COMMITTED", False)


# --- what has ended -------------------------------------------------------------------------------


@pytest.mark.guarantee("RESUME-5")
def test_a_finished_saga_is_neither_probed_nor_written_to(shop: Shop) -> None:
    answers: list[Any] = [CannotTell("not yet")]

    @shop.charge.probe
    def find(args: dict[str, Any]) -> Any:
        return answers[0]

    shop.fail = ConnectionError("the answer was lost")
    with pytest.raises(CommittedUnsettled), shop.open(), pytest.raises(ConnectionError):
        shop.charge(1)
    shop.fail = None
    answers[0] = Applied({"n": 1})
    before = shop.records()
    with shop.open(), pytest.raises(OutcomeUnknown):
        shop.charge(1)
    assert shop.records() == before
    assert shop.world == [("charge", 1)]


@pytest.mark.guarantee("RESUME-5")
def test_a_savepoint_of_a_finished_saga_is_not_written_to(shop: Shop) -> None:
    with shop.open() as saga, pytest.raises(SagaAborted), saga.savepoint("part"):
        shop.charge(1)
        raise RuntimeError
    before = shop.records()
    with shop.open() as saga, saga.savepoint("part"), pytest.raises(SagaClosed):
        shop.charge(1)
    assert shop.records() == before
    assert shop.world == [("charge", 1), ("refund", 1)]


@pytest.mark.guarantee("RESUME-5")
def test_a_saga_that_was_undone_is_only_read(shop: Shop) -> None:
    with pytest.raises(SagaAborted), shop.open():
        shop.charge(1)
        raise RuntimeError
    before = shop.records()
    with shop.open(), pytest.raises(SagaClosed):
        shop.charge(1)
    assert shop.records() == before
    assert sum(1 for _ in scan(shop.log)) == before

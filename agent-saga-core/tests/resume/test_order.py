"""Calls that were refused, or not announced yet, when the run ended may come in any order."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resume.conftest import Shop

from agent_saga import Approval, PreFlightGate, ReplayConflict, Rule, SagaAborted
from agent_saga.errors import ApprovalDenied, ApprovalPending, SagaSuspended


class Door:
    """Says which calls are let through; the others are refused or fail before their intent."""

    def __init__(self, shop: Shop) -> None:
        self.shut: set[int] = set()
        self.keys: dict[int, list[str]] = {}

        def prepare(args: dict[str, Any]) -> None:
            if args["n"] in self.shut:
                raise LookupError(args["n"])

        @shop.kit.tool("COMPENSABLE", prepare=prepare)
        def pay(n: int, idempotency_key: str) -> int:
            shop.world.append(n)
            self.keys.setdefault(n, []).append(idempotency_key)
            return n

        @pay.undo
        def unpay(result: int) -> None:
            shop.world.append(-result)

        self.pay = pay

    def run(self, shop: Shop, numbers: Any, *, ends: bool = False) -> list[Any]:
        """Make these calls; suspend, or end."""
        got: list[Any] = []
        if ends:
            with shop.open():
                got += [self.pay(n) for n in numbers]
            return got
        with pytest.raises(SagaSuspended), shop.open() as saga:
            for n in numbers:
                try:
                    got.append(self.pay(n))
                except LookupError:
                    got.append(None)
            saga.suspend("waits")
        return got


@pytest.mark.guarantee("RESUME-10")
@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
@pytest.mark.parametrize("shut", [{1}, {2}, {1, 2}])
def test_a_call_that_was_never_announced_may_come_at_any_place(
    shop: Shop, order: tuple[int, ...], shut: set[int]
) -> None:
    door = Door(shop)
    door.shut = shut
    door.run(shop, [1, 2, 3])
    door.shut = set()
    assert door.run(shop, order) == list(order)
    assert door.run(shop, order, ends=True) == list(order)
    assert sorted(shop.world) == [1, 2, 3], "each once"
    assert shop.state() == ("COMMITTED", True)


@pytest.mark.guarantee("RESUME-10")
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_order_makes_a_second_effect(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shop = Shop(tmp_path_factory.mktemp("order"))
    numbers = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=6), "numbers")
    door = Door(shop)
    door.shut = data.draw(st.sets(st.integers(1, 3)), "shut")
    door.run(shop, numbers)
    for _ in range(data.draw(st.integers(0, 2), "runs")):
        door.shut = data.draw(st.sets(st.integers(1, 3)), "shut")
        door.run(shop, data.draw(st.permutations(numbers), "order"))
    door.shut = set()
    last = data.draw(st.permutations(numbers), "order")
    assert door.run(shop, last, ends=True) == last
    assert sorted(shop.world) == sorted(numbers)


@pytest.mark.guarantee("RESUME-10")
def test_a_call_more_than_were_left_out_is_a_conflict(shop: Shop) -> None:
    door = Door(shop)
    door.shut = {1}
    door.run(shop, [1, 2])
    door.shut = set()
    with pytest.raises(SagaAborted) as caught:
        door.run(shop, [1, 5, 2], ends=True)
    assert isinstance(caught.value.cause, ReplayConflict)
    assert 5 not in shop.world


@pytest.mark.guarantee("RESUME-10")
def test_a_number_that_was_taken_is_not_free_in_the_next_run(shop: Shop) -> None:
    door = Door(shop)
    door.shut = {1}
    door.run(shop, [1, 2])
    door.shut = set()
    door.run(shop, [1, 2])
    with pytest.raises(SagaAborted) as caught:
        door.run(shop, [4, 1, 2], ends=True)
    assert isinstance(caught.value.cause, ReplayConflict)


def test_it_is_the_same_step_with_the_same_key(shop: Shop) -> None:
    door = Door(shop)
    door.shut = {1}
    door.run(shop, [1, 2])
    with shop.open("another"):
        pass
    door.shut = set()
    door.run(shop, [1, 2], ends=True)
    first = door.keys[1][0]
    other = Shop(shop.log.parent / "fresh")
    again = Door(other)
    again.run(other, [1, 2], ends=True)
    assert again.keys[1] == [first], "the first call of its tool, whenever it was announced"


def test_a_refused_call_is_judged_again(shop: Shop) -> None:
    class Nobody:
        def ask(self, request: Any) -> Any:
            raise ApprovalDenied("no", rule="people", reason="not today")

    kit = type(shop.kit)("asks", wal=str(shop.log), gate=PreFlightGate(approval_provider=Nobody()))

    @kit.tool("IRREVERSIBLE")
    def send(n: int) -> int:
        shop.world.append(n)
        return n

    @kit.tool("COMPENSABLE")
    def note(n: int) -> int:
        return n

    @note.undo
    def forget(result: int) -> None: ...

    def run(saga: Any) -> None:
        for n in (1, 2):
            with pytest.raises(ApprovalDenied):
                send(n)
            note(n)

    with pytest.raises(SagaSuspended), kit.transaction(saga_id="s", resume=True) as saga:
        run(saga)
        saga.suspend("waits")
    with kit.transaction(saga_id="s", resume=True) as saga:
        run(saga)
    assert shop.world == []


def test_parallel_calls_that_wait_for_their_turn(shop: Shop) -> None:
    """The first call waits for what it prepares; the second is announced before it."""

    async def run(*, cut: bool) -> list[Any]:
        late = asyncio.Event()

        async def prepare(args: dict[str, Any]) -> None:
            if args["n"] == 1:
                await late.wait()
                if cut:
                    raise LookupError

        @shop.kit.tool("COMPENSABLE", name="act", prepare=prepare)
        async def act(n: int) -> int:
            shop.world.append(n)
            late.set()
            return n

        @act.undo
        async def unact(result: int) -> None: ...

        async with shop.open() as saga:
            found = await asyncio.gather(act(1), act(2), return_exceptions=True)
            if cut:
                saga.suspend("waits")
        return list(found)

    with pytest.raises(SagaSuspended):
        asyncio.run(run(cut=True))

    async def resumed() -> list[Any]:
        @shop.kit.tool("COMPENSABLE", name="act")
        async def act(n: int) -> int:
            shop.world.append(n)
            return n

        @act.undo
        async def unact(result: int) -> None: ...

        async with shop.open():
            return list(await asyncio.gather(act(1), act(2)))

    assert asyncio.run(resumed()) == [1, 2]
    assert shop.world == [2, 1]


@pytest.mark.guarantee("RESUME-10")
@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
@pytest.mark.parametrize("shut", [{3}, {2, 3}, {1, 3}, {1, 2, 3}])
def test_a_run_that_suspends_tells_how_many_calls_came_after_the_last_recorded_one(
    shop: Shop, order: tuple[int, ...], shut: set[int]
) -> None:
    door = Door(shop)
    door.shut = shut
    door.run(shop, [1, 2, 3])
    door.run(shop, order)
    door.shut = set()
    assert door.run(shop, order, ends=True) == list(order)
    assert sorted(shop.world) == [1, 2, 3], "each once"
    assert shop.state() == ("COMMITTED", True)


@pytest.mark.guarantee("RESUME-10")
def test_a_call_more_than_a_suspended_run_made_is_a_conflict(shop: Shop) -> None:
    door = Door(shop)
    door.shut = {2}
    door.run(shop, [1, 2])
    door.shut = set()
    with pytest.raises(SagaAborted) as caught:
        door.run(shop, [2, 5, 1], ends=True)
    assert isinstance(caught.value.cause, ReplayConflict)
    assert 5 not in shop.world


def test_parallel_calls_that_wait_for_approvals_may_come_back_in_any_order(shop: Shop) -> None:
    """Of two questions one is answered at once; the other one's call left no step."""

    class Some:
        yes = frozenset({1})

        def ask(self, request: Any) -> Approval:
            if request.arguments["n"] in self.yes:
                return Approval(True, "ann")
            raise ApprovalPending("waits", question=request.as_dict())

    people = Some()
    gate = PreFlightGate([Rule("people", lambda call: True, "ask")], approval_provider=people)
    kit = type(shop.kit)("asks", wal=str(shop.log), gate=gate)

    @kit.tool("COMPENSABLE")
    async def act(n: int) -> int:
        shop.world.append(n)
        return n

    @act.undo
    async def unact(result: int) -> None: ...

    async def run(*numbers: int, ends: bool) -> list[Any]:
        async with kit.transaction(saga_id="s", resume=True) as saga:
            got = await asyncio.gather(*map(act, numbers), return_exceptions=not ends)
            if not ends:
                saga.suspend("waits")
        return list(got)

    with pytest.raises(SagaSuspended):
        asyncio.run(run(1, 2, 3, ends=False))
    people.yes = frozenset({1, 3})
    with pytest.raises(SagaSuspended):
        asyncio.run(run(3, 2, 1, ends=False))
    people.yes = frozenset({1, 2, 3})
    assert asyncio.run(run(2, 1, 3, ends=True)) == [2, 1, 3]
    assert shop.world == [1, 3, 2]


def test_of_a_run_that_died_it_is_not_known_what_came_after_the_last_recorded_call(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks like a run that changed, so it stops; nothing happens twice."""
    monkeypatch.setattr("agent_saga.engine.suspend._calls_told", lambda saga: {})
    door = Door(shop)
    door.shut = {2}
    door.run(shop, [1, 2])
    door.shut = set()
    with pytest.raises(SagaAborted) as caught:
        door.run(shop, [2, 1], ends=True)
    assert isinstance(caught.value.cause, ReplayConflict)
    assert shop.world == [1, -1]


def test_a_savepoint_goes_on_counting_behind_the_calls_that_left_no_step(shop: Shop) -> None:
    door = Door(shop)
    door.shut = {1, 2}
    with pytest.raises(SagaSuspended), shop.open() as saga:
        with saga.savepoint("inner"):
            for n in (1, 2):
                with pytest.raises(LookupError):
                    door.pay(n)
        saga.suspend("waits")
    door.shut = set()
    with shop.open() as saga, saga.savepoint("inner"):
        assert [door.pay(n) for n in (2, 1, 3, 4)] == [2, 1, 3, 4]
    assert shop.world == [2, 1, 3, 4]
    assert len({key for keys in door.keys.values() for key in keys}) == 4

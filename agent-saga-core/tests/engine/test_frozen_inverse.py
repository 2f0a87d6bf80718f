"""An inverse is called, and announced, with what the log recorded when the effect happened."""

from __future__ import annotations

from typing import Any

import pytest

from agent_saga import (
    AgentKit,
    Applied,
    Compensation,
    NotApplied,
    Observation,
    RefusedError,
    RetryPolicy,
    SagaAborted,
    Settings,
    compensator,
)
from agent_saga.domain.records import Ev
from agent_saga.engine.derive import deriver_of


def test_a_result_that_is_changed_afterwards_changes_no_inverse() -> None:
    kit = AgentKit("frozen", wal="memory:")
    undone: list[Any] = []

    @kit.tool("COMPENSABLE")
    def act() -> dict[str, Any]:
        return {"id": "first", "lines": [1]}

    @act.undo
    def undo_act(result: dict[str, Any]) -> None:
        undone.append(result)

    with pytest.raises(SagaAborted), kit.transaction():
        result = act()
        result["id"] = "second"
        result["lines"].append(2)
        raise RuntimeError
    assert undone == [{"id": "first", "lines": [1]}]
    recorded = [
        record.data["inverse"]["kwargs"]["result"]
        for record in kit.runtime.wal.read_all()
        if record.event in (Ev.STEP_COMMITTED, Ev.STEP_COMPENSATING)
    ]
    assert recorded == [{"id": "first", "lines": [1]}] * 2


@compensator("frozen.discard")
def discard(item: str) -> None:
    """Take an item away, if it is there: as a call with the same key does."""
    STANDING.discard(item)


STANDING: set[str] = set()


@pytest.mark.guarantee("FROZEN-2")
def test_a_factory_may_give_the_same_compensation_for_every_step() -> None:
    """Else each is undone with the arguments of the first, which some inverses take for done."""
    kit = AgentKit("shared", wal="memory:")
    shared = Compensation(handler="frozen.discard", kwargs={})

    def inverse(result: str) -> Compensation:
        shared.kwargs["item"] = result
        return shared

    @kit.tool("COMPENSABLE", compensate=inverse)
    def keep(item: str) -> str:
        STANDING.add(item)
        return item

    with pytest.raises(SagaAborted) as aborted, kit.transaction():
        keep("first")
        keep("second")
        raise RuntimeError
    assert (aborted.value.report.clean, STANDING) == (True, set())


# --- a tool that changes what it was given --------------------------------------------------------


class Ledger:
    """Orders whose list of items the tool empties while it runs."""

    def __init__(self, **options: Any) -> None:
        self.kit = AgentKit("frozen", wal="memory:", settings=Settings(settle_after=0.0))
        self.undone: list[Any] = []
        self.fails: list[BaseException] = []
        self.calls = 0

        @self.kit.tool("COMPENSABLE", **options)
        def order(items: list[str], more: Any = None) -> str:
            self.calls += 1
            items.clear()
            items.append("changed")
            if self.fails:
                raise self.fails.pop()
            return "ordered"

        self.order: Any = order

    def run(self, items: list[str], more: Any = None) -> Any:
        with pytest.raises(SagaAborted) as aborted, self.kit.transaction():
            self.order(items, more)
            raise RuntimeError
        return aborted.value.report


UNFAITHFUL = [None, "sk-ant-api03-0123456789abcdef0123456789abcdef", object()]


@pytest.mark.guarantee("FROZEN-1")
@pytest.mark.parametrize("more", UNFAITHFUL, ids=["nothing", "secret", "object"])
def test_the_arguments_that_a_tool_changes_are_undone_as_they_were(more: Any) -> None:
    ledger = Ledger()

    @compensator("put_back")
    def put_back(items: list[str]) -> None:
        ledger.undone.append(items)

    ledger.order.tool.set_inverse(deriver_of(put_back.using(items="$args.items")))
    assert ledger.run(["lamp"], more).clean
    assert ledger.undone == [["lamp"]]


@pytest.mark.guarantee("FROZEN-1")
def test_a_factory_gets_the_arguments_as_they_were() -> None:
    ledger = Ledger(compensate=lambda result, args: Compensation(ledger_undone, kwargs=args))
    seen: list[Any] = []

    def ledger_undone(items: list[str], more: Any) -> None:
        seen.append(items)

    assert ledger.run(["lamp"]).clean
    assert seen == [["lamp"]]


@pytest.mark.guarantee("FROZEN-1")
def test_what_prepare_read_is_undone_as_it_was_read() -> None:
    """It is the very list that the tool changes."""
    shelf = ["lamp"]
    kit = AgentKit("frozen", wal="memory:")
    undone: list[Any] = []

    @kit.tool("COMPENSABLE", prepare=lambda args: shelf)
    def clear() -> None:
        shelf.clear()

    @clear.undo
    def put_back(prepared: list[str]) -> None:
        undone.append(prepared)

    with pytest.raises(SagaAborted), kit.transaction():
        clear()
        raise RuntimeError
    assert undone == [["lamp"]]


@pytest.mark.guarantee("FROZEN-1")
def test_a_prober_and_a_reconciler_are_asked_about_what_was_called() -> None:
    ledger = Ledger()
    asked: list[Any] = []

    @ledger.order.probe
    def find(args: dict[str, Any]) -> Applied:
        asked.append(args.pop("items"))
        return Applied("ordered")

    @ledger.order.undo
    def put_back(args: dict[str, Any]) -> None:
        ledger.undone.append(args["items"])
        raise ConnectionError

    @ledger.order.observe
    def look(args: dict[str, Any]) -> Observation:
        asked.append(args["items"])
        return Observation(reversed_=True)

    ledger.fails = [ConnectionError("lost")]
    assert ledger.run(["lamp"]).clean
    assert asked == [["lamp"], ["lamp"]]
    assert ledger.undone == [["lamp"]]


@pytest.mark.guarantee("FROZEN-1")
def test_a_reconciler_is_asked_about_what_was_called_though_nobody_asked_before() -> None:
    ledger = Ledger()
    asked: list[Any] = []

    @ledger.order.undo
    def cancel(result: str) -> None:
        raise ConnectionError

    @ledger.order.observe
    def look(args: dict[str, Any]) -> Observation:
        asked.append(args["items"])
        return Observation(reversed_=True)

    assert ledger.run(["lamp"]).clean
    assert asked == [["lamp"]]


def test_a_helper_that_changes_the_arguments_changes_them_for_itself() -> None:
    def read(args: dict[str, Any]) -> int:
        args["n"] = 7
        return 1

    kit = AgentKit("frozen", wal="memory:")
    undone: list[Any] = []

    @kit.tool("COMPENSABLE", prepare=read)
    def act(n: int) -> int:
        return n

    @act.undo
    def undo_act(args: dict[str, Any]) -> None:
        undone.append(args)

    with pytest.raises(SagaAborted), kit.transaction():
        assert act(1) == 1
        raise RuntimeError
    assert undone == [{"n": 1}]


def test_a_call_that_changed_its_arguments_is_not_tried_again_with_them() -> None:
    """The log holds others, and so would whoever undoes it."""
    ledger = Ledger(retry=RetryPolicy(max_retries=2, base_delay=0.0))
    ledger.fails = [NotApplied("busy")]
    with pytest.raises(SagaAborted) as aborted, ledger.kit.transaction():
        ledger.order(["lamp"])
    assert isinstance(aborted.value.__cause__, RefusedError)
    assert ledger.calls == 1

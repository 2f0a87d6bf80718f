"""A call within which other effects were made is not made again inside its step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_saga import AgentKit, NotApplied, OutcomeUnknown, RetryPolicy, SagaAborted

QUICK = RetryPolicy(max_retries=2, base_delay=0.0)
ON_LOSS = RetryPolicy(max_retries=2, base_delay=0.0, retry_on=ConnectionError)


class Shop:
    """An order that charges within itself, and then fails."""

    def __init__(self, error: BaseException, **options: Any) -> None:
        self.kit = AgentKit("within", wal="memory:")
        self.world: list[str] = []
        self.error = error

        @self.kit.tool("COMPENSABLE")
        def charge(n: int) -> int:
            self.world.append("charged")
            return n

        @charge.undo
        def refund(result: int) -> None:
            self.world.append("refunded")

        @self.kit.tool("REVERSIBLE")
        def look(n: int) -> int:
            self.world.append("looked")
            return n

        self.charge: Any = charge
        self.inner: Callable[[], object] = lambda: charge(1)

        @self.kit.tool("COMPENSABLE", **options)
        def order(n: int) -> int:
            self.inner()
            raise self.error

        @order.undo
        def cancel(result: int) -> None:
            self.world.append("cancelled")

        self.order: Any = order
        self.look: Any = look


@pytest.mark.guarantee("INNER-1")
@pytest.mark.parametrize(
    ("error", "options"),
    [
        (NotApplied("not yet"), {"retry": QUICK}),
        (ConnectionError("lost"), {"retry": ON_LOSS}),
        (ConnectionError("lost"), {"retry": QUICK, "idempotent": True}),
    ],
    ids=["no effect", "listed", "idempotent"],
)
def test_a_retry_makes_no_inner_effect_again(error: BaseException, options: Any) -> None:
    shop = Shop(error, **options)
    with pytest.raises(SagaAborted), shop.kit.transaction():
        shop.order(1)
    assert shop.world == ["charged", "refunded"]


@pytest.mark.guarantee("INNER-1")
def test_a_fallback_makes_no_inner_effect_again() -> None:
    shop = Shop(NotApplied("no"), fallback_action=lambda n: [shop.charge(n)])
    with pytest.raises(SagaAborted), shop.kit.transaction():
        shop.order(1)
    assert shop.world == ["charged", "refunded"]


@pytest.mark.guarantee("INNER-1")
def test_a_repetition_by_the_program_makes_no_inner_effect_again() -> None:
    shop = Shop(ConnectionError("lost"), idempotent=True)
    with pytest.raises(SagaAborted), shop.kit.transaction():
        with pytest.raises(ConnectionError):
            shop.order(1)
        with pytest.raises(OutcomeUnknown):
            shop.order(1)
        raise RuntimeError
    assert shop.world == ["charged", "refunded"]


def test_a_saga_of_its_own_within_it_is_not_begun_again() -> None:
    shop = Shop(NotApplied("not yet"), retry=QUICK)

    def inner() -> None:
        with shop.kit.transaction(detached=True):
            shop.charge.keyed("one")(1)

    shop.inner = inner
    with pytest.raises(SagaAborted), shop.kit.transaction():
        shop.order(1)
    assert shop.world == ["charged"]


@pytest.mark.parametrize("inner", ["reads", "keyed", "nothing"])
def test_what_makes_no_effect_again_is_retried(inner: str) -> None:
    shop = Shop(NotApplied("not yet"), retry=QUICK)

    def charged() -> object:
        return shop.charge.keyed("one")(1)

    shop.inner = {"reads": lambda: shop.look(1), "keyed": charged, "nothing": dict}[inner]
    calls: list[int] = []
    counted = shop.inner
    shop.inner = lambda: (calls.append(1), counted())
    with pytest.raises(SagaAborted), shop.kit.transaction():
        shop.order(1)
    assert len(calls) == 3
    assert shop.world.count("charged") == (inner == "keyed")

"""The decorators, and inverses as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_saga.errors import ConfigurationError, DuplicateName
from agent_saga.plugins.registration import compensator, prober, reconciler
from agent_saga.plugins.registry import process_handlers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _isolated() -> Iterator[None]:
    with process_handlers().isolated():
        yield


def test_a_decorated_function_stays_the_function() -> None:
    @compensator("refund", null_safe=True, idempotent=True, window=60)
    def refund(id: str) -> str:  # noqa: A002
        return f"refunded {id}"

    assert refund("c1") == "refunded c1"
    assert refund.handler_name == "refund"
    handler = process_handlers().compensators.get("refund")
    assert handler.fn is refund
    assert handler.promises() == (True, True, 60, False)


def test_each_decorator_fills_its_own_registry() -> None:
    @prober("find")
    def find() -> None: ...

    @reconciler("refund")
    async def check() -> None: ...

    handlers = process_handlers()
    assert handlers.probers.get("find").fn is find
    assert handlers.reconcilers.get("refund").fn is check
    assert "find" not in handlers.compensators
    assert "refund" not in handlers.compensators


def test_using_writes_the_inverse_as_data() -> None:
    @compensator("refund")
    def refund(id: str, note: str = "", *, idempotency_key: str) -> None: ...  # noqa: A002

    template = refund.using(id="$.id", note="agent run")
    assert template.handler == "refund"
    assert template.needs_result
    inverse = template.fill({"result": {"id": "c1"}, "args": {}, "prepared": None})
    assert inverse.handler == "refund"
    assert inverse.kwargs == {"id": "c1", "note": "agent run"}


def test_using_refuses_where_it_is_written_what_does_not_fit() -> None:
    @compensator("refund")
    def refund(id: str, *, idempotency_key: str) -> None: ...  # noqa: A002

    with pytest.raises(ConfigurationError, match="no parameter 'charge'"):
        refund.using(charge="$.id")
    with pytest.raises(ConfigurationError, match="also needs id"):
        refund.using()
    with pytest.raises(ConfigurationError, match="from the engine"):
        refund.using(id="$.id", idempotency_key="mine")


def test_a_decorator_without_a_name_is_said() -> None:
    with pytest.raises(ConfigurationError, match=r'@compensator\("a\.name"\)'):
        compensator(lambda: None)  # type: ignore[arg-type]


def test_a_taken_name_is_refused() -> None:
    @compensator("refund")
    def one() -> None: ...

    with pytest.raises(DuplicateName):

        @compensator("refund")
        def two() -> None: ...


def test_what_cannot_carry_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="plain function"):
        compensator("join")(", ".join)

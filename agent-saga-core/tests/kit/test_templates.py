"""What a template gives its handler must come through the log."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from agent_saga import ConfigurationError, compensator
from agent_saga.plugins.registry import process_handlers


@pytest.fixture(autouse=True)
def refund():
    with process_handlers().isolated():

        @compensator("templates.refund")
        def refund(number, *, idempotency_key):
            pass

        yield refund


@pytest.mark.parametrize("value", [object(), lambda result: 1, [object()], {"a": {"b": object}}])
def test_what_no_log_can_carry_is_refused_when_it_is_written(kit, refund, value):
    with pytest.raises(ConfigurationError, match="cannot be recorded"):
        kit.safe_tool(lambda: None, compensate=refund.using(number=value), name="t")


@pytest.mark.parametrize(
    "value", ["$.id", "$", "$$", {"token": "$.token"}, Decimal(1), dt.date.min, (1, b"x")]
)
def test_what_comes_through_is_taken(kit, refund, value):
    assert kit.safe_tool(lambda: None, compensate=refund.using(number=value), name="t")

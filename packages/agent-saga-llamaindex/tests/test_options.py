"""Every option of `FunctionTool.from_defaults` passes through `saga_tool`."""

from __future__ import annotations

import inspect

import pytest
from llama_index.core.tools import FunctionTool, ToolMetadata
from pydantic import BaseModel

from agent_saga_llamaindex import saga_tool

OPTIONS = {
    "name": "pay_now",
    "description": "Pay now.",
    "return_direct": True,
    "fn_schema": type("Pay", (BaseModel,), {"__annotations__": {"amount": int}}),
    "tool_metadata": ToolMetadata(name="other", description="Other."),
    "callback": str,
    "async_callback": None,
    "partial_params": {"amount": 5},
}
"""A value for every option of `FunctionTool.from_defaults` but the functions."""


@pytest.mark.parametrize(
    "option",
    sorted(set(inspect.signature(FunctionTool.from_defaults).parameters) - {"fn", "async_fn"}),
)
def test_every_option_passes_through_saga_tool(shop, option):
    def pay(amount: int) -> dict:
        """Pay."""
        return {"paid": amount}

    given = {option: OPTIONS[option]}
    theirs = FunctionTool.from_defaults(pay, **given)
    ours = saga_tool(pay, compensate=shop.undo, kit=shop.kit, **given)
    assert ours.metadata.name == theirs.metadata.name
    assert ours.metadata.description == theirs.metadata.description
    assert ours.metadata.return_direct == theirs.metadata.return_direct
    assert ours.metadata.get_parameters_dict() == theirs.metadata.get_parameters_dict()
    assert ours.partial_params == theirs.partial_params
    assert ours._callback == theirs._callback

"""Every option of `function_tool` passes through `saga_tool`, in each version that is tested."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from agents import (
    FunctionTool,
    ToolGuardrailFunctionOutput,
    function_tool,
    tool_input_guardrail,
    tool_output_guardrail,
)
from pydantic import BaseModel

from agent_saga_openai_agents import saga_tool


def told(ctx, error):
    return f"failed: {error}"


def is_on(ctx, agent):
    return True


def custom(*args):
    return {}


@tool_input_guardrail
def before(data):
    return ToolGuardrailFunctionOutput.allow()


@tool_output_guardrail
def behind(data):
    return ToolGuardrailFunctionOutput.allow()


class Paid(BaseModel):
    """What paying returns."""

    paid: int


SAMPLES = {
    "name_override": {"name_override": "pay_now"},
    "description_override": {"description_override": "Pay now."},
    "docstring_style": {"docstring_style": "numpy"},
    "use_docstring_info": {"use_docstring_info": False},
    "failure_error_function": {"failure_error_function": told},
    "strict_mode": {"strict_mode": False},
    "is_enabled": {"is_enabled": is_on},
    "needs_approval": {"needs_approval": True},
    "tool_input_guardrails": {"tool_input_guardrails": [before]},
    "tool_output_guardrails": {"tool_output_guardrails": [behind]},
    "timeout": {"timeout": 5.0},
    "timeout_behavior": {"timeout": 5.0, "timeout_behavior": "raise_exception"},
    "timeout_error_function": {"timeout": 5.0, "timeout_error_function": told},
    "defer_loading": {"defer_loading": True},
    "custom_data_extractor": {"custom_data_extractor": custom},
    "allowed_callers": {"allowed_callers": ["direct"]},
    "output_type": {"output_type": Paid},
    "output_json_schema": {"output_json_schema": {"type": "object"}},
}
THEIRS = sorted(set(inspect.signature(function_tool).parameters) - {"func"})
WRAPPED = ("on_invoke_tool", "needs_approval")
"""Fields that hold what calls ours; each asks the given one."""


async def pay(amount: int) -> dict:
    """Pay.

    Parameters
    ----------
    amount
        How much.
    """
    return {"paid": amount}


@pytest.mark.parametrize("option", THEIRS)
def test_it_is_as_the_framework_makes_it(shop, option):
    given = SAMPLES[option]
    theirs = function_tool(pay, **given)
    ours = saga_tool(pay, compensate=shop.undo, kit=shop.kit, **given)
    for field in dataclasses.fields(FunctionTool):
        if field.name not in WRAPPED:
            mine, their = getattr(ours, field.name), getattr(theirs, field.name)
            assert mine == their or repr(mine) == repr(their), field.name
    assert ours.needs_approval or option != "needs_approval"

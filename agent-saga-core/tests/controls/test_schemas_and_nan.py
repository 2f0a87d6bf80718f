"""A float that is no number fits no schema: no bound could hold for it."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import pydantic
import pytest

from agent_saga import Compensation, RefusedError, Rule
from agent_saga.controls.predicates import breaks_schema


def nothing(result):
    return Compensation.none("nothing stands")


class Struct(msgspec.Struct):
    amount: Annotated[float, msgspec.Meta(ge=0, le=100)]


class Model(pydantic.BaseModel):
    amount: float = pydantic.Field(ge=0, le=100)


class Loose(pydantic.BaseModel):
    amount: object


NUMBER = {"type": "number", "minimum": 0, "maximum": 100}
SCHEMAS = [Struct, Model, {"properties": {"amount": NUMBER}}]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("amount", [math.nan, -math.nan, math.inf])
def test_nan_passes_no_bound_of_a_schema(gated, world, schema, amount):
    kit = gated(Rule("fits", breaks_schema(schema)))
    wire = kit.safe_tool(world.wire, "COMPENSABLE", nothing, name="wire")
    with kit.transaction():
        with pytest.raises(RefusedError):
            wire(amount)
        wire(5.0)
    assert world.amounts == [5.0]


@pytest.mark.parametrize(
    "amount", [[math.nan], {"each": [1.0, math.nan]}, (1.0, (math.nan,)), {math.nan}]
)
def test_nor_does_it_anywhere_inside(gated, world, amount):
    kit = gated(Rule("fits", breaks_schema(Loose)))
    wire = kit.safe_tool(world.wire, "COMPENSABLE", nothing, name="wire")
    with kit.transaction(), pytest.raises(RefusedError):
        wire(amount)
    assert world.amounts == []

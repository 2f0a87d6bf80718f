"""What stands in the place of a callable is read as the callable itself is."""

from __future__ import annotations

import functools
import inspect
import typing

import pytest

from agent_saga import AgentKit
from agent_saga.kit.frameworks.functions import in_place_of

KIT = AgentKit("functions", wal="memory:")


def look(item: str, depth: int = 1) -> str:
    """Look at an item."""
    return item


class Looking:
    """An object that is called; the annotation of its field is not that of its call."""

    depth: bytes = b""

    def __call__(self, item: str, depth: int = 1) -> str:
        """Look at an item."""
        return item


class Effect:
    """A step that is not called here."""

    def __init__(self, fn):
        self.tool = KIT.safe_tool(fn, "REVERSIBLE", name="look")


@pytest.mark.parametrize(
    "original", [look, functools.partial(look, depth=2), Looking(), Looking().__call__]
)
def test_its_types_and_parameters_are_those_of_the_callable(original):
    stands = in_place_of(original, Effect(original))
    wanted = {"item": str, "depth": int, "return": str}
    assert typing.get_type_hints(stands) == wanted
    shown = inspect.signature(stands).parameters
    assert list(shown) == ["item", "depth"]
    assert shown["depth"].default == inspect.signature(original).parameters["depth"].default

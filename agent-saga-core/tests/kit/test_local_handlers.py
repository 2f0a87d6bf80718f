"""Tools that are defined inside a function, again and again: each keeps its own inverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_saga import AgentKit, DuplicateName, SagaAborted, compensator


def shop(world: list[str], name: str) -> Callable[[], Any]:
    kit = AgentKit("shop", wal="memory:")

    @kit.tool("COMPENSABLE")
    def act() -> str:
        world.append(f"act {name}")
        return name

    @act.undo
    def undo_act(result: str) -> None:
        world.append(f"undo {name}")

    def run() -> None:
        with pytest.raises(SagaAborted), kit.transaction():
            act()
            raise RuntimeError

    return run


def test_each_tool_is_undone_by_the_function_that_it_was_declared_with() -> None:
    world: list[str] = []
    first, second = shop(world, "first"), shop(world, "second")
    first()
    second()
    first()
    assert world == [
        "act first",
        "undo first",
        "act second",
        "undo second",
        "act first",
        "undo first",
    ]


def test_a_chosen_name_still_stands_for_one_function() -> None:
    @compensator("tests.chosen")
    def one() -> None: ...

    with pytest.raises(DuplicateName):

        @compensator("tests.chosen")
        def two() -> None: ...

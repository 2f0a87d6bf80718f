"""Calls that the program leaves unnamed, named by a framework package that knows the place."""

from __future__ import annotations

import pytest

from agent_saga import AgentKit


@pytest.mark.guarantee("NAME-3")
def test_a_call_that_is_named_the_same_again_is_the_same_step(tmp_path):
    made = []
    kit = AgentKit("names", wal=str(tmp_path / "log"))
    book = kit.safe_tool(
        lambda item: made.append(item) or {"item": item},
        "COMPENSABLE",
        compensate=lambda result: made.clear,
        name="book",
    )
    with kit.transaction() as handle:
        saga = handle._scope.saga
        book(item="seat")
        book(item="seat")
        saga.names = lambda tool, mac: f"{tool.name} {mac.hex()}"
        assert book(item="seat") == book(item="seat")
        book.keyed("own")(item="seat")
        saga.names = lambda tool, mac: None
        book(item="seat")
    assert made == ["seat"] * 5

"""An inverse is called, and announced, with what the log recorded when the effect happened."""

from __future__ import annotations

from typing import Any

import pytest

from agent_saga import AgentKit, SagaAborted
from agent_saga.domain.records import Ev


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

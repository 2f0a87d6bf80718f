"""What is promised by yes or no is never promised by a text, and labels are a mapping."""

from __future__ import annotations

from typing import Any

import pytest

from agent_saga import AgentKit, MemoryWAL, compensator, saga_scope
from agent_saga.errors import ConfigurationError


@pytest.fixture
def kit() -> AgentKit:
    return AgentKit("test", wal=MemoryWAL())


def call(n: int) -> int:
    return n


@pytest.mark.parametrize("what", ["idempotent", "repeatable", "loop_free"])
@pytest.mark.parametrize("said", ["no", "yes", 1, None])
def test_of_a_tool(kit: AgentKit, what: str, said: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{what} is True or False"):
        kit.safe_tool(call, "REVERSIBLE", **{what: said})


@pytest.mark.parametrize("what", ["idempotent", "null_safe", "irreversible"])
def test_of_an_inverse(kit: AgentKit, what: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{what} of 'refund.{what}' is True or False"):
        compensator(f"refund.{what}", **{what: "no"})(call)
    tool = kit.safe_tool(call, "COMPENSABLE", name=f"call.{what}")
    with pytest.raises(ConfigurationError, match="is True or False"):
        tool.undo(**{what: "no"})(lambda result: None)


@pytest.mark.parametrize("what", ["reraise", "detached", "resume", "suspendable"])
def test_of_a_boundary(kit: AgentKit, what: str) -> None:
    for opened in (kit.transaction, saga_scope):
        with pytest.raises(ConfigurationError, match=f"{what} is True or False"):
            opened(saga_id="order", **{what: "no"})  # type: ignore[operator]


@pytest.mark.parametrize("about", [{"name": 5}, {"labels": [1]}, {"labels": "a"}])
def test_a_boundary_has_a_text_for_a_name_and_a_mapping_for_labels(
    kit: AgentKit, about: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError):
        kit.transaction(**about)

"""`saga_tool` is told what a tool does in every form in which decorators are written."""

from __future__ import annotations

import pytest

from agent_saga import AgentKit, ConfigurationError
from agent_saga_autogen import saga_tool
from agent_saga_autogen.tools import is_wrapped

KIT = AgentKit("forms", wal="memory:")


def look(item: str) -> str:
    """Look at an item."""
    return item


@pytest.mark.parametrize(
    "made",
    [
        lambda: saga_tool("REVERSIBLE", kit=KIT)(look),
        lambda: saga_tool(semantics="REVERSIBLE", kit=KIT)(look),
        lambda: saga_tool(look, semantics="REVERSIBLE", kit=KIT),
    ],
)
def test_every_form_makes_a_step(made):
    tool = made()
    assert is_wrapped(tool)
    assert tool.name == "look"


def test_what_a_tool_does_is_said_once():
    with pytest.raises(ConfigurationError, match="said twice"):
        saga_tool("REVERSIBLE", semantics="COMPENSABLE", kit=KIT)

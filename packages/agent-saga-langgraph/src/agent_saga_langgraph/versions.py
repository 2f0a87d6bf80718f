"""Which versions of the frameworks this package works with; it imports none of them."""

from __future__ import annotations

from typing import Final

from agent_saga.kit.frameworks.versions import Bounds

PACKAGE: Final = "agent-saga-langgraph"

RANGES: Final[dict[str, Bounds]] = {
    "langgraph": ((1, 2), (2,)),
    "langchain-core": ((1, 4), (2,)),
}
LANGCHAIN: Final[dict[str, Bounds]] = {"langchain": ((1, 3), (2,))}

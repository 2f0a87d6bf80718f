"""Which versions of the framework this package works with; it does not import it."""

from __future__ import annotations

from typing import Final

from agent_saga.kit.frameworks.versions import Bounds

RANGES: Final[dict[str, Bounds]] = {
    "autogen-core": ((0, 6, 2), (0, 8)),
    "autogen-agentchat": ((0, 6, 2), (0, 8)),
}

"""Which versions of CrewAI this package works with; it does not import it."""

from __future__ import annotations

from typing import Final

from agent_saga.kit.frameworks.versions import Bounds

RANGES: Final[dict[str, Bounds]] = {"crewai": ((1, 15, 9), (2,))}

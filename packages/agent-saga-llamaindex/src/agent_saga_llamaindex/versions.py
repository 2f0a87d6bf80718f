"""Which versions of the framework this package works with; it does not import it."""

from __future__ import annotations

from typing import Final

from agent_saga.kit.frameworks.versions import Bounds

RANGES: Final[dict[str, Bounds]] = {
    "llama-index-core": ((0, 14, 22), (0, 15)),
    "llama-index-workflows": ((2, 26), (3,)),
}

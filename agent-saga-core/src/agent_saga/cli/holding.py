"""What the commands tell of sagas that are held after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.recovery.hold import looked_up
from agent_saga.state.address import open_state

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent_saga.domain.views import SagaView
    from agent_saga.recovery.hold import Hold

__all__ = ["holds"]


def holds(path: Path, views: Iterable[SagaView]) -> dict[str, Hold]:
    """Return the sagas of a log that are held, by id; looks only where one may be."""
    may_be = [view for view in views if view.held_for is not None]
    if not may_be:
        return {}
    with open_state(f"file:{path}") as store:
        return looked_up(str(path), store, may_be)

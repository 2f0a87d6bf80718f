"""What `agent-saga status` tells, in sections.

Rules of this part:

- A section looks at one thing and says whether it needs attention; to add one, add its function to
  `SECTIONS`. Looking makes nothing and changes nothing.
- A section that cannot be looked at needs attention, with the reason; the others are told all the
  same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.cli.status.approvals import approvals
from agent_saga.cli.status.halts import halts
from agent_saga.cli.status.queue import queue
from agent_saga.cli.status.recovery import recovery
from agent_saga.cli.status.sagas import sagas
from agent_saga.cli.status.section import Scene, Section
from agent_saga.cli.status.writers import writers
from agent_saga.errors import AgentSagaError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SECTIONS", "Scene", "Section", "looked_at"]

SECTIONS: Final[dict[str, Callable[[Scene], Section]]] = {
    "writers": writers,
    "sagas": sagas,
    "queue": queue,
    "halts": halts,
    "approvals": approvals,
    "recovery": recovery,
}
"""Each section by its name, in the order in which they are told."""


def looked_at(scene: Scene) -> dict[str, Section]:
    """Return every section by its name."""
    return {name: _looked_at(look, scene) for name, look in SECTIONS.items()}


def _looked_at(look: Callable[[Scene], Section], scene: Scene) -> Section:
    try:
        return look(scene)
    except (AgentSagaError, OSError) as error:
        reason = f"it cannot be read: {one_line(error)}"
        return Section([reason], {"error": reason}, attention=True)

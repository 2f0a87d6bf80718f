"""The section `sagas`: which are open, suspended, held after a crash, or to be undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from agent_saga.cli.holding import holds
from agent_saga.cli.output import counted, printable
from agent_saga.cli.place import wal_option
from agent_saga.cli.status.section import Section
from agent_saga.cli.story import moment
from agent_saga.domain.lifecycle import SagaState
from agent_saga.recovery.hold import hold_text
from agent_saga.recovery.suspended import UNDO, after_deadline

if TYPE_CHECKING:
    from agent_saga.cli.status.section import Scene
    from agent_saga.domain.views import SagaView

__all__ = ["sagas"]

_NAMED: Final = 3
"""How many of the sagas that are to be undone are named."""


def sagas(scene: Scene) -> Section:
    """Tell how many sagas are open, and what the others that have not ended wait for."""
    held = holds(scene.log.path, scene.crashed)
    waiting = [saga for saga in scene.log.sagas.values() if saga.state is SagaState.SUSPENDED]
    overdue = [saga for saga in waiting if after_deadline(saga) == UNDO]
    left = [*[saga for saga in scene.crashed if saga.id not in held], *overdue]
    head = f"{len(scene.live)} open, {len(waiting)} suspended, {len(held)} held, "
    lines = [f"{head}{len(left)} to be undone, {len(scene.log.sagas)} in all"]
    lines += [
        f"  {printable(saga.id)} is open, and whether its process lives cannot be told"
        for saga in scene.untold
    ]
    lines += [f"  {hold.saga} is held: {hold_text(hold)}" for hold in held.values()]
    deadlines = [d for saga in waiting if (d := saga.deadline) is not None and d > scene.now]
    if deadlines:
        lines.append(f"  the next deadline of a suspended saga: {moment(min(deadlines))} UTC")
    lines += _to_be_undone(scene, left, len(overdue))
    facts = {
        "open": [saga.id for saga in scene.live],
        "suspended": [saga.id for saga in waiting],
        "next_deadline_us": min(deadlines, default=None),
        "overdue": [saga.id for saga in overdue],
        "held": {hold.saga: hold.until for hold in held.values()},
        "left": [saga.id for saga in left],
        "untold": [saga.id for saga in scene.untold],
        "all": len(scene.log.sagas),
    }
    return Section(lines, facts, attention=bool(left or scene.untold))


def _to_be_undone(scene: Scene, left: Sequence[SagaView], overdue: int) -> list[str]:
    """Tell what recovery would undo, and the command that does it; nothing if there is none."""
    if not left:
        return []
    names = ", ".join(printable(saga.id) for saga in left[:_NAMED])
    more = ", …" if len(left) > _NAMED else ""
    beyond = f", {overdue} of them beyond a deadline" if overdue else ""
    return [
        f"  {counted(len(left), 'saga')} to be undone{beyond} ({names}{more}). Next:",
        f"  agent-saga recover {wal_option(scene.log.path)} --import MODULE",
    ]

"""The section `sagas`: which are open, suspended, held after a crash, or to be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

__all__ = ["sagas"]


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
    if left:
        names = ", ".join(printable(saga.id) for saga in left[:3])
        more = ", …" if len(left) > len(left[:3]) else ""
        beyond = f", {len(overdue)} of them beyond a deadline" if overdue else ""
        lines.append(f"  {counted(len(left), 'saga')} to be undone{beyond} ({names}{more}). Next:")
        lines.append(f"  agent-saga recover {wal_option(scene.log.path)} --import MODULE")
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

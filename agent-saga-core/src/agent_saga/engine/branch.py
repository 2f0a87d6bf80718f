"""Undoing some steps of a saga that goes on, as when a resumed run has gone another way.

Rules of this part:

- It is the same undoing as of a whole saga: in order, each inverse announced, never twice. Only the
  saga itself stays as it is; its new steps come after it.
- What cannot be finished releases the saga to recovery, which undoes all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.engine.requests import Durable, Protocol
from agent_saga.engine.saga import undo_order
from agent_saga.engine.unwind import Unwinding
from agent_saga.errors import RefusedError, WALError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_saga.domain.report import RollbackReport
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step


def undo_branch(saga: Saga, steps: Sequence[Step]) -> Protocol[RollbackReport]:
    """Undo some steps of a saga that goes on; nothing of it is in flight.

    If that cannot be finished, the saga is released to recovery.
    """
    report = saga.new_report()
    unwinding = Unwinding(saga.root, report)
    try:
        saga.engine.wal.check_fence(saga.id, saga.epoch)
        for step in undo_order(steps):
            cut = yield from unwinding.visit(step)
            if cut is not None:
                unwinding.give_up(cut)
                return report
        cut = yield Durable(saga.engine.wal.seq)
        if cut is not None:
            unwinding.give_up(cut)
            return report
        saga.engine.wal.check_fence(saga.id, saga.epoch)
    except (WALError, RefusedError) as trouble:
        unwinding.give_up(trouble)
    report.outcome = report.outcome or report.verdict()
    return report

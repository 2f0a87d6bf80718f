"""Undoing some steps of a saga that goes on without them, or that has ended.

Rules of this part:

- The saga stays what it is, committed or suspended; only the steps move, each by the same records
  and with the same keys as in an unwinding of the whole.
- Latest outcome first, as ever. An inverse that fails for good halts: the rest is UNRESOLVED.
- A crash in the middle leaves a step COMPENSATING, so the saga is not clean; asking again goes on.
"""

from __future__ import annotations

from collections.abc import Collection

from agent_saga.domain.report import RollbackReport
from agent_saga.engine.requests import Protocol
from agent_saga.engine.saga import Saga, undo_order
from agent_saga.engine.unwind import Unwinding
from agent_saga.errors import said_by


def unwind_steps(saga: Saga, chosen: Collection[str]) -> Protocol[RollbackReport]:
    """Undo steps of a saga that is in this process's hands; report what became of them.

    Args:
        saga: the saga, claimed and rebuilt.
        chosen: the ids of the steps.
    """
    report = saga.new_report()
    unwinding = Unwinding(saga.root, report)
    steps = [step for step in saga.steps_of(saga.root) if step.id in chosen]
    for step in undo_order(steps):
        cut: BaseException | None = yield from unwinding.visit(step)
        if cut is not None:
            report.notes.append(f"undoing stopped: {said_by(cut)}")
            report.unresolved += [
                left.line("not reached") for left in steps if left.id not in unwinding.done
            ]
            break
    report.outcome = report.verdict()
    return report

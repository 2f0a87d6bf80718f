"""Recording how a call ended, and what its caller gets then.

An ending that cannot be recorded is told to the caller all the same: its announcement stands in the
log, and an announcement without an outcome is an unknown one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.engine import journal
from agent_saga.engine.endings import Kind, evidence
from agent_saga.engine.outcome import applied, record_inverse_problem
from agent_saga.engine.requests import Durable, HandedOver, Outcome, Protocol
from agent_saga.errors import NotApplied, StepTimeout, WALError
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.engine.step import Step

log = logger("agent_saga.engine")


def committed(step: Step, value: Any) -> tuple[Outcome, int]:
    """Record an effect that happened.

    Returns:
        What the caller gets, and the record that it has to wait for before; 0 for none.
    """
    saga, tool = step.saga, step.tool
    applied(step, value)
    try:
        seq, problem = journal.committed(step)
        step.call = None  # what was judged is of no more use; a saga may hold many steps
        saga.committed += 1
        leak = None if problem is None else record_inverse_problem(step, problem)
        out = saga.engine.wal.hand_over(sync=not tool.reversible)
    except WALError as error:
        return Outcome(error=error), 0
    outcome = Outcome(value, leak)
    return (outcome, 0) if out and (tool.reversible or not _durably(step)) else (outcome, seq)


def _durably(step: Step) -> bool:
    """Say whether the caller sees the result only when the outcome is durable."""
    return (step.tool.durable or step.saga.durable) and not step.tool.reversible


def waited(step: Step, outcome: Outcome, seq: int) -> Protocol[Outcome]:
    """Wait for an outcome's record; return what the caller gets then."""
    cut = yield Durable(seq) if _durably(step) else HandedOver(seq, asked=True)
    return outcome if cut is None else Outcome(error=cut)


def ended(step: Step, error: BaseException, kind: Kind, *, by: str = "tool") -> Protocol[Outcome]:
    """Record an ending that was no success, and give its error to the caller.

    Args:
        step: the step.
        error: what its caller gets.
        kind: what is known of its effect.
        by: who says that there was none.
    """
    saga = step.saga
    try:
        if kind is Kind.NOT_APPLIED:
            step.running = False
            step.spent = isinstance(step.error, NotApplied) and step.error.final
            seq = journal.not_applied(step, by, evidence(step.error), final=True)
        else:
            seq = journal.unknown(step, _ending_name(step))
            saga.engine.metrics.count("steps_unknown")
    except WALError as trouble:
        log.warning("the ending of %s could not be recorded: %s", step.tool.name, trouble)
        return Outcome(error=error)
    cut = yield HandedOver(seq, sync=not step.tool.reversible)
    return Outcome(error=error if cut is None else cut)


def _ending_name(step: Step) -> str:
    if isinstance(step.error, StepTimeout):
        return "timeout"
    if step.answered and not step.running:
        return "exception"
    return "no answer"

"""A call that had been given up and now ends in its thread.

Rules of this part:

- Runs on the thread (or loop) where the call ended, while everybody else may be doing anything; it
  never waits and never raises. An ending that comes before the step's protocol has recorded that it
  gave the call up is kept for it (`take_kept`).
- A result shows an effect. While the saga lives, the step is COMMITTED with its inverse. After the
  saga ended the record says so, and a saga that had ended well is REOPENED: it is no longer clean.
- An error that is declared harmless settles the step as NOT_APPLIED. Any other leaves it UNKNOWN;
  an answer of the provider then means that nothing more can arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.domain.lifecycle import SagaState, StepState
from agent_saga.domain.records import Ev
from agent_saga.engine import calls, journal
from agent_saga.engine.endings import Kind, answered, evidence, kind_of
from agent_saga.engine.outcome import applied, record_inverse_problem
from agent_saga.engine.requests import Ending
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.engine.forms import Form
    from agent_saga.engine.step import Step

log = logger("agent_saga.engine")

_NOT_RUN = RuntimeError("it returned an awaitable after it had been given up, which was not run")


def arrived(step: Step, form: Form, ending: Ending) -> None:
    """Take in the real ending of a call that had been given up."""
    with step.saga.lock:
        if not step.parked:
            step.late = (form, ending)
            return
        step.parked = False
    _take(step, form, ending)


def take_kept(step: Step) -> None:
    """Take in an ending that came while the protocol was still giving the call up."""
    with step.saga.lock:
        kept, step.late = step.late, None
        if kept is None:
            return
        step.parked = False
    _take(step, *kept)


def _take(step: Step, form: Form, ending: Ending) -> None:
    saga = step.saga
    try:
        if ending.error is None and calls.pending(ending.value):
            calls.discard(ending.value)
            _failed_late(step, form, Ending(error=_NOT_RUN))
        elif ending.error is None:
            _applied_late(step, ending)
        else:
            _failed_late(step, form, ending)
        saga.engine.wal.drain()
    except Exception:
        log.exception("the late ending of %s could not be recorded", step.tool.name)
    finally:
        step.running = False
        saga.left(step)


def _applied_late(step: Step, ending: Ending) -> None:
    saga = step.saga
    saga.engine.metrics.count("late_arrivals")
    applied(step, ending.value)
    _, problem = journal.committed(step, Ev.STEP_LATE)
    record_inverse_problem(step, problem)
    if step.tool.reversible:
        return
    if not saga.ended:
        log.warning("%s ended after its timeout and did take effect", step.tool.name)
        return
    log.error(
        "%s took effect after saga %s had ended; it stands. Look at it with: %s",
        step.tool.name,
        saga.id,
        saga.new_report().next_command(),
    )
    if saga.report is not None:
        saga.report.notes.append(f"{step.tool.name} took effect after the end")
        saga.report.unresolved.append(step.line("took effect after the boundary had ended"))
    if saga.state in (SagaState.COMMITTED, SagaState.ROLLED_BACK):
        journal.saga_event(saga, Ev.SAGA_REOPENED, step=step.id, tool=step.tool.name)


def _failed_late(step: Step, form: Form, ending: Ending) -> None:
    error = ending.error
    if error is None:
        return
    step.error = error
    step.ended_at = step.saga.engine.clock.monotonic()
    last = answered(error, step.tool.no_answer_on, running=False)
    step.answered = step.answered and last
    kind = kind_of(step, form, ending, step.args, step.kwargs)
    if kind is Kind.NOT_APPLIED and step.state is StepState.UNKNOWN and _speaks_for_all(step):
        journal.not_applied(step, "tool, late", evidence(error), final=True)


def _speaks_for_all(step: Step) -> bool:
    """Say whether no earlier attempt may have had an effect, of which this ending says nothing."""
    return step.alone

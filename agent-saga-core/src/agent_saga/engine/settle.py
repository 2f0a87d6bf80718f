"""Unknown endings: asking a prober, and when its "no" may be believed.

Rules of this part:

- `Applied` settles at once. `NotApplied` settles only when it is final: the call returned an
  answer of the provider, or the prober says `final=True`, or it was asked after `settle_after` had
  passed since the call ended. Everything else leaves the step UNKNOWN.
- A call that is still running can be neither settled nor compensated.
- A prober that raises, hangs or answers nonsense cannot tell; so does one that lets through what
  a call of a tool has raised, which speaks for that call only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.domain.outcomes import Applied, CannotTell, ProbeAnswer, read_probe
from agent_saga.engine import journal
from agent_saga.engine.derive import called
from agent_saga.engine.endings import of_a_call
from agent_saga.engine.outcome import applied, record_inverse_problem
from agent_saga.engine.pool import NoThread
from agent_saga.engine.requests import Call, Ending, HandedOver, Protocol, Sleep
from agent_saga.errors import NotApplied, one_line
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.engine.forms import Form
    from agent_saga.engine.step import Step

log = logger("agent_saga.engine")


def settle_unknown(step: Step, *, patient: bool) -> Protocol[BaseException | None]:
    """Try to find out whether an unknown call took effect; the step's state tells the answer.

    Args:
        step: an UNKNOWN step.
        patient: wait `settle_after` out when the answer is a "no" that is not final.

    Returns:
        What cut the waiting short, or None.
    """
    prober = step.tool.prober
    if step.running or prober is None:
        return None
    final = quiet(step)
    answer = yield from _asked(step, prober)
    if patient and isinstance(answer, NotApplied) and not (final or answer.final):
        cut = yield from wait_until_quiet(step)
        if cut is not None:
            return cut
        final = True
        answer = yield from _asked(step, prober)
    if not isinstance(answer, ProbeAnswer):
        return answer
    yield from _believe(step, answer, final=final)
    return None


def quiet(step: Step) -> bool:
    """Say whether nothing of this call can arrive late any more."""
    if step.running:
        return False
    return step.answered or _remaining(step) <= 0


def _remaining(step: Step) -> float:
    engine = step.saga.engine
    bound = step.tool.settle_after
    if bound is None:
        bound = engine.timing.settle_after
    return bound - (engine.clock.monotonic() - step.ended_at)


def wait_until_quiet(step: Step) -> Protocol[BaseException | None]:
    """Wait until nothing of this call can arrive late; return what cut the wait short."""
    if quiet(step):
        return None
    log.warning(
        "%s gave no answer; waiting %.1f s until it can no longer arrive (saga %s)",
        step.tool.name,
        _remaining(step),
        step.saga.id,
    )
    while not quiet(step):
        cut: BaseException | None = yield Sleep(max(_remaining(step), 0.001))
        if cut is not None:
            return cut
    return None


def _asked(step: Step, prober: Form) -> Protocol[ProbeAnswer | BaseException]:
    """Ask a prober; return its answer, or what cut the question short."""
    timing = step.saga.engine.timing
    args, kwargs = called(prober, step.sources())
    ending: Ending = yield Call(
        prober.fn,
        args,
        kwargs,
        is_async=prober.is_async,
        timeout=timing.undo_timeout,
        pooled=timing.undo_bounded,
        loop_free=True,
        what=f"the prober of {step.tool.name}",
    )
    error = ending.error
    if error is None:
        return read_probe(ending.value)
    if isinstance(error, NotApplied) and not of_a_call(error):
        return error
    if not isinstance(error, Exception) or isinstance(error, NoThread):
        return error  # nobody was asked
    told = one_line(error)
    log.warning("the prober of %s failed: %s", step.tool.name, told)
    return CannotTell(f"it raised {told}")


def _believe(step: Step, answer: ProbeAnswer, *, final: bool) -> Protocol[None]:
    """Take an answer in; `final`: when it was asked for, nothing could arrive late any more."""
    if isinstance(answer, Applied):
        step.via = "prober"
        applied(step, answer.result)
        seq, problem = journal.committed(step)
        record_inverse_problem(step, problem)
        yield HandedOver(seq)
    elif isinstance(answer, NotApplied) and (final or answer.final):
        step.spent = answer.final
        seq = journal.not_applied(step, "prober", answer.reason, final=True)
        yield HandedOver(seq)
    elif isinstance(answer, CannotTell):
        step.missing = f"its prober cannot tell ({answer.reason or 'it did not say why'})"
    else:
        step.missing = "its prober saw no effect, and it may still arrive"

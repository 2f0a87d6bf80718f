"""The protocol of one step: judge, prepare, announce, call, record. Written once, driven twice.

Rules of this part:

1. Judge: the gate; after any wait everything is judged again. A refusal is recorded and raises.
2. Prepare: read what the inverse will need, before anything is announced.
3. Intent: durable before the effect, unless the tool is REVERSIBLE, which is one record afterwards.
4. Fence: after the announcement and before the call. Who is fenced writes "not started".
5. Effect: attempts within the step share its idempotency key; see `attempts`.
6. Outcome: handed to the operating system before the caller sees the result; its sync starts at
   the end of the loop's turn, at once where no loop runs.

A call whose tool and arguments equal an unsettled step *is* that step: it is settled first, and
runs again only when it is known not to have happened, or when the tool is idempotent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.controls.control import Wait
from agent_saga.controls.gate import Ask
from agent_saga.domain import identity
from agent_saga.domain.lifecycle import StepState
from agent_saga.engine import journal, late
from agent_saga.engine.attempts import call_of, failed, fence_cut
from agent_saga.engine.derive import called
from agent_saga.engine.earlier import earlier, read, window_closed
from agent_saga.engine.judging import (
    carried_out,
    changed,
    decided,
    handed_back,
    judged,
    rechecked,
    told_of_success,
)
from agent_saga.engine.recording import committed, waited
from agent_saga.engine.requests import Call, Durable, Ending, HandedOver, Outcome, Protocol
from agent_saga.errors import RefusedError, WALError
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.engine.forms import Form
    from agent_saga.engine.step import Step
    from agent_saga.engine.wrap import Invocation

log = logger("agent_saga.engine")


def repeated(step: Step, call: Invocation) -> Protocol[Outcome]:
    """Carry out a call that is an earlier step: of the same key, or of the same arguments."""
    if step.saga.read_only:
        return read(step, call)
    outcome = yield from earlier(step, call)
    return outcome or (yield from step_protocol(step, again=True))


def step_protocol(step: Step, *, again: bool = False) -> Protocol[Outcome]:
    """Carry out one call of a step that was admitted; `again`: it was carried out before."""
    saga, tool = step.saga, step.tool
    try:
        harmless = step.state is not StepState.UNKNOWN
        cut: BaseException | None = None
        verdict = judged(step)
        try:
            if verdict is not None or tool.prepare is not None:
                cut = yield from _made_ready(step, verdict)
            elif not tool.reversible:
                cut = yield from _announced(step)
        except Exception as error:
            cut = error  # the call did not start; what was taken for it is handed back
        if cut is None and again and tool.reversible:
            cut = _reopened(step)
        if cut is not None:
            return (yield from _forbidden(step, cut))
        call = call_of(step, tool.form, identity.FORWARD)
        ending = yield call
        if ending.error is not None:
            return (yield from failed(step, call, ending, harmless=harmless))
        if uses := told_of_success(step):
            yield from carried_out(step, uses)
        outcome, seq = committed(step, ending.value)
        return (yield from waited(step, outcome, seq)) if seq else outcome
    finally:
        saga.left(step)
        if step.running:
            late.take_kept(step)


def _made_ready(
    step: Step, verdict: Wait | Ask | BaseException | None
) -> Protocol[BaseException | None]:
    """Do what a verdict and a tool ask for before the call; return what forbids it."""
    cut = None if verdict is None else (yield from decided(step, verdict))
    if cut is None and step.tool.prepare is not None and not _has_been_ready(step):
        cut = yield from _prepared(step, step.tool.prepare)
    if cut is None and not step.tool.reversible:
        cut = yield from _announced(step)
    elif cut is None and step.call is not None:
        cut = (yield from rechecked(step)) or changed(step)
    return cut


def _has_been_ready(step: Step) -> bool:
    """Say whether an earlier attempt may have had an effect: what was read before it stays."""
    return step.state is StepState.UNKNOWN


def _forbidden(step: Step, cut: BaseException) -> Protocol[Outcome]:
    """Give back what was taken for a call that did not start."""
    if step.call is not None and step.call.held is not None:
        yield from handed_back(step)
    return Outcome(error=cut)


def _prepared(step: Step, form: Form) -> Protocol[BaseException | None]:
    sources = step.sources()
    asked = {name: sources[name] for name in ("args", "idempotency_key")}
    args, kwargs = called(form, asked)
    ending: Ending = yield Call(
        form.fn,
        args,
        kwargs,
        is_async=form.is_async,
        timeout=step.tool.timeout,
        loop_free=step.tool.loop_free,
        what=f"prepare of {step.tool.name}",
    )
    if ending.error is None:
        step.prepared = ending.value
        return None
    return ending.error


def _announced(step: Step) -> Protocol[BaseException | None]:
    """Write the intent, wait until it is durable, look at the switch, check the fence."""
    saga, tool = step.saga, step.tool
    again = step.state is StepState.UNKNOWN
    step.order = None
    step.intent_order = saga.order()
    provisional = tool.provisional
    if provisional is not None and not (again and step.provisional is not None):
        sources = step.sources(keyed=provisional.asks_key, args=provisional.asks_args)
        step.provisional = provisional.derive(sources)
    if again:
        seq = journal.attempt(step, 0, "repeated with the same idempotency key", step.error)
    else:
        seq = journal.intent(step)
    cut = yield Durable(seq)
    if cut is None and (saga.engine.gate.rechecks or step.requests):
        cut = yield from rechecked(step, saga.engine.wal.synced_at)
    if cut is None:
        # Last, since looking at the switch may take a while: nothing waits between it and the call.
        cut = fence_cut(step, seq) or changed(step)
    if cut is None and again:
        cut = window_closed(step)
    if cut is None:
        return None
    return (yield from _not_started(step, cut, again=again))


def _reopened(step: Step) -> BaseException | None:
    """Announce a REVERSIBLE step that runs again: no outcome can follow an outcome."""
    try:
        if step.state is StepState.UNKNOWN:
            journal.attempt(step, 0, "repeated with the same idempotency key", step.error)
        elif step.state is not StepState.NEW:
            journal.intent(step)
    except RefusedError as refusal:
        return refusal
    return None


def _not_started(step: Step, cut: BaseException, *, again: bool) -> Protocol[BaseException]:
    try:
        if again:
            seq = journal.unknown(step, "not repeated")
        else:
            seq = journal.not_applied(step, "engine", _why_not(cut), final=True)
    except WALError:
        log.warning("that %s was not started could not be recorded", step.tool.name)
        return cut
    # Else a process that is killed leaves an announcement that may have taken effect.
    yield HandedOver(seq, sync=False)
    return cut


def _why_not(cut: BaseException) -> str:
    reason = f": {cut.reason}" if isinstance(cut, RefusedError) and cut.reason else ""
    return f"the call was not started{reason}"

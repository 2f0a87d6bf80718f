"""Records folded into the state of every saga: what a reader knows.

Rules of this part:

- Every record goes through the lifecycle tables. One that they do not allow, one of an unknown
  kind, one whose payload is needed and cannot be read: a fault of its saga, which is then a human's
  case; the other sagas are folded on.
- A person who closes a saga has seen what is wrong with its records up to then; what comes later is
  a fault again.
- A saga with one writer is folded as its records come. One with several is contested: its records
  are collected and told apart first (`effective`), then folded (`resolve`); stale ones are faults.
- Payloads are data from outside: a fact of another form than expected counts as not there.
- Memory is what the sagas' steps take; the records themselves are let go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from agent_saga.domain.effective import WrittenRecord, cuts_of, effective, facts_of
from agent_saga.domain.lifecycle import SagaState, ScopeState, saga_after, scope_after, step_after
from agent_saga.domain.records import BESIDE, Ev
from agent_saga.domain.views import SagaView, StepView
from agent_saga.errors import IllegalTransition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["KNOWN", "apply", "fold", "resolve"]

Facts = Mapping[str, Any]
_FOR_EVER: Final = 1e9


def fold(records: Iterable[WrittenRecord]) -> dict[str, SagaView]:
    """Return every saga of a log by its id, in the order of their first records.

    Args:
        records: the records of a log, each writer's in sequence.
    """
    sagas: dict[str, SagaView] = {}
    for record in records:
        if record.saga:
            view = sagas.get(record.saga)
            if view is None:
                view = sagas[record.saga] = SagaView(record.saga)
            apply(view, record)
    return sagas


def apply(view: SagaView, record: WrittenRecord) -> None:
    """Take one record into a saga's state.

    Args:
        view: the saga; it is changed.
        record: its next record.
    """
    _see(view, record)
    owner = view.owners.setdefault(record.epoch, record.writer)
    if owner != record.writer or len(view.owners) > 1:
        view.contested = True
        return
    _take(view, record)


def resolve(saga: str, records: Iterable[WrittenRecord]) -> SagaView:
    """Return a contested saga's state from all its records, every writer's in sequence.

    Args:
        saga: the saga's id.
        records: its records.
    """
    view = SagaView(saga)
    found = effective(records)
    for record in found.records:
        view.owners[record.epoch] = record.writer
        _see(view, record)
        _take(view, record)
    seen = _seen_at_closing(found.records)
    view.faults += [
        f"a stale {record.event} of writer {record.writer}, sequence {record.seq}"
        for record in found.stale
        if record.seq > seen.get(record.writer, 0)
    ]
    return view


def _seen_at_closing(records: list[Any]) -> dict[str, int]:
    """Return, for each writer, up to where its records had been read when the saga was closed."""
    seen: dict[str, int] = {}
    cuts: dict[str, int] = {}
    for record in records:
        if record.event == Ev.SAGA_CLAIM:
            cuts = cuts_of(record)
        elif record.event == Ev.SAGA_CLOSED:
            seen = {**cuts, record.writer: record.seq}
    return seen


def _see(view: SagaView, record: WrittenRecord) -> None:
    view.began = view.began or record.time
    view.last = max(view.last, record.time)
    view.epoch = max(view.epoch, record.epoch)


def _take(view: SagaView, record: WrittenRecord) -> None:
    taker = _TAKERS.get(record.event)
    if taker is None:
        view.faults.append(f"a record of the unknown kind {record.event}")
        return
    try:
        taker(view, record)
    except IllegalTransition as error:
        view.faults.append(error.message)


def _text(facts: object, *path: str) -> str:
    for name in path:
        facts = facts.get(name) if isinstance(facts, dict) else None
    return facts if isinstance(facts, str) else ""


# --- the saga and its savepoints ------------------------------------------------------------------


def _begin(view: SagaView, record: WrittenRecord) -> None:
    view.state = saga_after(view.state, record.event)
    facts = facts_of(record)
    view.name, view.key = _text(facts, "about", "name"), _text(facts, "about", "key")
    view.resume_grace = _grace(facts.get("about"))


def _grace(about: Any) -> float | None:
    if not isinstance(about, Mapping) or about.get("on_crash") != "hold":
        return None
    grace = about.get("resume_grace")
    if not isinstance(grace, int | float) or isinstance(grace, bool):
        return None
    return float(grace) if 0 <= grace < _FOR_EVER else None


def _saga(view: SagaView, record: WrittenRecord) -> None:
    view.state = saga_after(view.state, record.event)


class Fork(Struct, frozen=True):
    """Where a resumed run went another way.

    Attributes:
        at: after which step; empty before the first.
        abandoned: the recorded steps of the way that was left.
        what: what becomes of them: "undo" or "keep".
    """

    at: str
    abandoned: tuple[str, ...]
    what: str


def fork_in(facts: Facts) -> Fork | None:
    """Return where a resumed run went another way; None when it did not, or cannot be read."""
    fork = facts.get("fork")
    if not isinstance(fork, Mapping):
        return None
    at, what, steps = fork.get("at"), fork.get("what"), _path(fork.get("abandoned"))
    if not isinstance(at, str) or what not in ("undo", "keep") or steps is None:
        return None
    return Fork(at, steps, str(what))


def _resumed(view: SagaView, record: WrittenRecord) -> None:
    view.state = saga_after(view.state, record.event)
    view.claimed_for = ""
    facts = facts_of(record)
    if "fork" in facts and fork_in(facts) is None:
        view.faults.append("it cannot be read which of its steps were left for another way")


def _suspended(view: SagaView, record: WrittenRecord) -> None:
    view.state = saga_after(view.state, record.event)
    deadline = facts_of(record).get("deadline")
    view.deadline = deadline if type(deadline) is int else None
    view.at_deadline = _text(facts_of(record), "at_deadline")


def _claimed(view: SagaView, record: WrittenRecord) -> None:
    view.state = saga_after(view.state, record.event)
    view.claimed_for = _text(facts_of(record), "reason") or "unknown"


def _closed(view: SagaView, record: WrittenRecord) -> None:
    if view.faults or facts_of(record).get("despite"):
        view.faults.clear()
        view.state = SagaState.CLOSED
    else:
        _saga(view, record)


def _committed(view: SagaView, record: WrittenRecord) -> None:
    view.state = saga_after(view.state, record.event)
    unsettled = facts_of(record).get("unsettled")
    for step in unsettled if isinstance(unsettled, list) else ():
        if not isinstance(step, str) or step not in view.steps:
            view.faults.append("the commit names an unsettled step that the log does not have")


def _unwinding(view: SagaView, record: WrittenRecord) -> None:
    facts = facts_of(record)
    path = _path(facts.get("scope"))
    if path is None:
        view.faults.append("it cannot be read which boundary is being undone")
        path = ()
    if path:
        _scope(view, path, "UNWINDING")
        return
    view.state = saga_after(view.state, record.event)
    view.undo_to, view.undo_only = _text(facts, "to"), only_of(facts)
    if view.undo_only is None and "to" in facts:
        view.faults.append("it cannot be read which of its steps are being undone")


def only_of(facts: Facts) -> frozenset[str] | None:
    """Return the steps that undoing a saga up to a point is about; None for all of them."""
    only = _path(facts.get("only"))
    return None if only is None else frozenset(only)


def _undone_to(view: SagaView, record: WrittenRecord) -> None:
    if view.undo_only is None:
        raise IllegalTransition(f"{record.event} follows an undoing of the whole saga.")
    view.state = saga_after(view.state, record.event)
    view.undo_to, view.undo_only = "", None


def _scope_open(view: SagaView, record: WrittenRecord) -> None:
    _named_scope(view, facts_of(record), "OPEN")


def _scope_closed(view: SagaView, record: WrittenRecord) -> None:
    facts = facts_of(record)
    _named_scope(view, facts, _text(facts, "result"))


def _named_scope(view: SagaView, facts: Facts, event: str) -> None:
    path = _path(facts.get("path"))
    if path:
        _scope(view, path, event)
    else:
        view.faults.append("it cannot be read which savepoint a record tells of")


def _scope(view: SagaView, path: tuple[str, ...], event: str) -> None:
    state = view.scopes.setdefault(path, ScopeState.NEW)
    view.scopes[path] = scope_after(state, event)


def _path(value: object) -> tuple[str, ...] | None:
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return tuple(value)
    return None


# --- steps ----------------------------------------------------------------------------------------


def _refused(view: SagaView, record: WrittenRecord) -> None:  # noqa: ARG001 - one form for all
    view.refused += 1


def _beside(view: SagaView, record: WrittenRecord) -> None:
    """Take what tells of a step that has not begun; nothing of the saga changes."""


def _step(view: SagaView, record: WrittenRecord) -> None:
    if view.state is SagaState.NEW:
        raise IllegalTransition(f"{record.event} stands before the saga's beginning.")
    if record.event == Ev.STEP_INTENT and view.state in _ENDED:
        raise IllegalTransition(f"{record.event} stands after the saga's end.")
    step = view.steps.get(record.step)
    if step is None:
        step = view.steps[record.step] = StepView(record.step)
    if record.event == Ev.STEP_INTENT and record.generation > step.generation:
        # A new generation takes its own place in the order of undoing.
        view.steps[record.step] = view.steps.pop(record.step)
    elif record.generation != step.generation:
        raise IllegalTransition(
            f"{record.event} is of generation {record.generation}, its step of {step.generation}."
        )
    step.state = step_after(step.state, record.event)
    step.generation = record.generation
    _learn(step, facts_of(record))


def _learn(step: StepView, facts: Facts) -> None:
    """Take what a record tells of its step beside the change of state."""
    step.tool = _text(facts, "call", "tool") or step.tool
    step.semantics = _text(facts, "call", "semantics") or step.semantics
    step.approved_by = _text(facts, "approved_by") or step.approved_by
    for name in ("inverse", "provisional"):
        if name in facts:
            step.inverse = _text(facts, name, "handler")
            step.nothing = _text(facts, name, "none")
            break
    about = facts.get("about")
    told = about if isinstance(about, dict) else facts
    step.detail = _detail(told) or step.detail


def _detail(facts: Facts) -> str:
    for name in ("missing", "reason", "error", "evidence"):
        told = facts.get(name)
        if told:
            return _text(told) or _text(told, "message") or _text(told, "type")
    return ""


_ENDED: Final = (
    SagaState.COMMITTED,
    SagaState.ROLLED_BACK,
    SagaState.PARTIAL,
    SagaState.STUCK,
    SagaState.CLOSED,
)
_SAGA_EVENTS: Final = (
    Ev.SAGA_RELEASED,
    Ev.SAGA_ROLLED_BACK,
    Ev.SAGA_PARTIAL,
    Ev.SAGA_STUCK,
    Ev.SAGA_REOPENED,
)
_STEP_EVENTS: Final = (
    Ev.STEP_INTENT,
    Ev.STEP_ATTEMPT,
    Ev.STEP_COMMITTED,
    Ev.STEP_NOT_APPLIED,
    Ev.STEP_UNKNOWN,
    Ev.STEP_LATE,
    Ev.STEP_COMPENSATING,
    Ev.STEP_COMPENSATED,
    Ev.STEP_COMPENSATION_NOT_APPLIED,
    Ev.STEP_COMPENSATION_UNKNOWN,
    Ev.STEP_COMPENSATION_FAILED,
    Ev.STEP_ORPHANED,
    Ev.STEP_UNRESOLVED,
    Ev.STEP_KEPT,
    Ev.STEP_CLOSED,
)
_TAKERS: Final[dict[str, Callable[[SagaView, WrittenRecord], None]]] = {
    **dict.fromkeys(_SAGA_EVENTS, _saga),
    **dict.fromkeys(_STEP_EVENTS, _step),
    Ev.SAGA_BEGIN: _begin,
    Ev.SAGA_CLAIM: _claimed,
    Ev.SAGA_SUSPENDED: _suspended,
    Ev.SAGA_RESUMED: _resumed,
    Ev.SAGA_COMMITTED: _committed,
    Ev.SAGA_CLOSED: _closed,
    Ev.SAGA_UNWINDING: _unwinding,
    Ev.SAGA_UNDONE_TO: _undone_to,
    Ev.SCOPE_OPEN: _scope_open,
    Ev.SCOPE_CLOSED: _scope_closed,
    Ev.STEP_REFUSED: _refused,
    **dict.fromkeys(BESIDE - {Ev.STEP_REFUSED}, _beside),
}

KNOWN: Final = frozenset(_TAKERS)
"""The events of sagas that this version knows; any other makes a saga a human's case."""

"""Undoing a saga that was committed: later, deliberately, by name.

Rules of this part:

- Inverses run by their registered names, in the same order and with the same keys as an unwinding
  at the time would have. What has no inverse is refused before anything is run, unless the caller
  says that it may stand.
- What came before a step whose inverse is not registered here is not undone without it: its undo
  must not come after theirs. The plan says so.
- Undoing up to a step is about exactly the steps that came after it, in the order of undoing; a
  call without a known outcome came after what was announced before it. Which steps these are is
  recorded before the first of them is undone, and whoever goes on with it reads it there. The saga
  is then committed up to that step, and can be undone further.
- An interrupted undo goes on when it is run again: the claim and the records see to it that
  nothing runs twice.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict, replace

from agent_saga.domain.commands import (
    queue_command,
    recover_command,
    show_command,
    told_command,
)
from agent_saga.domain.lifecycle import SagaState, StepState
from agent_saga.domain.words import CLOSED_BY_HAND
from agent_saga.engine.journal import step_list
from agent_saga.engine.outcome import unusable
from agent_saga.engine.ports import Engine
from agent_saga.engine.saga import Saga, undo_order
from agent_saga.engine.step import Step
from agent_saga.errors import NotRecordable, UndoRefused
from agent_saga.recovery.claim import Place, check_claimable, claimed
from agent_saga.recovery.next_step import where_to_look
from agent_saga.recovery.queue import named, said
from agent_saga.recovery.rebuild import rebuilt
from agent_saga.recovery.recover import Recovered, undo_saga
from agent_saga.recovery.survey import Found, look
from agent_saga.wal.departed import has_departed

_UNDONE_LATER = frozenset({SagaState.COMMITTED, SagaState.UNWINDING, SagaState.RELEASED})
"""A committed saga, and one whose undoing was interrupted."""


class Planned(Struct, frozen=True):
    """What undoing would do about one step.

    Attributes:
        step, tool: which step.
        what: "undo", "ask", "leave" or "cannot".
        detail: the inverse's name, or why not.
    """

    step: str
    tool: str
    what: str
    detail: str


class Plan(Struct, frozen=True):
    """What undoing a saga would do.

    Attributes:
        saga, name, state: which saga, and where it stands.
        steps: in the order in which they would be visited.
        outcome: what recovery would do with it, in the words of a pass; empty when not asked.
        reason: why it would not be undone now; empty when it would.
    """

    saga: str
    name: str
    state: str
    steps: list[Planned]
    outcome: str = ""
    reason: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the plan as plain data."""
        return {**asdict(self), "steps": [asdict(step) for step in self.steps]}


def plan(engine: Engine, found: Found, to: str | None = None) -> Plan:
    """Return what undoing a saga would do; runs nothing.

    Args:
        engine: whose handlers count.
        found: the saga, as surveyed.
        to: undo only what came after this step: its id, the beginning of it, or its tool.

    Raises:
        UndoRefused: there is no such step, or it is no step up to which can be undone.
    """
    steps = _planned_steps(engine, found, to)
    return Plan(found.id, found.view.name, found.view.state.value, steps)


def _planned_steps(engine: Engine, found: Found, to: str | None) -> list[Planned]:
    if found.problems:
        return [Planned("", "", "cannot", problem) for problem in found.problems]
    try:
        now = engine.clock.monotonic()
        saga = rebuilt(engine, found, found.effective.epoch, dead_since=now)
        if to is not None:
            aim(saga, to)
        steps = undo_order(list(saga.steps.values()))
        return _in_order(engine, steps, [planned(step, engine, only=saga.only) for step in steps])
    except UndoRefused:
        raise
    except Exception as error:  # one bad saga does not hide the plans of the others
        return [Planned("", "", "cannot", f"it cannot be made from its records: {error}")]


def _in_order(engine: Engine, steps: list[Step], plans: list[Planned]) -> list[Planned]:
    """Say of what came before a step without a registered inverse that it is not reached."""
    halted, found = "", []
    for step, one in zip(steps, plans, strict=True):
        if halted and one.what in ("undo", "ask"):
            found.append(replace(one, what="cannot", detail=halted))
            continue
        found.append(one)
        if one.what == "cannot" and _halts(step, engine):
            halted = f"it would not be reached: undoing goes in order, and halts at {one.tool}"
    return found


def _halts(step: Step, engine: Engine) -> bool:
    """Say whether undoing goes no further than a step, since its inverse is not registered here."""
    inverse = step.compensation
    named = inverse is not None and not inverse.nothing and not step.tool.irreversible
    return named and step.order is not None and engine.timing.after_stuck == "halt"


def aim(saga: Saga, to: str) -> None:
    """Let undoing a saga be about what came after a step.

    Args:
        saga: rebuilt from its records; committed, or being undone up to this step.
        to: the step's id, the beginning of it, or its tool.

    Raises:
        UndoRefused: there is no such step, or it is no step up to which can be undone.
    """
    point = point_of(saga, to)
    if saga.only is not None or saga.state is not SagaState.COMMITTED:
        if point.id != saga.undo_to:
            raise UndoRefused(
                f"Saga {saga.id} is being undone {_how_far(saga)}; that has not ended.",
                fix=f"Finish that first: {_again(saga)}",
            )
        return
    only = frozenset(step.id for step in saga.steps.values() if came_after(step, point))
    try:
        step_list(only)
    except NotRecordable as error:
        raise UndoRefused(
            f"The {len(only)} steps after that are too many to be undone up to it at once.",
            fix="Name a later step, and go on from there.",
        ) from error
    saga.undo_to, saga.only = point.id, only


def _again(saga: Saga) -> str:
    same = f"--to {saga.undo_to}" if saga.only is not None else "the same command without --to"
    return f"{same}, or {recover_command(saga.engine.wal.address)}"


def _how_far(saga: Saga) -> str:
    return f"up to the step {saga.undo_to}" if saga.only is not None else "as a whole"


def point_of(saga: Saga, to: str) -> Step:
    """Return the step that a person meant by its id, the beginning of it, or its tool.

    Raises:
        UndoRefused: none or several are meant, or the step does not stand.
    """
    steps = list(saga.steps.values())
    meant = _meant(steps, to)
    if len(meant) != 1:
        names = ", ".join(f"{step.tool.name} [{step.id}]" for step in meant or steps)
        what = f"may be one of {len(meant)} steps" if meant else "is no step"
        raise UndoRefused(
            f"{to!r} {what} of saga {saga.id}.", fix=f"Name one by its id: {names or 'it has none'}"
        )
    [point] = meant
    if point.order is None or point.state in (StepState.COMPENSATED, StepState.CLOSED):
        raise UndoRefused(
            f"{point.tool.name} [{point.id[:8]}] is {point.state.value}; nothing can be undone up "
            "to it.",
            fix="Name a step that took effect and stands.",
        )
    return point


def _meant(steps: list[Step], to: str) -> list[Step]:
    """Return the steps that a person may mean: one of this id, else those that begin or are so."""
    exact = [step for step in steps if step.id == to]
    begins = to or "\0"  # nothing is the beginning of every id, and names no step
    return exact or [s for s in steps if s.id.startswith(begins) or s.tool.name == to]


def came_after(step: Step, point: Step) -> bool:
    """Say whether a step is undone before another one, as far as its outcome is known."""
    if step.order is None:
        return step.intent_order > point.intent_order
    return step.order > (point.order or 0)


def planned(step: Step, engine: Engine, *, only: frozenset[str] | None = None) -> Planned:
    """Return what undoing would do about one step.

    Args:
        step: the step.
        engine: whose handlers count.
        only: the steps that undoing is about; None for all.
    """
    if only is not None and step.id not in only:
        return Planned(step.id, step.tool.name, "leave", f"{step.state.value}, not after that step")
    what, detail = _judged(step, engine)
    return Planned(step.id, step.tool.name, what, detail)


def _judged(step: Step, engine: Engine) -> tuple[str, str]:  # noqa: PLR0911 - a table of cases
    inverse = step.compensation
    if step.state in (StepState.NOT_APPLIED, StepState.COMPENSATED):
        return "leave", step.state.value
    if step.state is StepState.CLOSED:
        return "leave", CLOSED_BY_HAND
    if step.tool.reversible and inverse is None:
        return "leave", "REVERSIBLE"
    if step.tool.irreversible:
        return "cannot", "IRREVERSIBLE: it stands for ever"
    if step.order is None:
        return _unknown(step)
    if inverse is None:
        return "cannot", step.missing or "it has no inverse"
    if inverse.nothing:
        return "leave", inverse.nothing
    missing = unusable(inverse, engine)
    return ("cannot", missing) if missing else ("undo", inverse.label)


def _unknown(step: Step) -> tuple[str, str]:
    if step.tool.prober is not None:
        return "ask", f"whether it took effect: {step.tool.prober_name}"
    if step.provisional is not None:
        return "undo", f"{step.provisional.label}, provisionally"
    return "cannot", "it is unknown whether it took effect"


def undo_later(
    place: Place,
    saga: str,
    *,
    by: str,
    reason: str,
    leave_the_rest: bool = False,
    to: str | None = None,
) -> Recovered:
    """Undo a committed saga, or what came after one of its steps.

    Args:
        place: where recovery works.
        saga: the saga's id.
        by: who asks for it.
        reason: why; both are recorded.
        leave_the_rest: undo what can be undone in order, and let what cannot stand.
        to: undo only what came after this step: its id, the beginning of it, or its tool.

    Raises:
        UndoRefused: the saga is not committed, nothing is left to undo, or a step of it cannot be
            undone; nothing was run.
        RecoveryError: no name or reason is given, or records of the saga are lost.
        ClaimRefused: somebody else acts on it.
        Quarantined: a person has quarantined it.
        WALError, StateError: something could not be read, recorded or stored.

    Crash: what was announced is in the log; the same call, or recovery, goes on and repeats
    nothing. Fails closed.
    """
    by, reason = named(by), said(reason)

    def check(found: Found) -> None:
        _check(place, found, leave_the_rest=leave_the_rest, to=to)

    known(place.wal.path, saga)
    with claimed(place, saga, reason="undo", by=by, check=check) as claim:
        now = place.engine.clock.monotonic()
        owned = rebuilt(place.engine, claim.found, claim.epoch, dead_since=now)
        if to is not None:
            aim(owned, to)
        return undo_saga(place, claim, owned, f"undone by {by}: {reason}")


def check_undo(
    place: Place, saga: str, *, leave_the_rest: bool = False, to: str | None = None
) -> None:
    """Refuse what `undo_later` would refuse before anything is run; takes and runs nothing.

    Args:
        place: where recovery works.
        saga: the saga's id.
        leave_the_rest: as for `undo_later`.
        to: as for `undo_later`.

    Raises:
        UndoRefused: the saga is not committed, nothing is left to undo, or a step of it cannot be
            undone.
        ClaimRefused: somebody else acts on it.
        Quarantined: a person has quarantined it.
    """

    def check(found: Found) -> None:
        _check(place, found, leave_the_rest=leave_the_rest, to=to)

    check_claimable(place, known(place.wal.path, saga), check)


def known(path: str, saga: str) -> Found:
    """Return a saga of the log.

    Raises:
        UndoRefused: the log has no saga of this id.
        WALError: the log cannot be read.
    """
    found = look(path, saga)
    if found is None:
        why = "; it left the log by compaction" if has_departed(path, saga) else ""
        raise UndoRefused(f"The log has no saga {saga!r}{why}.", fix=told_command("list", path))
    return found


def _check(place: Place, found: Found, *, leave_the_rest: bool, to: str | None) -> None:
    """Refuse an undo that must not begin; runs nothing."""
    _check_state(found, place.wal.path)
    _check_goes_on(found, to, place.wal.path)
    steps = plan(place.engine, found, to).steps
    begun = found.view.state is not SagaState.COMMITTED
    if to is not None and not begun and all(step.what == "leave" for step in steps):
        raise UndoRefused(
            f"Nothing of saga {found.id} is left to undo after that step.",
            fix=show_command(found.id, place.wal.path),
        )
    if not leave_the_rest:
        _check_all_can(place.engine, found, steps)


def _check_state(found: Found, log: str) -> None:
    """Refuse a saga that is not committed, or that nobody can tell about."""
    if found.problems:
        raise UndoRefused(
            f"The records of the saga cannot be trusted: {found.problems[0]}.",
            fix=queue_command(found.id, log),
        )
    if found.view.state is SagaState.ROLLED_BACK:
        raise UndoRefused(
            f"Saga {found.id} was undone already; nothing of it is left to undo.",
            fix=show_command(found.id, log),
        )
    if found.view.state not in _UNDONE_LATER:
        raise UndoRefused(
            f"Saga {found.id} is {found.view.state.value}; only a committed saga is undone later.",
            fix=where_to_look(found.view, log),
        )


def _check_goes_on(found: Found, to: str | None, log: str) -> None:
    """Refuse to undo all of a saga while it is being undone up to a step."""
    if found.view.undo_to and to is None:
        raise UndoRefused(
            f"Saga {found.id} is being undone up to the step {found.view.undo_to}; that has "
            "not ended.",
            fix=f"Finish that first: --to {found.view.undo_to}, or {recover_command(log)}",
        )


def _check_all_can(engine: Engine, found: Found, steps: list[Planned]) -> None:
    """Refuse to begin where not every step can be undone."""
    cannot = [step for step in steps if step.what == "cannot"]
    if cannot:
        reasons = "; ".join(f"{step.tool}: {step.detail}" for step in cannot)
        raise UndoRefused(
            f"Saga {found.id} cannot be undone completely: {reasons}.",
            fix=f"{_modules(engine, found, cannot)}--leave-the-rest undoes what can be "
            "undone in order, and lets the rest stand.",
        )


def _modules(engine: Engine, found: Found, cannot: list[Planned]) -> str:
    """Return what to do about inverses that are not registered here; empty if there are none."""
    steps = [found.view.steps[one.step] for one in cannot if one.step in found.view.steps]
    missing = {step.inverse for step in steps} - {"", *engine.handlers.compensators}
    names = ", ".join(sorted(missing))
    return f"Name the modules that register {names} with --import MODULE. " if missing else ""

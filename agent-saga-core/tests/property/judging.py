"""Judging one run: what the report and the log say against what happened in the world.

- P1: an effect that is not REVERSIBLE had a durable intent before its call, an inverse a durable
  announcement.
- P2: at most one application of the forward call and one of the inverse, per step and generation;
  an equal call after an unknown ending had no effect of its own.
- P3: what the report lists is true of the world; what stands is listed or was declared.
- P4: no inverse of what did not happen, unless declared harmless; no effect after its inverse.
- P5: inverses ran in the reverse order of happens-before.
- The log folds without faults, and a reader's verdict equals the report's.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from property.programs import Spec
from property.running import Run
from property.world import Event

from agent_saga.domain import identity
from agent_saga.domain.fold import apply, fold
from agent_saga.domain.lifecycle import StepState
from agent_saga.domain.report import RollbackReport
from agent_saga.domain.views import SagaView
from agent_saga.errors import CommittedUnsettled, SagaAborted

_FORWARD = (identity.FORWARD, identity.FALLBACK)
_MOST_GENERATIONS = 12


@dataclass
class Call:
    """One call of the world, from its start to its end."""

    start: Event
    end: Event | None = None
    effects: list[Event] = field(default_factory=list)


@dataclass
class Truth:
    """What really happened for one generation of one step."""

    step: str
    generation: int
    spec: Spec | None = None
    forward: list[Call] = field(default_factory=list)
    inverse: list[Call] = field(default_factory=list)

    @property
    def applied(self) -> list[Event]:
        return [effect for call in self.forward for effect in call.effects]

    @property
    def undone(self) -> list[Event]:
        return [effect for call in self.inverse for effect in call.effects]

    def stands(self, tick: float = float("inf")) -> bool:
        """Whether the effect stood at a moment."""
        applied = [event for event in self.applied if event.tick <= tick]
        return bool(applied) and not [e for e in self.undone if e.tick <= tick]


class Judge:
    """Judges one run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.records = [r for r in run.records if r.saga == run.saga]
        self.truths = self._truths()
        self.by_step: dict[str, list[Truth]] = defaultdict(list)
        for truth in self.truths.values():
            self.by_step[truth.step].append(truth)

    def judge(self) -> None:
        """Check everything.

        Raises:
            AssertionError: something is not as it must be.
        """
        self.announced_first()
        self.never_twice()
        self.no_blind_retry()
        self.inverses_fit()
        self.inverses_in_order()
        self.told_as_it_ended()
        if self.run.report is not None:
            self.report_is_true(self.run.report)
        for report, tick in self.run.savepoints:
            self.savepoint_is_true(report, tick)
        self.reader_agrees()

    # --- what belongs together -------------------------------------------------------------------

    def _truths(self) -> dict[tuple[str, int], Truth]:
        owners = self._owners()
        calls: dict[int, Call] = {}
        truths: dict[tuple[str, int], Truth] = {}
        for event in self.run.world.events:
            if event.what in ("call", "undo-call"):
                step, generation, purpose = owners[event.key]
                truth = truths.setdefault((step, generation), Truth(step, generation))
                truth.spec = self.run.program.plans[event.label].spec
                assert (purpose in _FORWARD) == (event.what == "call")
                call = calls[event.call] = Call(event)
                (truth.forward if purpose in _FORWARD else truth.inverse).append(call)
            elif event.what in ("applied", "undone"):
                calls[event.call].effects.append(event)
            elif event.what.endswith("-end"):
                calls[event.call].end = event
        return truths

    def _owners(self) -> dict[str, tuple[str, int, str]]:
        """Whose every idempotency key is: of the log's steps, and of those that left no record."""
        steps = {r.step for r in self.records if r.step} | _unrecorded(self.run)
        return {
            identity.idempotency_key(self.run.saga, step, generation, purpose): (
                step,
                generation,
                purpose,
            )
            for step in steps
            for generation in range(_MOST_GENERATIONS)
            for purpose in (*_FORWARD, identity.INVERSE)
        }

    # --- P1 --------------------------------------------------------------------------------------

    def announced_first(self) -> None:
        for truth in self.truths.values():
            if truth.spec is None or truth.spec.semantics == "REVERSIBLE":
                continue
            intent = self._first(truth, "STEP_INTENT")
            for call in truth.forward:
                assert intent is not None, f"an effect without an intent: {call.start}"
                assert intent <= call.start.durable, f"the intent was not durable: {call.start}"
            announced = self._first(truth, "STEP_COMPENSATING")
            for call in truth.inverse:
                assert announced is not None, f"an inverse without announcement: {call.start}"
                assert announced <= call.start.durable, f"not durable: {call.start}"

    def _first(self, truth: Truth, event: str) -> int | None:
        for record in self.records:
            if record.event == event and (record.step, record.generation) == (
                truth.step,
                truth.generation,
            ):
                return record.seq
        return None

    # --- P2 --------------------------------------------------------------------------------------

    def never_twice(self) -> None:
        for truth in self.truths.values():
            applied = [e for call in truth.forward if _counts(truth, call) for e in call.effects]
            assert len(applied) <= 1, f"the effect happened twice: {applied}"
            assert len(truth.undone) <= 1, f"the inverse happened twice: {truth.undone}"

    def no_blind_retry(self) -> None:
        """An equal call after an ending that is not known had no effect of its own."""
        by_label: dict[int, list[Truth]] = defaultdict(list)
        for truth in self.truths.values():
            if truth.applied and _must_not_repeat(truth.spec):
                by_label[truth.applied[0].label].append(truth)
        for truths in by_label.values():
            for first in truths:
                for second in truths:
                    if first is not second:
                        self._not_blind(first, second)

    def _not_blind(self, first: Truth, second: Truth) -> None:
        if self._keyed(second):
            return
        start = second.forward[0].start
        if first.applied[0].tick > start.tick:
            return
        state = self._state_at(first, start.asked)
        assert state is not StepState.UNKNOWN, (
            f"an equal call ran while the first was unknown: {first.applied} {second.applied}"
        )

    def _keyed(self, truth: Truth) -> bool:
        for record in self.records:
            if record.step == truth.step and record.event == "STEP_INTENT":
                return bool(record.data.get("key", [""])[0] == "given")
        return False

    def _state_at(self, truth: Truth, seq: int) -> StepState:
        view = SagaView(self.run.saga)
        for record in self.records:
            if record.seq <= seq:
                apply(view, record)
        step = view.steps.get(truth.step)
        return StepState.NEW if step is None else step.state

    # --- P4 --------------------------------------------------------------------------------------

    def inverses_fit(self) -> None:
        for truth in self.truths.values():
            if not truth.undone:
                continue
            assert truth.spec is not None
            undone = truth.undone[0]
            if not truth.applied:
                assert truth.spec.null_safe, f"the inverse of nothing: {undone}"
                continue
            assert truth.applied[0].tick < undone.tick, (
                f"an effect after its inverse: {truth.applied} {truth.undone}"
            )

    # --- P5 --------------------------------------------------------------------------------------

    def inverses_in_order(self) -> None:
        undone = [t for t in self.truths.values() if t.undone and t.applied and t.forward]
        for first in undone:
            for second in undone:
                if first is not second and self._before(first, second):
                    assert second.inverse[0].start.tick < first.inverse[0].start.tick, (
                        f"undone in the wrong order: {first.inverse} {second.inverse}"
                    )

    def _before(self, first: Truth, second: Truth) -> bool:
        """Whether the first had a known ending before the second began, and still stood."""
        start = second.forward[0].start
        if first.inverse[0].start.tick < start.tick:
            return False
        if not self._undone_together(first, second):
            return False
        known = self._state_at(first, start.appended) is StepState.COMMITTED
        end = first.forward[-1].end
        return known and end is not None and end.tick < start.tick

    def _undone_together(self, first: Truth, second: Truth) -> bool:
        """Whether what undid the first step had to undo the second one too."""
        announced = self._first(first, "STEP_COMPENSATING") or 0
        path = self._path(first)
        undoing = [
            tuple(record.data.get("scope", ()))
            for record in self.records
            if record.event == "SAGA_UNWINDING" and record.seq < announced
        ]
        around = [scope for scope in undoing if path[: len(scope)] == scope]
        return bool(around) and self._path(second)[: len(around[-1])] == around[-1]

    def _path(self, truth: Truth) -> tuple[str, ...]:
        for record in self.records:
            same = (record.step, record.generation) == (truth.step, truth.generation)
            if same and "call" in record.data:
                return tuple(record.data.get("scope", ()))
        return ()

    # --- P3 --------------------------------------------------------------------------------------

    def told_as_it_ended(self) -> None:
        """The exception that left the boundary and the report say the same."""
        error, report = self.run.error, self.run.report
        if report is None:
            return
        if error is None:
            assert report.outcome == "COMMITTED"
            assert self.run.exit_clean, "success was told, and the report is not clean"
        elif isinstance(error, CommittedUnsettled):
            assert report.outcome == "COMMITTED"
            assert not report.clean
        elif isinstance(error, SagaAborted):
            assert error.report is report
            assert report.outcome != "COMMITTED"
        else:
            assert getattr(error, "saga_report", report) is report

    def report_is_true(self, report: RollbackReport) -> None:
        final = self._final()
        listed = {line.step for line in report.standing} | {line.step for line in report.kept}
        for step in self.by_step:
            if self._stands_undeclared(step) and step not in listed:
                state = final.steps[step].state if step in final.steps else None
                assert report.outcome == "COMMITTED", f"it stands, unlisted: {step} {state}"
                assert state is StepState.COMMITTED, f"it stands, and is {state}: {step}"
        if report.outcome == "COMMITTED":
            self._committed_stand(final, listed)
        for line in report.compensated:
            assert not self._stands(line.step), f"it stands and is listed as undone: {line}"
        for line in report.not_applied:
            assert not self._stands(line.step), f"it stands and is listed as not applied: {line}"
        for line in report.kept:
            assert self._stands(line.step), f"it does not stand and is listed as kept: {line}"
            assert self._specs(line.step) == {"IRREVERSIBLE"}

    def _committed_stand(self, final: SagaView, listed: set[str]) -> None:
        for step, view in final.steps.items():
            if view.state is StepState.COMMITTED and step not in listed and not view.reversible:
                assert self._stands(step), f"it is told as committed and does not stand: {step}"

    def _stands(self, step: str) -> bool:
        return any(truth.stands() for truth in self.by_step.get(step, ()))

    def _stands_undeclared(self, step: str) -> bool:
        return any(
            truth.stands() and truth.spec is not None and not truth.spec.declared_to_stand
            for truth in self.by_step[step]
        )

    def _specs(self, step: str) -> set[str]:
        return {truth.spec.semantics for truth in self.by_step[step] if truth.spec is not None}

    def savepoint_is_true(self, report: RollbackReport, tick: int) -> None:
        """What a savepoint lists was so; a step that ran again elsewhere is not its any more."""
        for line in [*report.compensated, *report.not_applied]:
            intents = [r for r in self.records if (r.step, r.event) == (line.step, "STEP_INTENT")]
            for truth in self.by_step.get(line.step, ()) if len(intents) == 1 else ():
                assert not truth.stands(tick), f"a savepoint lists it as gone: {line}"

    # --- the reader ------------------------------------------------------------------------------

    def _final(self) -> SagaView:
        return fold(self.records).get(self.run.saga) or SagaView(self.run.saga)

    def reader_agrees(self) -> None:
        final = self._final()
        assert not final.faults, final.faults
        report, view = self.run.report, self.run.exit_view
        if report is None:
            assert not final.clean or not self.records
            return
        if view is not None and self.run.quiet and not self.run.fenced:
            assert view.clean == self.run.exit_clean, (view.state, self.run.exit_clean)
        if not self.records:
            assert report.clean
        if final.clean and report.outcome == "ROLLED_BACK":
            standing = [step for step in self.by_step if self._stands_undeclared(step)]
            assert not standing, f"the log is clean, and they stand: {standing}"


def _counts(truth: Truth, call: Call) -> bool:
    """Whether a call must have been the only one: a failed read may be made again."""
    read = truth.spec is not None and truth.spec.semantics == "REVERSIBLE"
    return not read or (call.end is not None and call.end.error == "NoneType")


def _must_not_repeat(spec: Spec | None) -> bool:
    return spec is not None and not spec.repeatable and spec.semantics != "REVERSIBLE"


def _unrecorded(run: Run) -> set[str]:
    """The ids of steps that may have left no record: derived keys of this program's tools."""
    from property.toolbox import tool_for

    ids = set()
    for plan in run.program.plans.values():
        if plan.spec.semantics == "REVERSIBLE":
            name = tool_for(plan.spec).tool.name
            for key in ("k1", "k2"):
                ids.add(identity.step_id(run.saga, identity.given_key(("",), name, key)))
            for ordinal in range(1, 20):
                ids.add(identity.step_id(run.saga, identity.derived_key((), name, ordinal)))
    return ids

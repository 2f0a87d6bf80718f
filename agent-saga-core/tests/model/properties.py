"""The properties that hold in every state of the model, each under its name.

P1  An intent is durable before its effect.
P2  At most one forward call and one inverse of a step take hold; no call is made again that its
    provider would not know, and whatever is repeated has its own key.
P3  Clean means that every effect was undone, or committed as told; who is told success has it.
P4  No inverse without its effect, no effect behind its inverse, and none announced behind the end.
P5  Inverses run against the order in which the effects happened.
P6  Every saga reaches an end, or a human.
P7  No effect that was not announced before a halt or a quarantine was acknowledged; no inverse that
    was not announced before a quarantine was; a halt keeps nobody from undoing.
P11 Of an owner that was taken over, nothing written afterwards counts; and nobody is taken over who
    lives and was not taken for dead.

P8 to P10 are no matter of orders between processes; random cases and killing prove them, not this
model:

P8  No effect without a grant by somebody else that is bound to it, has not run out and is used once
    (`controls/test_humans_property.py`, `controls/test_killed.py`).
P9  No window of a limit ever holds more than its cap (`controls/test_windows.py`,
    `controls/test_limits_killed.py`).
P10 `verify` names every record that was changed, moved, put in or taken out (`evidence/`).

`settle_after` is an assumption: no call takes hold that long after its caller was proved dead. A
scene may break it. What is told is true even then, once all have said what they know; but something
may have happened twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model.stage import Stage

from agent_saga.domain import identity
from agent_saga.domain.effective import effective
from agent_saga.domain.lifecycle import SagaState, StepState
from agent_saga.domain.records import Ev
from agent_saga.recovery.queue import cases_in
from agent_saga.recovery.survey import Found, look
from agent_saga.wal.reader import scan_log

ENDED = frozenset({SagaState.COMMITTED, SagaState.ROLLED_BACK, SagaState.PARTIAL, SagaState.STUCK})


class Verdict:
    """What is known when nothing happens any more.

    Attributes:
        here: the scene.
        sagas: every saga of the log.
        waiting: the ids of those that are in the queue.
    """

    def __init__(self, here: Stage) -> None:
        self.here = here
        ids = {r.saga for r in scan_log(here.log) if getattr(r, "saga", "")}
        found = [look(here.log, saga) for saga in sorted(ids)]
        self.sagas: list[Found] = [one for one in found if one is not None]
        self.waiting = {case.id for case in cases_in(str(here.log))}

    @property
    def names(self) -> set[str]:
        return {name for _, name, _ in self.here.applied}

    @property
    def faults(self) -> list[str]:
        """What is wrong with the records, as a reader sees them."""
        return [fault for saga in self.sagas for fault in saga.view.faults]

    def called(self, place: int, purpose: str) -> bool:
        """Say whether a call was made that the record at a place announces."""
        _, made = self.here.order[place]
        key = identity.idempotency_key(made.saga, made.step, made.generation, purpose)
        again = [
            later
            for later, (_, record) in enumerate(self.here.order)
            if later > place and (record.event, record.step) == (made.event, made.step)
        ]
        end = min(again, default=len(self.here.order))
        return any(e.what == "called" and e.key == key and place < e.at <= end
                   for e in self.here.events)  # fmt: skip

    def first(self, what: str, kind: str, name: str) -> int | None:
        """The place of the first event of a kind."""
        places = [
            place
            for place, event in enumerate(self.here.events)
            if (event.what, event.kind, event.name) == (what, kind, name)
        ]
        return places[0] if places else None


def p1_announced(seen: Verdict) -> None:
    assert not seen.here.unannounced, f"not durable before its effect: {seen.here.unannounced}"


def p2_never_twice(seen: Verdict) -> None:
    for name in seen.names:
        for kind in ("forward", "inverse"):
            times = [(k, n) for k, n, _ in seen.here.applied].count((kind, name))
            assert times <= 1, f"the {kind} of {name} took hold {times} times"
    forward = [key for kind, _, key in seen.here.calls if kind == "forward"]
    assert len(forward) == len(set(forward)), "a call was made again"
    inverse = {(name, key) for kind, name, key in seen.here.calls if kind == "inverse"}
    assert len(inverse) == len({name for name, _ in inverse}), "an inverse had another key"


def p3_clean_is_true(seen: Verdict) -> None:
    stands = {name for name in seen.names if seen.here.standing(name) > 0}
    for saga in seen.sagas:
        view = saga.view
        if view.clean:
            due = seen.names if view.state is SagaState.COMMITTED else set()
            assert stands == due, f"{view.state.value} is clean, and these stand: {stands}"
        else:
            assert saga.id in seen.waiting, "it is not clean, and nobody is told"
    if seen.here.told_undone:
        assert not stands, f"the owner was told that all is undone, and these stand: {stands}"
    if seen.here.returned:
        states = [saga.view.state for saga in seen.sagas]
        assert states == [SagaState.COMMITTED], f"the owner was told success: {states}"


def p4_no_inverse_alone(seen: Verdict) -> None:
    for name in seen.names:
        forward = seen.first("took hold", "forward", name)
        inverse = seen.first("took hold", "inverse", name)
        assert inverse is None or forward is not None, f"{name} was undone and never done"
        if inverse is not None and forward is not None:
            assert forward < inverse, f"{name} was done behind its inverse"
    behind = [fault for fault in seen.faults if not fault.startswith("a stale")]
    assert seen.here.taken_for_dead or not behind, f"against every rule: {behind}"


def p5_order(seen: Verdict) -> None:
    undone = [name for kind, name, _ in seen.here.applied if kind == "inverse"]
    for place, earlier in enumerate(undone):
        for later in undone[place + 1 :]:
            ended, began = (
                seen.first("answered", "forward", earlier),
                seen.first("called", "forward", later),
            )
            follows = ended is not None and began is not None and ended < began
            assert not follows, f"{earlier} was undone before {later}, which came after it"


def p6_ends(seen: Verdict) -> None:
    for saga in seen.sagas:
        told = saga.id in seen.waiting
        assert saga.view.state in ENDED or told, f"{saga.view.state.value} is no end"
        for step in saga.view.steps.values():
            open_step = step.state in (StepState.INTENT, StepState.COMPENSATING)
            assert told or not open_step, f"a step is {step.state.value} and nobody is told"


def p7_halted(seen: Verdict) -> None:
    here = seen.here
    for place, (_, record) in enumerate(here.order):
        if here.halted_at is not None and record.event == Ev.STEP_INTENT:
            late = place >= here.halted_at and seen.called(place, identity.FORWARD)
            assert not late, "a call was made that was announced behind a halt"
        if here.quarantined_at is not None and record.event == Ev.STEP_COMPENSATING:
            late = here.quarantined_at <= place < here.released_at
            called = late and seen.called(place, identity.INVERSE)
            assert not called, "an inverse was run that was announced in quarantine"


def p11_fenced(seen: Verdict) -> None:
    """Judged by the order in which records were written, which no reader knows."""
    records = [one.record for one in seen.here.order if one.record.saga]
    counting = {(r.writer, r.seq) for r in effective(records).records}
    stale = [fault for fault in seen.faults if fault.startswith("a stale")]
    assert seen.here.taken_for_dead or not stale, f"taken over alive: {stale}"
    epoch: int = 0
    for writer, record in [(one.writer, one.record) for one in seen.here.order]:
        if record.event == Ev.SAGA_CLAIM and (writer, record.seq) in counting:
            epoch = max(epoch, record.epoch)
        stale = bool(record.saga) and record.epoch < epoch
        assert not (stale and (writer, record.seq) in counting), (
            f"{record.event} of epoch {record.epoch} counts behind the claim of epoch {epoch}"
        )


PROPERTIES: dict[str, Callable[[Verdict], Any]] = {
    "P1": p1_announced,
    "P2": p2_never_twice,
    "P4": p4_no_inverse_alone,
    "P5": p5_order,
    "P7": p7_halted,
    "P11": p11_fenced,
    "P6": p6_ends,
    "P3": p3_clean_is_true,
}
"""The one that says most comes last, so that a mistake is found by what it breaks first."""


TRUE_ALL_THE_SAME = ("P11", "P6", "P3")
"""What holds although calls took hold after they had been given up."""


def check(here: Stage) -> None:
    """Check every property; the error of one that does not hold begins with its name."""
    seen = Verdict(here)
    for name in PROPERTIES if here.waits_for_calls else TRUE_ALL_THE_SAME:
        holds = PROPERTIES[name]
        try:
            holds(seen)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error

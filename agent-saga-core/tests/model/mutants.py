"""Seeded mistakes in the code under test, each with the property that must find it.

Each takes one rule out of the real code, or turns it round, as a careless change would. What the
model cannot tell from the truth it does not prove, so every one of them must be found.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from model.properties import ENDED

from agent_saga.domain import effective, identity
from agent_saga.domain.doubt import Doubt, doubt_after
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.records import Ev
from agent_saga.domain.views import SagaView
from agent_saga.engine import journal, outcome
from agent_saga.engine.endings import Kind
from agent_saga.engine.requests import HandedOver
from agent_saga.engine.saga import Saga
from agent_saga.engine.step import Step
from agent_saga.recovery import claim as claiming
from agent_saga.wal.base import BaseWAL


class Mutant(NamedTuple):
    """A mistake: how it is made, which properties may find it first, and in which scene."""

    make: Callable[[Any], object]
    found_by: tuple[str, ...]
    scene: str
    states: int = 4000


def no_lock(patch: Any) -> None:
    """A saga is taken over whether or not its process lives."""
    patch.setattr(claiming, "_dead_owner", lambda *args: contextlib.nullcontext())
    patch.setattr(claiming, "_check_calls_ended", lambda *args: None)
    patch.setattr("agent_saga.recovery.daemon.dead_writer", lambda *args: contextlib.ExitStack())


def epoch_not_atomic(patch: Any) -> None:
    """Whoever wants a saga raises its epoch to what it likes."""
    patch.setattr(claiming, "raised", lambda place, found: found.effective.highest + 1)
    patch.setattr(claiming, "_dead_owner", lambda *args: contextlib.nullcontext())


def found_inverse_repeated(patch: Any) -> None:
    """An inverse that was announced by a dead process is called again."""

    def again(step: Any, inverse: Any) -> Any:
        yield from ()

    patch.setattr("agent_saga.engine.unwind.tried_before", again)


def doubts_end_with_their_process(patch: Any) -> None:
    """What an inverse may have done is forgotten when its process ends."""
    patch.setattr("agent_saga.recovery.rebuild.doubt_after", lambda *args, **how: Doubt.NONE)


def a_no_settles_what_came_before(patch: Any) -> None:
    """An inverse that says it had no effect is taken to speak of all attempts."""

    def settled(doubt: Doubt, state: Any, event: str, **how: bool) -> Doubt:
        if event == Ev.STEP_COMPENSATION_NOT_APPLIED:
            return Doubt.NONE
        return doubt_after(doubt, state, event, **how)

    patch.setattr("agent_saga.recovery.rebuild.doubt_after", settled)
    patch.setattr("agent_saga.engine.journal.doubt_after", settled)


def key_of_the_epoch(patch: Any) -> None:
    """Recovery calls an inverse with a key of its own."""

    def key(step: Step, purpose: str = identity.FORWARD) -> str:
        saga = step.saga
        own = saga.epoch if purpose == identity.INVERSE else step.generation
        return identity.idempotency_key(saga.id, step.id, own, purpose)

    patch.setattr(Step, "idempotency_key", key)


def oldest_first(patch: Any) -> None:
    """What came first is undone first."""
    patch.setattr(
        "agent_saga.engine.unwind.undo_order",
        lambda steps: sorted(steps, key=lambda s: s.order or 0),
    )


def lost_answer_is_no_effect(patch: Any) -> None:
    """A call without an answer is taken for one that did not happen."""

    def kind(step: Any, form: Any, ending: Any, *call: Any) -> Kind:
        return Kind.APPLIED if ending.error is None else Kind.NOT_APPLIED

    patch.setattr("agent_saga.engine.attempts.kind_of", kind)


def intent_after_the_effect(patch: Any) -> None:
    """The effect is not announced before it happens."""

    def announced(step: Any) -> Any:
        yield from ()
        step.order, step.intent_order = None, step.saga.order()
        journal.intent(step)

    patch.setattr("agent_saga.engine.protocol._announced", announced)


def told_clean(patch: Any) -> None:
    """Whatever ended is called clean."""
    patch.setattr(SagaView, "clean", property(lambda view: view.state in ENDED))


def intent_not_durable(patch: Any) -> None:
    """The effect happens as soon as its announcement is written."""
    patch.setattr("agent_saga.engine.protocol.Durable", HandedOver)


def compensating_not_durable(patch: Any) -> None:
    """An inverse is run as soon as its announcement is written."""
    patch.setattr("agent_saga.engine.inverse.Durable", HandedOver)


def commit_not_durable(patch: Any) -> None:
    """Success is told as soon as the commit is written."""
    patch.setattr("agent_saga.engine.commit.Durable", HandedOver)


def no_check_before_return(patch: Any) -> None:
    """Success is told without a last look at the fence."""
    check = BaseWAL.check_fence

    def unchecked(wal: BaseWAL, saga: str, epoch: int, announced: int | None = None) -> None:
        if sys._getframe(1).f_code.co_name != "commit":
            check(wal, saga, epoch, announced)

    patch.setattr(BaseWAL, "check_fence", unchecked)


def fence_not_looked_at(patch: Any) -> None:
    """Nobody looks whether somebody else has taken the saga over."""
    patch.setattr(BaseWAL, "check_fence", lambda *args: None)


def cuts_ignored(patch: Any) -> None:
    """What a claim has not read counts all the same."""
    patch.setattr(effective, "_uncut", lambda record, claims: True)


def read_before_the_fence(patch: Any) -> None:
    """A claimer goes by what it read before it fenced the owner."""
    proved = claiming.Place.proved

    def believed(place: Any, found: Any) -> Any:
        return found if found.proved else proved(place, found)

    patch.setattr(claiming.Place, "proved", believed)


def stale_ignored(patch: Any) -> None:
    """What an owner writes that was taken over is never named."""
    patch.setattr(effective, "_unsafe", lambda late: [])


def a_no_is_always_final(patch: Any) -> None:
    """A prober's no is believed although the request may still arrive."""
    patch.setattr("agent_saga.engine.settle.quiet", lambda step: True)


def nobody_is_asked(patch: Any) -> None:
    """An effect of which nothing is known is taken for one that happened."""

    def settled(step: Step, *, patient: bool) -> Any:
        yield from ()
        outcome.applied(step, step.arguments["name"])
        journal.committed(step)

    patch.setattr("agent_saga.engine.unwind.settle_unknown", settled)


def steps_go_on(patch: Any) -> None:
    """A step may start while its saga is being undone."""
    patch.setattr(Saga, "check_open", lambda saga, scope: None)


def unwinding_left_alone(patch: Any) -> None:
    """Recovery takes up only what was running."""

    def recoverable(found: Any) -> bool:
        return found.view.state is SagaState.RUNNING

    patch.setattr("agent_saga.recovery.recover.recoverable", recoverable)
    patch.setattr("agent_saga.recovery.daemon.recoverable", recoverable)


def queue_forgets(patch: Any) -> None:
    """What could not be undone is in no queue."""
    patch.setattr("agent_saga.recovery.queue.is_case", lambda found: bool(found.problems))


def halt_looked_at_once(patch: Any) -> None:
    """The switch is not looked at again once a step is announced."""

    def rechecked(step: Step, announced: float = 0.0) -> Any:
        yield from ()

    patch.setattr("agent_saga.engine.protocol.rechecked", rechecked)


def quarantine_not_looked_at(patch: Any) -> None:
    """Undoing goes on in quarantine."""

    def kept(saga: Saga) -> Any:
        yield from ()

    patch.setattr("agent_saga.engine.unwind.kept_from_undoing", kept)
    patch.setattr("agent_saga.engine.inverse.kept_from_undoing", kept)


FAILS_1 = "one daemon, the owner fails"
DENIED = "an operator, and inverses that are denied"
MUTANTS = {
    # P1
    "intent_after_the_effect": Mutant(intent_after_the_effect, ("P1",), FAILS_1),
    "intent_not_durable": Mutant(intent_not_durable, ("P1",), FAILS_1),
    # P2
    "no_lock": Mutant(no_lock, ("P11",), "two daemons, the owner commits"),
    "epoch_not_atomic": Mutant(epoch_not_atomic, ("P11", "P2"), "two daemons, the owner fails"),
    "found_inverse_repeated": Mutant(found_inverse_repeated, ("P2",), "nobody can tell"),
    "doubts_end_with_their_process": Mutant(doubts_end_with_their_process, ("P2",), DENIED),
    "a_no_settles_what_came_before": Mutant(a_no_settles_what_came_before, ("P2",), DENIED, 30_000),
    "key_of_the_epoch": Mutant(key_of_the_epoch, ("P2",), FAILS_1),
    "compensating_not_durable": Mutant(compensating_not_durable, ("P2",), "the power fails"),
    # P3
    "lost_answer_is_no_effect": Mutant(lost_answer_is_no_effect, ("P3",), FAILS_1),
    "told_clean": Mutant(told_clean, ("P3",), FAILS_1),
    "commit_not_durable": Mutant(commit_not_durable, ("P3",), "the power fails, and it commits"),
    "no_check_before_return": Mutant(
        no_check_before_return, ("P3",), "taken for dead, the owner commits"
    ),
    "read_before_the_fence": Mutant(
        read_before_the_fence, ("P3",), "taken for dead, the owner commits"
    ),
    "stale_ignored": Mutant(stale_ignored, ("P3",), "settled too early"),
    "queue_forgets": Mutant(queue_forgets, ("P3",), "nobody can tell"),
    # P4
    "a_no_is_always_final": Mutant(a_no_is_always_final, ("P4", "P3"), "late requests"),
    "nobody_is_asked": Mutant(nobody_is_asked, ("P4",), FAILS_1),
    # P5
    "oldest_first": Mutant(oldest_first, ("P5",), FAILS_1),
    # P6
    "unwinding_left_alone": Mutant(unwinding_left_alone, ("P6",), FAILS_1),
    # P7
    "halt_looked_at_once": Mutant(halt_looked_at_once, ("P7",), "halted"),
    "quarantine_not_looked_at": Mutant(quarantine_not_looked_at, ("P7",), "quarantined"),
    # P11
    "cuts_ignored": Mutant(cuts_ignored, ("P11",), "taken for dead"),
    "fence_not_looked_at": Mutant(fence_not_looked_at, ("P11", "P2", "P3"), "taken for dead"),
    # late threads
    "steps_go_on": Mutant(steps_go_on, ("P4", "P3", "P5"), "a late thread"),
}

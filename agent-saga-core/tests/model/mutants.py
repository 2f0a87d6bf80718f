"""Seeded mistakes in the code under test, each with the property that must find it.

Each takes one rule out of the real code, or turns it round, as a careless change would. What the
model cannot tell from the truth it does not prove, so every one of them must be found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from model.properties import ENDED

from agent_saga.domain import identity
from agent_saga.domain.views import SagaView
from agent_saga.engine import journal
from agent_saga.engine.endings import Kind
from agent_saga.engine.step import Step
from agent_saga.recovery import claim as claiming


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
    patch.setattr(claiming, "_raised", lambda place, found: found.effective.highest + 1)
    patch.setattr(claiming, "_dead_owner", lambda *args: contextlib.nullcontext())


def found_inverse_repeated(patch: Any) -> None:
    """An inverse that was announced by a dead process is called again."""

    def again(step: Any, inverse: Any) -> Any:
        yield from ()

    patch.setattr("agent_saga.engine.unwind.tried_before", again)


def key_of_the_epoch(patch: Any) -> None:
    """Recovery calls an inverse with a key of its own."""

    def key(step: Step, purpose: str = identity.FORWARD) -> str:
        saga = step.scope.saga
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

    patch.setattr("agent_saga.engine.protocol.kind_of", kind)


def intent_after_the_effect(patch: Any) -> None:
    """The effect is not announced before it happens."""

    def announced(step: Any) -> Any:
        yield from ()
        step.order, step.intent_order = None, step.scope.saga.order()
        journal.intent(step)

    patch.setattr("agent_saga.engine.protocol._announced", announced)


def told_clean(patch: Any) -> None:
    """Whatever ended is called clean."""
    patch.setattr(SagaView, "clean", property(lambda view: view.state in ENDED))


MUTANTS = {
    "no_lock": Mutant(no_lock, ("P2", "P3", "P11"), "two daemons, the owner commits"),
    "epoch_not_atomic": Mutant(
        epoch_not_atomic, ("P2", "P3", "P11"), "two daemons, the owner fails"
    ),
    "found_inverse_repeated": Mutant(
        found_inverse_repeated, ("P2",), "one daemon, the owner fails"
    ),
    "key_of_the_epoch": Mutant(key_of_the_epoch, ("P2",), "one daemon, the owner fails"),
    "oldest_first": Mutant(oldest_first, ("P5",), "one daemon, the owner fails"),
    "lost_answer_is_no_effect": Mutant(
        lost_answer_is_no_effect, ("P3",), "one daemon, the owner fails"
    ),
    "intent_after_the_effect": Mutant(
        intent_after_the_effect, ("P1",), "one daemon, the owner fails"
    ),
    "told_clean": Mutant(told_clean, ("P3",), "one daemon, the owner fails"),
}

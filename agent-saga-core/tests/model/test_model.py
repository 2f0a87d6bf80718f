"""The real code of owner, daemons, log and store, in every order of their operations within bounds.

A few hundred states are visited usually, AGENT_SAGA_MODEL_STATES asks for more. Every seeded
mistake must be found: what the model cannot tell from the truth, it does not prove.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

import pytest
from model import stage
from model.scheduler import Bounds, Search

from agent_saga.domain import identity
from agent_saga.domain.views import SagaView
from agent_saga.engine import journal
from agent_saga.engine.endings import Kind
from agent_saga.engine.step import Step
from agent_saga.recovery import claim as claiming

STATES = int(os.environ.get("AGENT_SAGA_MODEL_STATES", "300"))
MUTANT_STATES = int(os.environ.get("AGENT_SAGA_MODEL_MUTANT_STATES", "4000"))

pytestmark = [pytest.mark.property, pytest.mark.timeout(max(120, STATES // 5))]


class _Many(set):
    """Threads of this process claim as if each were a process of its own."""

    def __contains__(self, saga: object) -> bool:
        return False


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(claiming, "_claiming", _Many())
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


SCENES = {
    "one daemon, the owner fails": ({"daemons": 1, "fails": True}, Bounds(2, 2, 1)),
    "one daemon, the owner commits": ({"daemons": 1, "fails": False}, Bounds(2, 2, 1)),
    "two daemons, the owner fails": ({"daemons": 2, "fails": True}, Bounds(2, 2, 1)),
    "two daemons, the owner commits": ({"daemons": 2, "fails": False}, Bounds(2, 2, 1)),
    "three daemons": ({"daemons": 3, "fails": True}, Bounds(1, 3, 0)),
}


def searched(name: str, states: int) -> Search:
    options, bounds = SCENES[name]
    search = Search(lambda: stage.scene(**options), bounds, states)

    def judge(scene, decisions):
        try:
            stage.judge(scene)
        except BaseException as error:
            error.add_note("\n".join(f"{one.process} {one.action}" for one in decisions))
            raise

    search.visit(judge)
    return search


@pytest.mark.parametrize("name", SCENES)
def test_never_twice_and_never_falsely_clean(name):
    search = searched(name, STATES // len(SCENES) + 1)
    assert search.whole or len(search.seen) > STATES // len(SCENES)


# --- seeded mistakes ------------------------------------------------------------------------------


def no_lock(patch: Any) -> None:
    """A saga is taken over whether or not its process lives, and so is its writer's word."""
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
    patch.setattr(SagaView, "clean", property(lambda view: view.state in stage.ENDED))


MUTANTS = {
    no_lock: ("two daemons, the owner commits", "a stale|twice|again"),
    epoch_not_atomic: ("two daemons, the owner fails", "a stale|twice|again"),
    found_inverse_repeated: ("one daemon, the owner fails", "undone twice"),
    key_of_the_epoch: ("one daemon, the owner fails", "another key|undone twice"),
    oldest_first: ("one daemon, the owner fails", "wrong order"),
    lost_answer_is_no_effect: ("one daemon, the owner fails", "clean, and these stand"),
    intent_after_the_effect: ("one daemon, the owner fails", "not announced"),
    told_clean: ("one daemon, the owner fails", "clean, and these stand"),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_seeded_mistake_is_found(mutant, monkeypatch):
    scene, what = MUTANTS[mutant]
    with monkeypatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError, match=what):
            searched(scene, MUTANT_STATES)

"""Small sagas that once ended wrongly, each found by the random ones."""

from __future__ import annotations

import pytest
from property.judging import Judge
from property.programs import (
    NEVER,
    Abort,
    Background,
    CallOp,
    Fail,
    Mode,
    Parallel,
    Pause,
    Plan,
    Program,
    Savepoint,
    Spec,
)
from property.running import run

from agent_saga.errors import NotApplied

LOST = Mode(error=ConnectionError)
FAILED_BEFORE = Mode(effect=NEVER, error=RuntimeError)
SLOW = Mode(before="long")
UNDO_LOST = Plan(Spec(), undo=[LOST])
FOUND = {
    "a kept pivot of a savepoint makes the commit unclean": Program(
        {0: Plan(Spec("IRREVERSIBLE", inverse="missing"))},
        (Savepoint((CallOp(0), Fail()), caught=True),),
    ),
    "a REVERSIBLE inverse with an unknown ending is not repeated by the outer boundary": Program(
        {0: Plan(Spec("REVERSIBLE"), undo=[LOST])},
        (Savepoint((CallOp(0), Fail()), caught=True), Fail()),
    ),
    "an inverse with an unknown ending is not repeated three boundaries further out": Program(
        {0: UNDO_LOST},
        (Savepoint((Savepoint((Savepoint((CallOp(0), Fail())),), caught=True), Fail())), Fail()),
    ),
    "a blind retry beside an equal one": Program(
        {0: Plan(Spec(prober="truth", is_async=False), forward=[FAILED_BEFORE, SLOW])},
        (
            CallOp(0, caught=True),
            Parallel("all", ((CallOp(0),), (CallOp(0),), (Pause(), CallOp(0)))),
        ),
    ),
    "a step that is still before its intent when the boundary ends": Program(
        {0: Plan(Spec(prepare=True, is_async=False)), 1: Plan(Spec(is_async=False))},
        (Background(CallOp(0)), Background(CallOp(1)), CallOp(1)),
    ),
    "a call that still runs in its thread when the boundary is undone": Program(
        {0: Plan(Spec(is_async=False, timeout=0.02, prober="truth"), forward=[SLOW])},
        (CallOp(0, caught=True), CallOp(0, caught=True), Fail()),
    ),
    "a REVERSIBLE step with a key that first had no effect": Program(
        {0: Plan(Spec("REVERSIBLE"), forward=[Mode(effect=NEVER, error=NotApplied)])},
        (CallOp(0, "k1", caught=True), CallOp(0, "k1"), CallOp(0, "k1"), Fail()),
    ),
    "a REVERSIBLE step with a key that failed after its effect, and is called again": Program(
        {0: Plan(Spec("REVERSIBLE"), forward=[LOST])},
        (CallOp(0, "k1", caught=True), CallOp(0, "k1"), Fail()),
    ),
    "a REVERSIBLE step with a key that runs again after its savepoint was undone": Program(
        {0: Plan(Spec("REVERSIBLE"))},
        (Savepoint((CallOp(0, "k1"), Fail()), caught=True), CallOp(0, "k1"), Fail()),
    ),
    "an abort that the program swallows": Program(
        {0: Plan(Spec())}, (CallOp(0), Abort(caught=True), CallOp(0, caught=True))
    ),
}


@pytest.mark.property
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name, is_async):
    Judge(run(FOUND[name], is_async=is_async)).judge()

"""Every ending of one step, with every prober and every inverse, in every kind of boundary."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from property.judging import Judge
from property.programs import (
    LATE,
    NEVER,
    NOW,
    SETTLE_AFTER,
    CallOp,
    Fail,
    FailedBefore,
    Mode,
    Plan,
    Program,
    Savepoint,
    Spec,
)
from property.running import Run, run

from agent_saga.errors import NotApplied

pytestmark = [pytest.mark.property, pytest.mark.timeout(600)]

FULL = settings.default.max_examples > 1000
ERRORS = (RuntimeError, ConnectionError, TimeoutError)
CALL = CallOp(0, caught=True)
FORWARD = [
    Mode(),
    *[Mode(NOW, error) for error in ERRORS],
    *[Mode(NEVER, error) for error in (*ERRORS, NotApplied, FailedBefore)],
    *[Mode(LATE, error, delay=0.9 * SETTLE_AFTER) for error in (ConnectionError, TimeoutError)],
    Mode(before="long"),
    Mode(after="long"),
]
UNDO = [
    Mode(),
    *[Mode(NOW, error) for error in ERRORS],
    *[Mode(NEVER, error) for error in (*ERRORS, NotApplied)],
    Mode(LATE, ConnectionError, delay=0.9 * SETTLE_AFTER),
    Mode(before="long"),
]
INVERSES = ("undo", "null-safe", "provisional", "nothing", "missing")
ENDS = {
    "committed": (CALL,),
    "undone": (CALL, Fail()),
    "called again": (CALL, CALL, CALL, Fail()),
    "savepoint undone": (Savepoint((CALL, Fail()), caught=True),),
    "undone twice": (
        Savepoint((Savepoint((CALL, Fail()), caught=True), Fail()), caught=True),
        Fail(),
    ),
}


def judged(program: Program, *, is_async: bool) -> Run:
    this = run(program, is_async=is_async)
    try:
        Judge(this).judge()
    except BaseException as error:
        error.add_note(f"{program}\n{this.error!r}\n{this.world.events}")
        raise
    return this


def chosen(cases: Iterable[Any], *, is_async: bool) -> list[Any]:
    """Every case with the profiles `deep` and `full`; else each for one of the two drivers."""
    return [case for at, case in enumerate(cases) if FULL or at % 2 == is_async]


def test_is_about_what_can_arrive_late():
    """Whoever waits long enough finds an effect that arrives late, and undoes it."""
    late = Mode(LATE, ConnectionError, delay=0.9 * SETTLE_AFTER)
    this = judged(Program({0: Plan(Spec(prober="truth"), [late])}, (CALL, Fail())), is_async=True)
    assert this.exit_clean
    assert [event.what for event in this.world.events].count("undone") == 1


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("prober", ["", "truth", "final", "cannot", "raises"])
@pytest.mark.parametrize("end", ENDS)
def test_every_ending_of_a_call(end, prober, is_async):
    for mode, inverse in chosen(itertools.product(FORWARD, INVERSES), is_async=is_async):
        timeout = 0.02 if "long" in (mode.before, mode.after) else None
        spec = Spec(is_async=is_async, inverse=inverse, prober=prober, timeout=timeout)
        for idempotent in (False, True) if FULL else (False,):
            plan = Plan(Spec(**{**vars(spec), "idempotent": idempotent}), [mode, mode])
            judged(Program({0: plan}, ENDS[end]), is_async=is_async)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("reconciler", ["", "truth", "cannot", "raises"])
@pytest.mark.parametrize("end", ["undone", "savepoint undone", "undone twice"])
def test_every_ending_of_an_inverse(end, reconciler, is_async):
    cases = itertools.product(UNDO, (False, True), INVERSES[:3])
    for mode, idempotent, inverse in chosen(cases, is_async=is_async):
        timeout = 0.02 if mode.before else None
        spec = Spec(
            is_async=is_async,
            inverse=inverse,
            reconciler=reconciler,
            undo_idempotent=idempotent,
            undo_timeout=timeout,
        )
        for again in ([Mode()], [mode, mode]) if FULL else ([mode, mode],):
            plan = Plan(spec, undo=[mode, *again])
            judged(Program({0: plan}, ENDS[end]), is_async=is_async)

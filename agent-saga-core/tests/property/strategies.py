"""Random programs."""

from __future__ import annotations

import itertools
import math
from typing import Any

from hypothesis import strategies as st
from property.programs import (
    LATE,
    NEVER,
    NOW,
    SETTLE_AFTER,
    Abort,
    Background,
    BodyError,
    CallOp,
    Fail,
    FailedBefore,
    Mode,
    Parallel,
    Pause,
    Plan,
    Program,
    Savepoint,
    Spec,
    Within,
)

from agent_saga.errors import NotApplied

PAUSES = ("", "turn", "long")
ANSWERS = (RuntimeError,)
NO_ANSWERS = (ConnectionError, TimeoutError)
DELAYS = (0.0, 0.3 * SETTLE_AFTER, 0.9 * SETTLE_AFTER)


def _modes(*, undo: bool) -> list[Mode]:
    """Every way in which a call goes that an honest tool can have, the usual ones first."""
    failed = (*ANSWERS, *NO_ANSWERS)
    harmless = (NotApplied,) if undo else (NotApplied, FailedBefore)
    ends = [(NOW, None), (NOW, None), *[(NOW, error) for error in failed]]
    ends += [(NEVER, error) for error in (*failed, *harmless)]
    places = [("", ""), ("", ""), *itertools.product(PAUSES, PAUSES)]
    modes = [
        Mode(effect, error, before, after, stubborn=stubborn)
        for before, after in places
        for effect, error in ends
        for stubborn in ((False, True) if before or after else (False,))
    ]
    late = [Mode(LATE, error, delay=delay) for error in NO_ANSWERS for delay in DELAYS]
    return [*modes, *late, *late]


FORWARD_MODES = _modes(undo=False)
UNDO_MODES = _modes(undo=True)
GOOD_MODES = [
    Mode(effect, error, before, after)
    for before, after in itertools.product(PAUSES[:2], PAUSES[:2])
    for effect, error in ((NOW, None), (NOW, None), (NEVER, NotApplied))
]
COMPENSABLE = {
    "is_async": (True, False),
    "inverse": (
        "undo", "undo", "undo", "undo", "null-safe", "null-safe",
        "provisional", "fn", "raises", "nothing", "missing",
    ),
    "undo_async": (False, True),
    "undo_idempotent": (False, True),
    "undo_timeout": (None, None, 0.02),
    "prober": ("", "", "truth", "truth", "final", "cannot", "raises", "nonsense"),
    "reconciler": ("", "", "truth", "cannot", "raises"),
    "idempotent": (False, True),
    "repeatable": (False, False, False, True),
    "timeout": (None, None, 0.02),
    "retry": (False, False, True),
    "fallback": (False, False, False, True),
    "durable": (False, True),
    "prepare": (False, True),
}  # fmt: skip
REVERSIBLE = {
    "semantics": ("REVERSIBLE",),
    "is_async": (True, False),
    "inverse": ("undo", "missing"),
    "timeout": (None, 0.02),
}
IRREVERSIBLE = {
    "semantics": ("IRREVERSIBLE",),
    "is_async": (True, False),
    "inverse": ("missing",),
    "prober": ("", "truth", "final"),
    "timeout": (None, 0.02),
}
GOOD = {
    "semantics": ("COMPENSABLE", "COMPENSABLE", "COMPENSABLE", "REVERSIBLE"),
    "is_async": (True, False),
    "inverse": ("undo", "null-safe", "fn"),
    "undo_async": (False, True),
    "durable": (False, True),
    "prepare": (False, True),
}


def _specs(choices: dict[str, tuple[Any, ...]]) -> st.SearchStrategy[Spec]:
    """Every combination of these choices, as one number."""
    most = math.prod(len(options) for options in choices.values())

    def chosen(number: int) -> Spec:
        fields = {}
        for name, options in choices.items():
            number, place = divmod(number, len(options))
            fields[name] = options[place]
        return Spec(**fields)

    return st.integers(0, most - 1).map(chosen)


def plans() -> st.SearchStrategy[Plan]:
    """Tools and how their calls go: mostly well."""
    compensable = _specs(COMPENSABLE)
    return st.builds(
        Plan,
        spec=st.one_of(
            compensable, compensable, compensable, _specs(REVERSIBLE), _specs(IRREVERSIBLE)
        ),
        forward=st.lists(st.sampled_from(FORWARD_MODES), max_size=3),
        fallback=st.lists(st.sampled_from(FORWARD_MODES), max_size=1),
        undo=st.lists(st.sampled_from(UNDO_MODES), max_size=3),
        approval=st.sampled_from(["yes", "yes", "yes", "no", "raises"]),
    )


def good_plans() -> st.SearchStrategy[Plan]:
    """Tools that can be undone, whose calls go well or say that they had no effect."""
    forward = st.lists(st.sampled_from(GOOD_MODES), max_size=3)
    return st.builds(Plan, spec=_specs(GOOD), forward=forward)


def _calls(labels: int) -> st.SearchStrategy[CallOp]:
    return st.sampled_from(
        [
            CallOp(label, key, caught, bad_arguments=bad)
            for bad in [False] * 12 + [True]
            for key in ("", "", "", "k1", "k2")
            for caught in (False, True)
            for label in range(labels)
        ]
    )


def _ops(labels: int, *, good: bool) -> st.SearchStrategy[tuple[object, ...]]:
    call = _calls(labels)
    fails = [BodyError] * 4 + ([] if good else [SystemExit, KeyboardInterrupt])
    others = st.sampled_from([Fail(), Pause(), Pause(long=True)])
    leaf = st.one_of(call, call, call, others, st.builds(Background, call=call))
    flat = st.lists(leaf, max_size=3).map(tuple)
    mixed = st.lists(st.one_of(leaf, leaf, *_nested(flat, good=good)), max_size=2).map(tuple)
    ends = st.sampled_from([Abort(), Abort(caught=True), *[Fail(error) for error in fails]])
    top = st.one_of(leaf, leaf, *_nested(mixed, good=good), ends)
    return st.lists(top, min_size=1, max_size=5).map(tuple)


def _nested(
    deeper: st.SearchStrategy[tuple[object, ...]], *, good: bool
) -> list[st.SearchStrategy[object]]:
    """Operations that hold others; good ones cancel nothing."""
    branches = st.lists(deeper, min_size=2, max_size=3).map(tuple)
    how = st.sampled_from(["all", "threads"] if good else ["gather", "all", "group", "threads"])
    nested: list[st.SearchStrategy[object]] = [
        st.builds(Parallel, how=how, branches=branches, caught=st.booleans()),
        st.builds(Savepoint, ops=deeper, caught=st.booleans()),
    ]
    if not good:
        bounds = st.sampled_from([0.01, 1.0, 20.0])
        nested.append(st.builds(Within, ops=deeper, seconds=bounds, caught=st.booleans()))
    return nested


@st.composite
def programs(draw: st.DrawFn, *, is_async: bool, good: bool = False) -> Program:
    """Random programs; good ones have nothing in them that could leave an effect standing."""
    plan = good_plans() if good else plans()
    labels = draw(st.integers(1, 4))
    program = Program(
        plans={label: draw(plan) for label in range(labels)},
        ops=draw(_ops(labels, good=good)),
        wal=draw(st.sampled_from(["memory", "memory", "threaded", "file"])),
        settle=draw(st.sampled_from([0.0, 0.3])) if not good else 5.0,
    )
    if not good:
        program.after_stuck = draw(st.sampled_from(["halt", "continue"]))
        program.settle_unknown = draw(st.sampled_from(["wait", "wait", "release"]))
        program.cuts = draw(st.sampled_from([(), (), ()]) | _places(40))
        if is_async:
            program.turns = draw(st.sampled_from([(), (), ()]) | _places(120))
        program.fence = draw(st.sampled_from([0, 0, 0, 0, 0, 0]) | st.integers(1, 20))
    return program


def _places(most: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, most), min_size=1, max_size=2, unique=True).map(
        lambda places: tuple(sorted(places))
    )

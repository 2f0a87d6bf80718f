"""Records folded into what a reader knows; never clean when something may stand."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_saga.domain.fold import fold, resolve
from agent_saga.domain.lifecycle import STEP_STANDS, SagaState, ScopeState, StepState
from agent_saga.domain.records import NEEDS, Ev
from agent_saga.domain.views import SagaView, StepView
from agent_saga.errors import WALCorrupt


class Rec(NamedTuple):
    event: str
    data: Any = {}  # noqa: RUF012 - never changed
    step: str = ""
    generation: int = 0
    epoch: int = 1
    saga: str = "s"
    writer: str = "w"
    time: int = 7
    seq: int = 1


class Broken(Rec):
    @property
    def data(self) -> Any:
        raise WALCorrupt("unreadable")


BEGIN = Rec(Ev.SAGA_BEGIN, {"about": {"name": "checkout"}})
CALL = {"call": {"tool": "charge", "semantics": "COMPENSABLE"}}
INVERSE = {"inverse": {"handler": "refund", "kwargs": {}}}
INTENT = Rec(Ev.STEP_INTENT, CALL, "a")
DONE = Rec(Ev.STEP_COMMITTED, INVERSE, "a")
COMMITTED = Rec(Ev.SAGA_COMMITTED, {"unsettled": []})
UNWINDING = Rec(Ev.SAGA_UNWINDING, {"scope": []})
COMPENSATING = Rec(Ev.STEP_COMPENSATING, INVERSE, "a")
COMPENSATED = Rec(Ev.STEP_COMPENSATED, {}, "a")
ROLLED_BACK = Rec(Ev.SAGA_ROLLED_BACK)


def saga(*records: Rec) -> SagaView:
    return fold(records)["s"]


def test_a_committed_saga_is_clean() -> None:
    view = saga(BEGIN, INTENT, DONE, COMMITTED)
    assert view.clean
    assert (view.name, view.state, view.epoch) == ("checkout", SagaState.COMMITTED, 1)
    step = view.steps["a"]
    assert (step.tool, step.semantics, step.inverse) == ("charge", "COMPENSABLE", "refund")
    assert view.handlers_needed() == set()


def test_an_undone_saga_is_clean() -> None:
    view = saga(BEGIN, INTENT, DONE, UNWINDING, COMPENSATING, COMPENSATED, ROLLED_BACK)
    assert view.clean
    assert view.steps["a"].state is StepState.COMPENSATED


@pytest.mark.parametrize(
    "records",
    [
        [BEGIN],
        [BEGIN, INTENT, DONE],
        [BEGIN, INTENT, COMMITTED],
        [BEGIN, INTENT, Rec(Ev.STEP_UNKNOWN, {}, "a"), COMMITTED],
        [BEGIN, INTENT, DONE, UNWINDING],
        [BEGIN, INTENT, DONE, UNWINDING, ROLLED_BACK],
        [BEGIN, INTENT, DONE, UNWINDING, COMPENSATING, ROLLED_BACK],
        [BEGIN, INTENT, UNWINDING, Rec(Ev.STEP_ORPHANED, {}, "a"), ROLLED_BACK],
        [BEGIN, INTENT, DONE, UNWINDING, Rec(Ev.STEP_KEPT, {}, "a"), Rec(Ev.SAGA_PARTIAL)],
        [BEGIN, INTENT, DONE, UNWINDING, Rec(Ev.STEP_KEPT, {}, "a"), ROLLED_BACK],
        [BEGIN, COMMITTED, Rec(Ev.SAGA_REOPENED)],
        [BEGIN, Rec(Ev.SAGA_RELEASED)],
        [COMMITTED],
        [INTENT, DONE],
        [BEGIN, BEGIN, COMMITTED],
        [BEGIN, COMMITTED, INTENT, DONE],
        [BEGIN, Rec("STEP_TELEPORTED", {}, "a"), COMMITTED],
        [BEGIN, DONE, DONE, COMMITTED],
        [BEGIN, INTENT, DONE, Rec(Ev.STEP_INTENT, CALL, "a", generation=0), COMMITTED],
        [BEGIN, INTENT, Rec(Ev.STEP_COMMITTED, {}, "a", generation=3), COMMITTED],
        [BEGIN, Rec(Ev.SAGA_COMMITTED, {"unsettled": ["b"]})],
        [BEGIN, Rec(Ev.SAGA_COMMITTED, {"unsettled": [None]})],
        [BEGIN, Rec(Ev.SCOPE_OPEN, {"path": ["a#1"]}), COMMITTED],
        [BEGIN, Rec(Ev.SCOPE_OPEN, {}), COMMITTED],
        [BEGIN, Broken(Ev.SCOPE_OPEN), COMMITTED],
        [BEGIN, Broken(Ev.SAGA_UNWINDING), ROLLED_BACK],
        [BEGIN, INTENT, DONE, COMMITTED._replace(writer="other")],
        [BEGIN._replace(epoch=2), COMMITTED._replace(epoch=1), COMMITTED._replace(epoch=2)],
    ],
)
def test_never_falsely_clean(records: list[Rec]) -> None:
    assert not saga(*records).clean


def test_a_reversible_step_never_counts_against_it() -> None:
    read = {"call": {"tool": "read", "semantics": "REVERSIBLE"}}
    view = saga(BEGIN, Rec(Ev.STEP_UNKNOWN, read, "a"), COMMITTED)
    assert view.clean
    assert view.standing == []


def test_an_inverse_that_says_nothing_needs_undoing_is_clean() -> None:
    nothing = Rec(Ev.STEP_COMMITTED, {"inverse": {"none": "a dry run"}}, "a")
    assert saga(BEGIN, INTENT, nothing, UNWINDING, ROLLED_BACK).clean


def test_a_step_that_had_no_effect_may_run_again_as_a_new_generation() -> None:
    again = Rec(Ev.STEP_INTENT, CALL, "a", generation=1)
    view = saga(
        BEGIN, INTENT, Rec(Ev.STEP_NOT_APPLIED, {}, "a"), INTENT._replace(step="b"),
        DONE._replace(step="b"), again, DONE._replace(generation=1), COMMITTED,
    )  # fmt: skip
    assert view.clean
    assert list(view.steps) == ["b", "a"]
    assert view.steps["a"].generation == 1


def numbered(*records: Rec) -> list[Rec]:
    return [record._replace(seq=number) for number, record in enumerate(records, 1)]


def taken_over(seq: int, **changes: Any) -> Rec:
    cuts = {"w": {"seq": seq, "hash": ""}}
    return Rec(Ev.SAGA_CLAIM, {"cuts": cuts, "by": "daemon"}, epoch=2, writer="x", **changes)


def test_a_saga_of_several_writers_is_contested_until_all_its_records_are_told_apart() -> None:
    old = numbered(BEGIN, INTENT, DONE)
    new = numbered(
        taken_over(3),
        *[r._replace(epoch=2, writer="x") for r in (UNWINDING, COMPENSATING, COMPENSATED)],
        ROLLED_BACK._replace(epoch=2, writer="x"),
    )
    for records in (old + new, new + old):
        (view,) = fold(records).values()
        assert view.contested
        assert not view.clean
        resolved = resolve("s", records)
        assert resolved.clean
        assert (resolved.epoch, resolved.state) == (2, SagaState.ROLLED_BACK)
        assert resolved.owners == {1: "w", 2: "x"}


def test_a_stale_record_is_never_ignored() -> None:
    late = numbered(BEGIN, INTENT, DONE, Rec(Ev.STEP_INTENT, CALL, "b"))
    new = numbered(
        taken_over(3),
        *[r._replace(epoch=2, writer="x") for r in (UNWINDING, COMPENSATING, COMPENSATED)],
        ROLLED_BACK._replace(epoch=2, writer="x"),
    )
    view = resolve("s", late + new)
    assert view.state is SagaState.ROLLED_BACK
    assert not view.clean
    assert view.faults == ["a stale STEP_INTENT of writer w, sequence 4"]


@pytest.mark.parametrize("cuts", [{"w": 3}, {"w": {"seq": "x"}}, {"w": {}}, {"w": None}])
def test_a_claim_that_cannot_be_read_makes_it_a_humans_case(cuts: Any) -> None:
    claim = Rec(Ev.SAGA_CLAIM, {"cuts": cuts}, epoch=2, writer="x")
    assert not resolve("s", [*numbered(BEGIN, COMMITTED), claim]).clean


def test_closing_is_a_persons_act_that_declares_what_stands() -> None:
    closed = Rec(Ev.SAGA_CLOSED, {"by": "ann"})
    orphan = Rec(Ev.STEP_ORPHANED, {}, "a")
    partial = [BEGIN, INTENT, DONE, UNWINDING, orphan, Rec(Ev.SAGA_PARTIAL)]
    assert not saga(*partial).clean
    assert not saga(*partial, closed).clean
    view = saga(*partial, Rec(Ev.STEP_CLOSED, {"by": "ann"}, "a"), closed)
    assert view.clean
    assert view.handlers_needed() == set()
    kept = [BEGIN, INTENT, DONE, UNWINDING, Rec(Ev.STEP_KEPT, {}, "a"), Rec(Ev.SAGA_PARTIAL)]
    assert saga(*kept, closed).clean


def test_savepoints_have_states_of_their_own() -> None:
    opened = Rec(Ev.SCOPE_OPEN, {"path": ["hotel#1"]})
    left = Rec(Ev.SCOPE_CLOSED, {"path": ["hotel#1"], "result": "LEFT"})
    view = saga(BEGIN, opened, left, COMMITTED)
    assert view.clean
    assert view.scopes == {("hotel#1",): ScopeState.LEFT}
    undoing = Rec(Ev.SAGA_UNWINDING, {"scope": ["hotel#1"]})
    view = saga(BEGIN, opened, undoing)
    assert view.state is SagaState.RUNNING
    stuck = Rec(Ev.SCOPE_CLOSED, {"path": ["hotel#1"], "result": "STUCK"})
    assert not saga(BEGIN, opened, undoing, stuck, COMMITTED).clean
    undone = Rec(Ev.SCOPE_CLOSED, {"path": ["hotel#1"], "result": "UNDONE"})
    assert saga(BEGIN, opened, undoing, undone, COMMITTED).clean


def test_handlers_are_needed_until_nothing_is_left_to_undo() -> None:
    assert saga(BEGIN, INTENT, DONE).handlers_needed() == {"refund"}
    provisional = Rec(Ev.STEP_INTENT, {"provisional": {"handler": "void"}}, "b")
    assert saga(BEGIN, INTENT, DONE, provisional).handlers_needed() == {"refund", "void"}
    assert (
        saga(BEGIN, INTENT, DONE, UNWINDING, COMPENSATING, COMPENSATED).handlers_needed() == set()
    )
    failed = Rec(Ev.STEP_COMPENSATION_FAILED, {}, "a")
    view = saga(BEGIN, INTENT, DONE, UNWINDING, COMPENSATING, failed, Rec(Ev.SAGA_STUCK))
    assert view.handlers_needed() == {"refund"}
    assert [step.id for step in view.standing] == ["a"]


def test_sagas_are_apart_and_a_bad_one_harms_no_other() -> None:
    other = [record._replace(saga="t") for record in (BEGIN, INTENT, DONE, COMMITTED)]
    views = fold([Rec("WRITER_OPEN", saga=""), COMMITTED, *other])
    assert list(views) == ["s", "t"]
    assert views["s"].faults
    assert views["t"].clean


def test_refusals_are_counted() -> None:
    assert saga(BEGIN, Rec(Ev.STEP_REFUSED, {}, "a"), COMMITTED).refused == 1


def test_the_reason_of_a_step_is_the_last_one_that_was_told() -> None:
    told = {"about": {"error": {"type": "TimeoutError", "message": "30 s"}}}
    assert saga(BEGIN, INTENT, Rec(Ev.STEP_UNKNOWN, told, "a")).steps["a"].detail == "30 s"


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["call", "tool", "path", "scope", "about", "inverse", "none", "unsettled"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
RECORDS = st.lists(
    st.builds(
        Rec,
        event=st.sampled_from([*NEEDS, "UNHEARD_OF"]),
        data=ANY | st.just(CALL) | st.just(INVERSE) | st.just({"scope": []}),
        step=st.sampled_from(["a", "b"]),
        generation=st.sampled_from([0, 0, 0, 1]),
        epoch=st.sampled_from([1, 1, 1, 2]),
        writer=st.sampled_from(["w", "w", "w", "x"]),
    ),
    max_size=12,
)


@pytest.mark.property
@given(RECORDS)
def test_no_record_ends_the_fold_and_no_open_step_is_ever_clean(records: list[Rec]) -> None:
    view = saga(BEGIN, *records)
    if view.clean:
        assert view.state in (SagaState.COMMITTED, SagaState.ROLLED_BACK)
        assert not view.faults
        for step in view.steps.values():
            assert step.reversible or step.state not in STEP_STANDS


def test_what_stands_is_judged_for_every_state() -> None:
    for state in StepState:
        step = StepView("a")
        step.state = state
        expected = state in STEP_STANDS
        assert step.stands_after(SagaState.COMMITTED) is expected
        assert step.stands_after(SagaState.ROLLED_BACK) is (
            expected or state is StepState.COMMITTED
        )
        step.semantics = "REVERSIBLE"
        assert not step.stands_after(SagaState.ROLLED_BACK)

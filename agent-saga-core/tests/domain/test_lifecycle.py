"""The lifecycle tables, exhaustively: every pair of a state and a record, written once more."""

from __future__ import annotations

import itertools

import pytest

from agent_saga.domain.lifecycle import (
    STEP_RESTS,
    STEP_STANDS,
    SagaState,
    ScopeState,
    StepState,
    saga_after,
    scope_after,
    step_after,
)
from agent_saga.domain.records import INTENTS, NEEDS, OBSERVATIONS, Ev, Need
from agent_saga.errors import IllegalTransition

STEP = """
STEP_INTENT: NEW NOT_APPLIED COMPENSATED -> INTENT
STEP_ATTEMPT: INTENT UNKNOWN -> INTENT
STEP_COMMITTED: NEW INTENT UNKNOWN ORPHANED UNRESOLVED -> COMMITTED
STEP_NOT_APPLIED: NEW INTENT UNKNOWN ORPHANED UNRESOLVED -> NOT_APPLIED
STEP_UNKNOWN: NEW INTENT -> UNKNOWN
STEP_LATE: INTENT UNKNOWN NOT_APPLIED ORPHANED UNRESOLVED -> COMMITTED
STEP_LATE: COMPENSATING COMPENSATED COMPENSATION_NOT_APPLIED COMPENSATION_UNKNOWN -> UNRESOLVED
STEP_LATE: COMPENSATION_FAILED -> UNRESOLVED
STEP_COMPENSATING: COMMITTED UNKNOWN COMPENSATION_NOT_APPLIED -> COMPENSATING
STEP_COMPENSATING: COMPENSATION_UNKNOWN COMPENSATION_FAILED ORPHANED UNRESOLVED -> COMPENSATING
STEP_COMPENSATED: COMPENSATING COMPENSATION_UNKNOWN COMPENSATION_FAILED -> COMPENSATED
STEP_COMPENSATED: COMPENSATION_NOT_APPLIED UNRESOLVED -> COMPENSATED
STEP_COMPENSATION_NOT_APPLIED: COMPENSATING COMPENSATION_UNKNOWN -> COMPENSATION_NOT_APPLIED
STEP_COMPENSATION_UNKNOWN: COMPENSATING -> COMPENSATION_UNKNOWN
STEP_COMPENSATION_FAILED: COMPENSATING COMPENSATION_NOT_APPLIED -> COMPENSATION_FAILED
STEP_ORPHANED: COMMITTED UNKNOWN INTENT UNRESOLVED -> ORPHANED
STEP_UNRESOLVED: INTENT COMMITTED UNKNOWN COMPENSATION_NOT_APPLIED -> UNRESOLVED
STEP_UNRESOLVED: ORPHANED UNRESOLVED -> UNRESOLVED
STEP_KEPT: COMMITTED UNRESOLVED -> KEPT
STEP_CLOSED: INTENT UNKNOWN COMPENSATION_NOT_APPLIED COMPENSATION_UNKNOWN -> CLOSED
STEP_CLOSED: COMPENSATION_FAILED ORPHANED UNRESOLVED -> CLOSED
"""
SAGA = """
SAGA_BEGIN: NEW -> RUNNING
SAGA_COMMITTED: RUNNING -> COMMITTED
SAGA_SUSPENDED: RUNNING -> SUSPENDED
SAGA_UNDONE_TO: UNWINDING PARTIAL STUCK -> COMMITTED
SAGA_RESUMED: RUNNING SUSPENDED RELEASED -> RUNNING
SAGA_RELEASED: RUNNING UNWINDING -> RELEASED
SAGA_UNWINDING: RUNNING SUSPENDED RELEASED COMMITTED REOPENED PARTIAL STUCK -> UNWINDING
SAGA_ROLLED_BACK: UNWINDING -> ROLLED_BACK
SAGA_PARTIAL: UNWINDING -> PARTIAL
SAGA_STUCK: UNWINDING -> STUCK
SAGA_REOPENED: ROLLED_BACK COMMITTED -> REOPENED
SAGA_CLOSED: COMMITTED ROLLED_BACK PARTIAL STUCK REOPENED RELEASED -> CLOSED
"""
SCOPE = """
OPEN: NEW UNDONE PARTIAL STUCK -> OPEN
LEFT: OPEN -> LEFT
UNWINDING: OPEN LEFT -> UNWINDING
UNDONE: UNWINDING -> UNDONE
PARTIAL: UNWINDING -> PARTIAL
STUCK: UNWINDING -> STUCK
"""


def table(text, states):
    listed = {}
    for line in text.strip().splitlines():
        event, _, rule = line.partition(": ")
        before, _, after = rule.partition(" -> ")
        for state in before.split():
            assert (states[state], event) not in listed
            listed[states[state], event] = states[after]
    return listed


STEPS, SAGAS, SCOPES = table(STEP, StepState), table(SAGA, SagaState), table(SCOPE, ScopeState)
for _state in SagaState:
    if _state is not SagaState.NEW:
        SAGAS[_state, Ev.SAGA_CLAIM] = _state
EVENTS = sorted({value for name, value in vars(Ev).items() if name.isupper()})


@pytest.mark.guarantee("LIFE-1")
@pytest.mark.parametrize("event", EVENTS)
def test_every_record_of_a_step_follows_only_where_the_table_lists_it(event):
    for state in StepState:
        check(step_after, state, event, STEPS)


@pytest.mark.guarantee("LIFE-1")
@pytest.mark.parametrize("event", EVENTS)
def test_every_record_of_a_saga_follows_only_where_the_table_lists_it(event):
    for state in SagaState:
        check(saga_after, state, event, SAGAS)


@pytest.mark.guarantee("LIFE-1")
@pytest.mark.parametrize("event", ["OPEN", "LEFT", "UNWINDING", "UNDONE", "PARTIAL", "STUCK", "X"])
def test_every_event_of_a_savepoint_follows_only_where_the_table_lists_it(event):
    for state in ScopeState:
        check(scope_after, state, event, SCOPES)


def check(after, state, event, listed):
    wanted = listed.get((state, event))
    if wanted is None:
        with pytest.raises(IllegalTransition):
            after(state, event)
    else:
        assert after(state, event) is wanted


@pytest.mark.parametrize("event", ["", "STEP_REFUSED", "STEP_INVENTED", "step_intent", None])
def test_an_event_that_the_table_does_not_know_follows_nothing(event):
    for state in StepState:
        with pytest.raises(IllegalTransition):
            step_after(state, event)


def test_every_step_is_either_at_rest_or_may_stand_but_never_both():
    assert not STEP_RESTS & STEP_STANDS
    assert set(StepState) - STEP_RESTS - STEP_STANDS <= {StepState.NEW, StepState.CLOSED}


def test_an_inverse_never_runs_from_a_state_in_which_it_has_succeeded_or_nothing_happened():
    never = (StepState.COMPENSATED, StepState.NOT_APPLIED, StepState.KEPT, StepState.CLOSED)
    for state in (*never, StepState.NEW, StepState.INTENT, StepState.COMPENSATING):
        assert (state, Ev.STEP_COMPENSATING) not in STEPS


def test_that_an_inverse_was_run_is_never_hidden_by_a_halt():
    for state in (StepState.COMPENSATION_UNKNOWN, StepState.COMPENSATION_FAILED):
        assert (state, Ev.STEP_UNRESOLVED) not in STEPS


def test_every_state_but_the_first_can_be_reached():
    for listed, first in ((STEPS, StepState.NEW), (SAGAS, SagaState.NEW), (SCOPES, ScopeState.NEW)):
        reached = {first}
        for _ in range(10):
            reached |= {after for (before, _), after in listed.items() if before in reached}
        assert reached == set(type(first))


def test_nothing_of_a_step_leads_out_of_what_a_human_closed():
    for listed, closed in ((STEPS, StepState.CLOSED), (SAGAS, SagaState.CLOSED)):
        leaving = [a for (b, event), a in listed.items() if b is closed and a is not closed]
        assert leaving == []


def test_every_record_says_what_it_needs():
    assert set(NEEDS) == set(EVENTS)
    assert set(EVENTS) >= INTENTS
    assert not INTENTS & OBSERVATIONS
    assert NEEDS[Ev.STEP_INTENT] is NEEDS[Ev.STEP_COMPENSATING] is Need.DURABLE
    assert NEEDS[Ev.SAGA_COMMITTED] is NEEDS[Ev.SAGA_ROLLED_BACK] is Need.DURABLE


def test_states_are_told_by_their_names():
    for state in itertools.chain(StepState, SagaState, ScopeState):
        assert state.name == state.value

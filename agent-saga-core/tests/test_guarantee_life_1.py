"""LIFE-1: the lifecycle tables are the only way from one state to the next."""

from __future__ import annotations

import pytest

from agent_saga.domain.lifecycle import (
    SagaState,
    ScopeState,
    StepState,
    saga_after,
    scope_after,
    step_after,
)
from agent_saga.domain.records import Ev
from agent_saga.errors import IllegalTransition


@pytest.mark.guarantee("LIFE-1")
def test_a_compensated_step_is_not_compensated_again():
    with pytest.raises(IllegalTransition):
        step_after(StepState.COMPENSATED, Ev.STEP_COMPENSATING)


@pytest.mark.guarantee("LIFE-1")
def test_a_saga_that_unwinds_cannot_commit():
    with pytest.raises(IllegalTransition):
        saga_after(SagaState.UNWINDING, Ev.SAGA_COMMITTED)


@pytest.mark.guarantee("LIFE-1")
def test_an_undone_savepoint_is_not_left():
    with pytest.raises(IllegalTransition):
        scope_after(ScopeState.UNDONE, "LEFT")

"""States as people read them: where a saga stands, and why a step of it may stand."""

from __future__ import annotations

from typing import Final

from agent_saga.domain.lifecycle import SagaState, StepState

__all__ = ["CLOSED_BY_HAND", "SAGA_WORDS", "STEP_WORDS"]

SAGA_WORDS: Final = {
    SagaState.NEW: "has no beginning in this log",
    SagaState.RUNNING: "has not ended",
    SagaState.SUSPENDED: "is suspended",
    SagaState.COMMITTED: "was committed",
    SagaState.RELEASED: "was left to recovery",
    SagaState.UNWINDING: "is being undone",
    SagaState.ROLLED_BACK: "was undone",
    SagaState.PARTIAL: "was undone, but something stands",
    SagaState.STUCK: "could NOT be undone completely",
    SagaState.CLOSED: "was closed by a person",
    SagaState.REOPENED: "was reopened by a late arrival",
}
"""Each state of a saga, as the rest of a sentence."""

STEP_WORDS: Final = {
    StepState.INTENT: "it may have taken effect",
    StepState.UNKNOWN: "it may have taken effect",
    StepState.COMMITTED: "it took effect after everything else was undone",
    StepState.COMPENSATING: "its inverse may or may not have succeeded",
    StepState.COMPENSATION_NOT_APPLIED: "its inverse had no effect",
    StepState.COMPENSATION_UNKNOWN: "its inverse may or may not have succeeded",
    StepState.COMPENSATION_FAILED: "its inverse failed",
    StepState.ORPHANED: "it has no usable inverse",
    StepState.UNRESOLVED: "undoing did not reach it",
}
"""Each state in which a step may stand, as a reason."""

CLOSED_BY_HAND: Final = "a person has dealt with it"
"""Why undoing leaves a step as it is that was closed in the queue."""

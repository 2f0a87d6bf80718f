"""What a log says of one saga: its state, its steps, its savepoints, and what is wrong with it.

`clean` is judged here and nowhere else for a reader: true only when the saga has ended, nothing may
stand that was neither undone nor declared, and no record of it is faulty.
"""

from __future__ import annotations

from agent_saga.domain.lifecycle import STEP_STANDS, SagaState, ScopeState, StepState

__all__ = ["SCOPE_WELL", "SagaView", "StepView"]

_ENDED_WELL = frozenset({SagaState.COMMITTED, SagaState.ROLLED_BACK, SagaState.CLOSED})
_DONE = frozenset({StepState.COMPENSATED, StepState.NOT_APPLIED, StepState.KEPT, StepState.CLOSED})
SCOPE_WELL = frozenset({ScopeState.LEFT, ScopeState.UNDONE})
"""States in which a savepoint leaves nothing open in a committed saga."""


class StepView:
    """One step, as the log tells it.

    Attributes:
        id, generation: which step.
        state: where it stands.
        tool, semantics: empty when the log does not say, or no longer.
        inverse: the handler's name of its inverse; empty when it has none by name.
        nothing: why nothing needs undoing, when its inverse says so.
        detail: the last reason or error that was recorded for it.
        approved_by: who let it through.
    """

    __slots__ = (
        "approved_by",
        "detail",
        "generation",
        "id",
        "inverse",
        "nothing",
        "semantics",
        "state",
        "tool",
    )

    def __init__(self, step: str) -> None:
        self.id = step
        self.generation = 0
        self.state = StepState.NEW
        self.tool = self.semantics = self.inverse = ""
        self.nothing = self.detail = self.approved_by = ""

    @property
    def reversible(self) -> bool:
        """Whether leaving it undone harms nobody."""
        return self.semantics == "REVERSIBLE"

    def stands_after(self, saga: SagaState) -> bool:
        """Say whether its effect may stand, undeclared, in a saga of this state."""
        if self.reversible:
            return False
        if self.state is StepState.COMMITTED:
            return saga is SagaState.ROLLED_BACK and not self.nothing
        return self.state in STEP_STANDS


class SagaView:
    """One saga, as the log tells it.

    Attributes:
        id, name: which saga.
        key: the `saga_id` that its program gave; empty if it gave none.
        state: where it stands.
        epoch: the highest epoch that was seen.
        began, last: times of its first and last record, in microseconds since the epoch.
        steps: the steps by id, in the order in which they were announced.
        scopes: the savepoints' states by path.
        refused: how many calls the gate refused.
        owners: the writer of each epoch.
        contested: several writers wrote about it, so its state is known only from all its records
            together (`fold.resolve`).
        faults: what is wrong with its records; each makes it a human's case.
        resume_grace: for how many seconds recovery holds it after a crash; None if it does not.
        undo_to: up to which step it is being undone, or was left undone; empty for all of it.
        undo_only: the steps that this is about; None for all of them.
        deadline: until when it waits, if it is suspended, in microseconds since the epoch; or None.
        at_deadline: what happens to it then: "undo", or "hold" for a human to decide.
        claimed_for: why it was claimed last; empty if its own program has it.
    """

    __slots__ = (
        "at_deadline",
        "began",
        "claimed_for",
        "contested",
        "deadline",
        "epoch",
        "faults",
        "id",
        "key",
        "last",
        "name",
        "owners",
        "refused",
        "resume_grace",
        "scopes",
        "state",
        "steps",
        "undo_only",
        "undo_to",
    )

    def __init__(self, saga: str) -> None:
        self.id = saga
        self.name = self.key = self.claimed_for = self.undo_to = self.at_deadline = ""
        self.undo_only: frozenset[str] | None = None
        self.deadline: int | None = None
        self.resume_grace: float | None = None
        self.state = SagaState.NEW
        self.epoch = self.began = self.last = self.refused = 0
        self.steps: dict[str, StepView] = {}
        self.scopes: dict[tuple[str, ...], ScopeState] = {}
        self.owners: dict[int, str] = {}
        self.contested = False
        self.faults: list[str] = []

    @property
    def ended(self) -> bool:
        """Whether it reached an end that nothing has reopened."""
        return self.state in _ENDED_WELL

    @property
    def held_for(self) -> float | None:
        """For how many seconds recovery leaves it to its program, if its owner is dead; or None.

        Not once somebody has claimed it for anything else than to go on with it.
        """
        waits = self.state is SagaState.RUNNING and self.claimed_for in ("", "resume")
        return self.resume_grace if waits else None

    @property
    def standing(self) -> list[StepView]:
        """The steps whose effect may stand without having been declared to."""
        return [step for step in self.steps.values() if step.stands_after(self.state)]

    @property
    def kept(self) -> list[StepView]:
        """The steps that stand for ever, as a human approved."""
        return [step for step in self.steps.values() if step.state is StepState.KEPT]

    @property
    def clean(self) -> bool:
        """True when it ended, nothing may stand undeclared, and every record of it is in order."""
        scopes_well = self.state is SagaState.ROLLED_BACK or all(
            state in SCOPE_WELL for state in self.scopes.values()
        )
        closed = self.state is SagaState.CLOSED
        well = self.ended and (closed or (scopes_well and not self.kept))
        return well and not self.contested and not self.faults and not self.standing

    def handlers_needed(self) -> set[str]:
        """Return the names of the inverses that undoing this saga may still need."""
        if self.ended and not self.standing:
            return set()
        only = self.undo_only
        steps = [s for s in self.steps.values() if only is None or s.id in only]
        return {step.inverse for step in steps if step.state not in _DONE} - {""}

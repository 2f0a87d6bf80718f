"""The bounds of the engine's waits, and what it does at them."""

from __future__ import annotations

from msgspec import Struct

from agent_saga.domain.durations import ANSWER_WITHIN


class Timing(Struct, frozen=True):
    """Bounds and waits.

    Attributes:
        settle: seconds that unwinding and leaving wait for steps in flight. step_timeout: seconds
            for one attempt of a tool that names none; None is no bound. undo_timeout: seconds for
            one attempt of an inverse. undo_bounded: an inverse is given up at the end of its time
            also where that means to run it on a thread of the pool (a synchronous one in a
            synchronous boundary).
        undo_stops: an interrupt that is kept ends undoing between two inverses.
        undo_attempts: how often an inverse is tried at most.
        undo_delay: seconds before an inverse's second attempt, doubling.
        settle_after: seconds after which a call without an answer can no longer arrive.
        wait_to_settle: unwinding waits `settle_after` out; else the saga is left to recovery.
        after_stuck: "halt" leaves the rest unresolved when an inverse fails for good, or is not
            registered here; "continue" goes on.
        cancel_grace: seconds that a cancelled call is given to end.
        approval: seconds that a human has to answer, where the gate does not say.
    """

    settle: float = 30.0
    step_timeout: float | None = None
    undo_timeout: float = 60.0
    undo_bounded: bool = False
    undo_stops: bool = False
    undo_attempts: int = 3
    undo_delay: float = 0.2
    settle_after: float = 60.0
    wait_to_settle: bool = True
    after_stuck: str = "halt"
    cancel_grace: float = 5.0
    approval: float = ANSWER_WITHIN

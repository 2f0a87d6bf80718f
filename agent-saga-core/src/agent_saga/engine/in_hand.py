"""What goes on with a step or a scope while it is undone, and who waits for that.

Rules of this part:

- A boundary and a savepoint in it can be undone at the same time: by two tasks, or two threads. One
  of them at a time has a step in hand; the other one waits, bounded, and looks at it afresh.
- Whoever has a step in hand waits for nobody else who undoes.
- Leaving a boundary, and the end of its undoing, wait for savepoints in it that are being undone.
  If one of these gives the saga up to recovery meanwhile, nothing more is done or recorded here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent_saga.engine.requests import Protocol, StepEnded
from agent_saga.errors import SagaUnwinding

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.scope import Scope
    from agent_saga.engine.step import Step


class InHand:
    """Something that goes on here, and that others may wait for.

    Attributes:
        saga, scope: where.
        in_flight: it goes on.
        waiters: called when it has ended.
    """

    __slots__ = ("in_flight", "saga", "scope", "waiters")

    def __init__(self, scope: Scope) -> None:
        self.saga = scope.saga
        self.scope = scope
        self.in_flight = True
        self.waiters: list[Callable[[], None]] | None = None

    def ended(self) -> None:
        """Note that it has ended, and wake everybody who waits for that."""
        with self.saga.lock:
            self.in_flight = False  # from now on nobody is added to those who wait
        if self.waiters is not None:
            waiters, self.waiters = self.waiters, None
            for wake in waiters:
                wake()


def undoing(scope: Scope) -> InHand:
    """Note that a scope is being undone from now on, until what is returned has ended."""
    mine = InHand(scope)
    saga = scope.saga
    with saga.lock:
        saga.undoings = [*(one for one in saga.undoings if one.in_flight), mine]
    return mine


def undoings_in(scope: Scope) -> list[InHand]:
    """Return what undoes savepoints inside a scope now."""
    found = [one for one in scope.saga.undoings if one.in_flight and one.scope is not scope]
    return [one for one in found if one.scope.within(scope)]


def take(step: Step, mine: InHand, other: InHand) -> Protocol[BaseException | None]:
    """Wait, bounded, until a step can be taken in hand; return what cut the waiting short, or None.

    Where the time is up somebody else has it still.

    Args:
        step: the step.
        mine: what it is to be in hand of.
        other: who has it.
    """
    waited: InHand | None = other
    while waited is not None:
        cut = yield from ended([waited], step.saga)
        if cut is not None or waited.in_flight:
            return cut
        waited = taken(step, mine)
    return None


def taken(step: Step, mine: InHand) -> InHand | None:
    """Take a step in hand; return who has it where that is somebody else."""
    with step.saga.lock:
        other = step.hand
        if other is not None and other.in_flight:
            return other
        step.hand = mine
        return None


def ended(going: Sequence[Step | InHand], saga: Saga) -> Protocol[BaseException | None]:
    """Wait, bounded, until all of these have ended; return what cut the waiting short, or None."""
    return (yield from ended_by(_deadline(saga), going, saga))


def check_kept(saga: Saga) -> None:
    """Refuse to go on with a saga that what undid another part of it has given up.

    Raises:
        SagaUnwinding: so it is.
    """
    if saga.released:
        raise SagaUnwinding("It was left to recovery meanwhile.")


def going_on(scope: Scope) -> Protocol[BaseException | None]:
    """Wait, bounded, for what goes on in a scope: its steps, and what undoes savepoints in it.

    The end of one may be the beginning of another: each of them is waited for once.
    """
    saga = scope.saga
    deadline = _deadline(saga)
    waited: list[Step | InHand] = []
    while True:
        going: list[Step | InHand] = [*saga.in_flight_of(scope), *undoings_in(scope)]
        new = [one for one in going if one not in waited]
        if not new:
            return None
        cut = yield from ended_by(deadline, new, saga)
        if cut is not None:
            return cut
        waited += new


def _deadline(saga: Saga) -> float:
    return saga.engine.clock.monotonic() + saga.engine.timing.settle


def ended_by(
    deadline: float, going: Sequence[Step | InHand], saga: Saga
) -> Protocol[BaseException | None]:
    """Wait until all of these have ended, at most until then; return what cut the waiting short."""
    for one in going:
        left = max(deadline - saga.engine.clock.monotonic(), 0.0)
        cut: BaseException | None = yield StepEnded(one, left)
        if cut is not None:
            return cut
    return None

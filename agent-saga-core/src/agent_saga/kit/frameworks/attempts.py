"""Which recorded steps a call may be, when a framework, a model or a program does something again.

Rules of this part, which each package applies to its own keys:

- A call that equals one without a known outcome is that one: a blind retry, by whomever.
- Every effect stands that is not known to be undone or never to have come: also one that an undone
  savepoint had to leave behind. A call that equals it is not made again.
- What an earlier part of a run did, and the part that went on neither knows nor repeats, is not
  passed over: the run fails, and everything is undone. So is what runs did inside a boundary of the
  program, when that is gone on with.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import StepState
from agent_saga.engine.replay import Replay
from agent_saga.errors import ReplayConflict

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool

A = TypeVar("A")

OPEN: Final = (StepState.UNKNOWN, StepState.INTENT)
STANDS: Final = frozenset(StepState) - {
    *(StepState.NEW, StepState.NOT_APPLIED, StepState.COMPENSATED),
}
_LEFT_BEHIND = STANDS - {*OPEN, StepState.COMMITTED, StepState.KEPT}


def full_key(tool: Tool, key: str) -> identity.StepKey:
    """Return the engine's key of a step from a package's own key of it."""
    return identity.given_key(("",), tool.name, key)


def equal(step: Step, tool: Tool, mac: bytes) -> bool:
    """Say whether a step is of a tool and has arguments with a fingerprint."""
    return step.tool.name == tool.name and step.mac == mac


def stands(step: Step) -> bool:
    """Say whether a step left an effect in the world, or may have."""
    return step.state in STANDS and not step.tool.reversible


def unsettled(step: Step) -> bool:
    """Say whether nobody knows how a step ended, so that an equal call is this step.

    So it is also where its call was given up, and goes on in a thread.
    """
    tool = step.tool
    given_up = not step.in_flight or step.parked
    return step.state in OPEN and given_up and not (tool.repeatable or tool.reversible)


def unnamed(saga: Saga) -> list[Step]:
    """Return what the program itself called in a saga, and does not know the end of."""
    left = tuple(saga.unsettled.values())
    return [step for step in left if not step.keyed and unsettled(step)]


def another_way(steps: Iterable[Step], part: str, fix: str) -> ReplayConflict:
    """Return the error of a run that did not repeat what an earlier part of it had done.

    Args:
        steps: what it did.
        part: the earlier part, in words.
        fix: what to do.
    """
    names = ", ".join(sorted({step.tool.name for step in steps}))
    return ReplayConflict(f"{part} called {names}; the new attempt took another way.", fix=fix)


def tell_left_out(left: Callable[[Saga], Iterable[Step]]) -> None:
    """Let a program's boundary that is gone on with fail where what runs did in it is left out.

    Args:
        left: returns what stands of the steps of a saga that the package named, and that no call
            has come to since the saga was gone on with.
    """
    Replay.others.append(left)


class Left:
    """What earlier parts of a run did, and the part that goes on has not come to yet.

    A step is given again once; but one that was left behind when others were undone has no result
    to give, and remains what every equal call is.

    Args:
        steps: what was done.
    """

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._ids = {step.id for step in steps}
        self._met: set[str] = set()

    def __contains__(self, step: Step) -> bool:
        return step.id in self._ids

    def add(self, step: Step) -> None:
        """Let a step be given again."""
        self._ids.add(step.id)

    def take(self, step: Step) -> None:
        """Note that a call is a step."""
        self._met.add(step.id)
        if step.state not in _LEFT_BEHIND:
            self._ids.discard(step.id)

    def unmet(self, saga: Saga) -> list[Step]:
        """Return what stands of it, and that no call has come to."""
        ids = self._ids - self._met
        return [s for s in tuple(saga.keyed.values()) if s.id in ids and stands(s)]


class Runs:
    """Which run it is that begins at a place inside a boundary.

    Models may use the same call ids in every run, so the place of a call in the second run of a
    boundary, or of a tool's body, has a part of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: Counter[tuple[str, ...]] = Counter()

    def begin(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return where the calls of a run are that begins now.

        Args:
            path: where it begins: the calls that it is made inside of.
        """
        with self._lock:
            self._begun[path] += 1
            number = self._begun[path]
        return path if number == 1 else (*path, f"run {number}")


class PerSaga(Generic[A]):
    """One object for each saga; it keeps no saga alive."""

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[Saga, A] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, saga: Saga, make: Callable[[], A], *, anew: bool = False) -> A:
        """Return a saga's object.

        Args:
            saga: the engine's saga.
            make: makes the object.
            anew: also where there is one already: the saga is gone on with.
        """
        with self._lock:
            found = self._found.get(saga)
            if found is None or anew:
                found = self._found[saga] = make()
            return found

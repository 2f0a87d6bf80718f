"""Which earlier step a call is, when a graph runs something again.

Rules of this part, in this order:

1. The same key is the same step.
2. A call that equals one without a known outcome is that one: a blind retry, by whomever, also of
   what the program called itself.
3. After a resume: an equal call with the same id, recorded in a superstep that the graph's history
   does not hold as done, is that one. So an edited state repeats nothing.
4. After a resume: an equal call recorded in a superstep that the graph has lost altogether is that
   one, in order, whatever its id: the checkpoint was lost, and the model was asked anew.
   What was undone meanwhile is none of these: the call is a new step.
5. What an earlier, lost attempt did and the new one did not repeat is not passed over: the run
   fails, and everything is undone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import StepState
from agent_saga.errors import ReplayConflict
from agent_saga_langgraph import place as places

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool

_OPEN = (StepState.UNKNOWN, StepState.INTENT)
_STANDS = (StepState.UNKNOWN, StepState.INTENT, StepState.COMMITTED)


class History:
    """What a graph's checkpoints say about a thread.

    Args:
        done: checkpoints whose superstep was completed.
        known: checkpoints that lead to the present one, and that one, save those whose waiting work
            was dropped.
    """

    __slots__ = ("done", "known")

    def __init__(self, done: Iterable[str] = (), known: Iterable[str] = ()) -> None:
        self.done = frozenset(done)
        self.known = frozenset(known)


class Attempts:
    """How this package counts the steps of one saga; it keeps no step and no saga alive.

    Args:
        saga: the engine's saga.
        history: of the thread when the saga was resumed.
    """

    def __init__(self, saga: Saga, history: History | None = None) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[object, ...]] = Counter()
        self._history = history or History()
        self._left = {step.id for step in saga.keyed.values() if self._may_return(step)}

    def key(self, saga: Saga, tool: Tool, call: str | None, mac: bytes) -> str | None:
        """Return the key of a call; None outside a graph, and for a step without one that it is.

        Args:
            saga: whose step it is.
            tool: what is called.
            call: the model's id of the call, or None.
            mac: the arguments' fingerprint.
        """
        place = places.here()
        if place is None:
            return None
        with self._lock:
            key = self._own_key(place, tool, call, mac)
            step = saga.keyed.get(identity.given_key(("",), tool.name, key))
            if step is None and any(_equal(one, tool, mac) for one in _unnamed(saga)):
                return None
            if step is None:
                step = self._earlier(saga, place, tool, call, mac)
            if step is None:
                return key
            self._left.discard(step.id)
            return step.key[-1]

    def check_repeated(self, saga: Saga) -> None:
        """Refuse to go on as if what a lost attempt did had not happened.

        Raises:
            ReplayConflict: a step of it stands, and the new attempt did not repeat it.
        """
        left = [step for step in self._left_of(saga) if self._lost(step) and step.state in _STANDS]
        if left:
            names = ", ".join(sorted({step.tool.name for step in left}))
            raise ReplayConflict(
                f"An earlier attempt of this run, whose checkpoint was lost, called {names}; "
                "the new attempt took another way.",
                fix="Begin again. durability='sync' keeps each checkpoint before the next effect.",
            )

    def _own_key(self, place: places.Place, tool: Tool, call: str | None, mac: bytes) -> str:
        if call:
            return places.key_of_call(place, call, mac)
        attempt = (*place, tool.name, mac)
        self._counts[attempt] += 1
        return places.key_of_task(place, self._counts[attempt], mac)

    def _earlier(
        self, saga: Saga, place: places.Place, tool: Tool, call: str | None, mac: bytes
    ) -> Step | None:
        for step in tuple(saga.keyed.values()):
            if _equal(step, tool, mac) and _unsettled(step):
                return step
        path = places.path(place.namespace)
        left = [step for step in self._left_of(saga) if _equal(step, tool, mac)]
        for step in left:
            mark = places.read(step.key[-1])
            if mark is not None and call and (mark.path, mark.caller) == (path, call):
                return step
        return next((step for step in left if self._lost(step)), None)

    def _left_of(self, saga: Saga) -> list[Step]:
        return [step for step in tuple(saga.keyed.values()) if step.id in self._left]

    def _may_return(self, step: Step) -> bool:
        mark = places.read(step.key[-1])
        return (
            mark is not None
            and step.state in _STANDS
            and not step.tool.reversible
            and mark.checkpoint not in self._history.done
        )

    def _lost(self, step: Step) -> bool:
        mark = places.read(step.key[-1])
        return mark is not None and mark.checkpoint not in self._history.known


def _equal(step: Step, tool: Tool, mac: bytes) -> bool:
    return step.tool.name == tool.name and step.mac == mac


def _unnamed(saga: Saga) -> list[Step]:
    """Return what the program itself called, and does not know the end of."""
    left = tuple(saga.unsettled.values())
    return [step for step in left if not step.keyed and _unsettled(step)]


def _unsettled(step: Step) -> bool:
    tool = step.tool
    return step.state in _OPEN and not step.in_flight and not (tool.repeatable or tool.reversible)


_attempts: WeakKeyDictionary[Saga, Attempts] = WeakKeyDictionary()
_lock = threading.Lock()


def attempts_of(saga: Saga, history: History | None = None) -> Attempts:
    """Return how this package counts the steps of a saga; begun anew when a history is given."""
    with _lock:
        found = _attempts.get(saga)
        if found is None or history is not None:
            found = _attempts[saga] = Attempts(saga, history)
        return found

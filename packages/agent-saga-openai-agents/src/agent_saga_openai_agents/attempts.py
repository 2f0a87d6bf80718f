"""Which earlier step a call is, when a model calls something again or a run is gone on with.

Rules of this part, in this order:

1. The same key is the same step.
2. A call that equals one without a known outcome is that one: a blind retry, by whomever, also of
   what the program called itself.
3. In a saga that is gone on with: an equal call that was recorded and stands, and whose answer the
   run's history does not hold, is that one, in order, whatever its id: the answer was lost, and
   the model was asked anew. What was undone meanwhile is none of these.
4. What an earlier, lost attempt did and the new one neither knows nor repeats is not passed over:
   the run fails, and everything is undone.
"""

from __future__ import annotations

import threading
from collections.abc import Container
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import StepState
from agent_saga.errors import ReplayConflict
from agent_saga_openai_agents import calls

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool

_OPEN = (StepState.UNKNOWN, StepState.INTENT)
_STANDS = (StepState.UNKNOWN, StepState.INTENT, StepState.COMMITTED)


class Attempts:
    """Which steps of a saga may return; it keeps no step and no saga alive.

    Args:
        saga: the engine's saga.
        known: the call ids that are answered in the history that the run begins with.
        kept: the ids of steps whose answers the run's state holds, whatever their calls.
    """

    def __init__(self, saga: Saga, known: Container[str] = (), kept: Container[str] = ()) -> None:
        self._lock = threading.Lock()
        recorded = [s for s in saga.keyed.values() if s.state in _STANDS and not s.tool.reversible]
        self._left = {s.id for s in recorded if s.id not in kept and not _is_known(s, known)}

    def key(
        self, saga: Saga, tool: Tool, call: calls.Call, run: calls.Run, mac: bytes
    ) -> str | None:
        """Return the key of a call; None for a step without one that it is.

        Args:
            saga: whose step it is.
            tool: what is called.
            call: the call.
            run: the run that it is made in.
            mac: the arguments' fingerprint.
        """
        key = calls.key_of(call, run, mac)
        with self._lock:
            step = saga.keyed.get(identity.given_key(("",), tool.name, key))
            if step is None and any(_equal(one, tool, mac) for one in _unnamed(saga)):
                return None
            if step is None:
                step = self._earlier(saga, tool, mac)
            if step is None:
                return key
            self._left.discard(step.id)
            return step.key[-1]

    def _earlier(self, saga: Saga, tool: Tool, mac: bytes) -> Step | None:
        equal = [step for step in tuple(saga.keyed.values()) if _equal(step, tool, mac)]
        unsettled = [s for s in equal if _unsettled(s)]
        lost = [s for s in equal if s.id in self._left]
        return next(iter([*unsettled, *lost]), None)

    def began_inside(self, saga: Saga, path: calls.Path) -> bool:
        """Say whether steps of an earlier attempt were made inside a call."""
        marks = [calls.read(step.key[-1]) for step in tuple(saga.keyed.values())]
        return any(mark is not None and mark.path[: len(path)] == path for mark in marks)

    def check_repeated(self, saga: Saga, known: Container[str]) -> None:
        """Refuse to go on as if what a lost attempt did had not happened.

        Args:
            saga: the saga.
            known: the call ids that are answered in the history that the run ended with.

        Raises:
            ReplayConflict: a step of it stands, and the new attempt did not repeat it.
        """
        if saga.read_only:
            return
        steps = [step for step in tuple(saga.keyed.values()) if step.id in self._left]
        left = [step for step in steps if step.state in _STANDS and not _is_known(step, known)]
        if left:
            names = ", ".join(sorted({step.tool.name for step in left}))
            raise ReplayConflict(
                f"An earlier attempt of this run, which ended without its answers, called {names}; "
                "the new attempt took another way.",
                fix="Begin again. With a session a run that died is gone on with where it was.",
            )


def standing(saga: Saga) -> list[str]:
    """Return the ids of the steps of a saga that stand, and that its calls named."""
    return [step.id for step in tuple(saga.keyed.values()) if step.state in _STANDS]


def _is_known(step: Step, known: Container[str]) -> bool:
    mark = calls.read(step.key[-1])
    return mark is None or mark.outermost in known


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


def attempts_of(
    saga: Saga, known: Container[str] | None = None, kept: Container[str] = ()
) -> Attempts:
    """Return which steps of a saga may return; begun anew when a history is given."""
    with _lock:
        found = _attempts.get(saga)
        if found is None or known is not None:
            found = _attempts[saga] = Attempts(saga, known or (), kept)
        return found

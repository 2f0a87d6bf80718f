"""Which earlier step a call is, when something is called again or a run is gone on with.

Rules of this part, in this order:

1. A model's call with the same key is the same step.
2. A call that equals one without a known outcome is that one: a blind retry, by whomever.
3. In a saga that is gone on with: so is an equal call that was recorded and stands, whatever its
   id, unless the run's state tells of it. What an earlier process did and the run neither knows nor
   repeats is not passed over: the run fails, and everything is undone.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Container
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import StepState
from agent_saga.errors import ReplayConflict
from agent_saga.kit.frameworks.attempts import Runs
from agent_saga_autogen import calls

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool

_OPEN = (StepState.UNKNOWN, StepState.INTENT)
_STANDS = (*_OPEN, StepState.COMMITTED, StepState.KEPT)


class Attempts:
    """Which steps of a saga may return; it keeps no step and no saga alive.

    Args:
        saga: the engine's saga.
        kept: the ids of steps that the run's state knows of.

    Attributes:
        runs: which run it is that begins inside a boundary of the program's own.
    """

    def __init__(self, saga: Saga, kept: Container[str] = ()) -> None:
        self._lock = threading.Lock()
        self.runs = Runs()
        recorded = [s for s in saga.keyed.values() if s.state in _STANDS and not s.tool.reversible]
        self._left = {step.id for step in recorded if step.id not in kept}
        self._numbers: Counter[tuple[str, bytes]] = Counter()

    def key(self, saga: Saga, tool: Tool, run: calls.Run, mac: bytes) -> str:
        """Return the key of a call that is made here.

        Args:
            saga: whose step it is.
            tool: what is called.
            run: the run that it is made in.
            mac: the arguments' fingerprint.
        """
        call = calls.calling.get()
        named = calls.key_of(call, run, mac) if call is not None and call.id else None
        with self._lock:
            step = None if named is None else saga.keyed.get(_full(tool, named))
            if step is None:
                step = self._earlier(saga, tool, mac)
            if step is None:
                return named or self._fresh(saga, tool, mac)
            self._left.discard(step.id)
            return step.key[-1]

    def _fresh(self, saga: Saga, tool: Tool, mac: bytes) -> str:
        while True:
            self._numbers[tool.name, mac] += 1
            key = json.dumps(["", self._numbers[tool.name, mac], mac.hex()])
            if _full(tool, key) not in saga.keyed:
                return key

    def _earlier(self, saga: Saga, tool: Tool, mac: bytes) -> Step | None:
        equal = [s for s in tuple(saga.keyed.values()) if s.tool.name == tool.name and s.mac == mac]
        unsettled = [s for s in equal if _unsettled(s)]
        left = [s for s in equal if s.id in self._left and s.state in _STANDS]
        return next(iter([*unsettled, *left]), None)

    @staticmethod
    def standing(saga: Saga) -> list[str]:
        """Return the ids of the steps of a saga that stand."""
        return [step.id for step in tuple(saga.keyed.values()) if step.state in _STANDS]

    def check_repeated(self, saga: Saga) -> None:
        """Refuse to go on as if what a lost attempt did had not happened.

        Raises:
            ReplayConflict: a step of it stands, and the new attempt did not repeat it.
        """
        if saga.read_only:
            return
        steps = [step for step in tuple(saga.keyed.values()) if step.id in self._left]
        left = [step for step in steps if step.state in _STANDS]
        if left:
            names = ", ".join(sorted({step.tool.name for step in left}))
            raise ReplayConflict(
                f"An earlier attempt of this run, which ended without its answers, called {names}; "
                "the new attempt took another way.",
                fix="Begin again under another key.",
            )


def _full(tool: Tool, key: str) -> tuple[str, ...]:
    return identity.given_key(("",), tool.name, key)


def _unsettled(step: Step) -> bool:
    tool = step.tool
    return step.state in _OPEN and not step.in_flight and not (tool.repeatable or tool.reversible)


_attempts: WeakKeyDictionary[Saga, Attempts] = WeakKeyDictionary()
_lock = threading.Lock()


def attempts_of(saga: Saga, *, anew: bool = False, kept: Container[str] = ()) -> Attempts:
    """Return which steps of a saga may return; begun anew where a run goes on with it.

    Args:
        saga: the saga.
        anew: a run begins, or goes on.
        kept: the ids of steps that the run's state knows of.
    """
    with _lock:
        found = _attempts.get(saga)
        if found is None or anew:
            found = _attempts[saga] = Attempts(saga, kept)
        return found

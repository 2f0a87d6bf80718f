"""Which earlier step a call is, when a model calls something again or a run is gone on with.

Rules of this part, in this order:

1. The same key is the same step, and so is the same call: whether the gate has a question about it
   is asked before it is made.
2. A call that equals one without a known outcome is that one: a blind retry, by whomever, also of
   what the program called itself.
3. In a saga that has ended all that was recorded is given again, in order, also what was read. In
   a saga that is gone on with: an equal call that was recorded and stands, and whose answer the
   run's history does not hold, is that one, in order, whatever its id: the answer was lost, and
   the model was asked anew. What was undone meanwhile is none of these.
4. What an earlier, lost attempt did and the new one neither knows nor repeats is not passed over:
   the run fails, and everything is undone.
"""

from __future__ import annotations

import threading
from collections.abc import Container
from typing import TYPE_CHECKING

from agent_saga.kit.frameworks import attempts
from agent_saga.kit.frameworks.attempts import equal, full_key, stands, unnamed, unsettled
from agent_saga_openai_agents import calls

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool


class Attempts:
    """Which steps of a saga may return; it keeps no step and no saga alive.

    Args:
        saga: the engine's saga.
        known: the call ids that are answered in the history that the run begins with.
        kept: the ids of steps whose answers the run's state holds, whatever their calls.

    Attributes:
        runs: which run it is that begins inside a boundary.
    """

    def __init__(self, saga: Saga, known: Container[str] = (), kept: Container[str] = ()) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], str] = {}
        self._known: list[Container[str]] = []
        self.runs = attempts.Runs()
        recorded = [s for s in saga.keyed.values() if stands(s) or saga.read_only]
        self._left = attempts.Left(
            s for s in recorded if s.id not in kept and not _is_known(s, known)
        )

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
            key = self._found.get((tool.name, key), key)
            step = saga.keyed.get(full_key(tool, key))
            if step is None and any(equal(one, tool, mac) for one in unnamed(saga)):
                return None
            if step is None:
                step = self._earlier(saga, tool, mac)
            if step is None:
                return key
            self._left.take(step)
            self._found[tool.name, key] = step.key[-1]
            return step.key[-1]

    def _earlier(self, saga: Saga, tool: Tool, mac: bytes) -> Step | None:
        same = [step for step in tuple(saga.keyed.values()) if equal(step, tool, mac)]
        open_ended = [step for step in same if unsettled(step)]
        lost = [step for step in same if step in self._left]
        return next(iter([*open_ended, *lost]), None)

    def know(self, known: Container[str]) -> None:
        """Take in the call ids that are answered in the history of a run that begins."""
        self._known.append(known)

    def left_out(self, saga: Saga) -> list[Step]:
        """Return what a program that goes on with its boundary did before, and has not come to."""
        left = self._left.unmet(saga)
        return [s for s in left if not any(_is_known(s, known) for known in self._known)]

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
        left = [step for step in self._left.unmet(saga) if not _is_known(step, known)]
        if left:
            raise attempts.another_way(
                left,
                "An earlier attempt of this run, which ended without its answers,",
                "Begin again. With a session a run that died is gone on with where it was.",
            )


def standing(saga: Saga) -> list[str]:
    """Return the ids of the steps of a saga that stand, and that its calls named."""
    return [step.id for step in tuple(saga.keyed.values()) if step.state in attempts.STANDS]


def _is_known(step: Step, known: Container[str]) -> bool:
    mark = calls.read(step.key[-1])
    return mark is None or mark.outermost in known


_attempts: attempts.PerSaga[Attempts] = attempts.PerSaga()


def attempts_of(
    saga: Saga, known: Container[str] = (), kept: Container[str] = (), *, anew: bool = False
) -> Attempts:
    """Return which steps of a saga may return.

    Args:
        saga: the engine's saga.
        known: see `Attempts`; counts when they are begun.
        kept: see `Attempts`; counts when they are begun.
        anew: a run goes on with the saga.
    """
    return _attempts.of(saga, lambda: Attempts(saga, known, kept), anew=anew)


attempts.tell_left_out(lambda saga: attempts_of(saga).left_out(saga))

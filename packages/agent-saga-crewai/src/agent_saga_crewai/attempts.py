"""Which earlier step a call is, when CrewAI runs something again.

Rules of this part, in this order:

1. A call that equals one without a known outcome is that one: a blind retry, by whomever, also of
   what the program called itself.
2. CrewAI shows a tool no id of its call. So a step is known by its place, its tool and arguments,
   and by which of such calls it is.
3. A new attempt of an agent (after an error, or after a guardrail said no) may do again what the
   earlier attempts did: its equal calls are theirs, in order, and so are those in the bodies of its
   tools, of whole crews that they run and of agents that they delegate to. Two equal calls of one
   attempt are two, and so are two equal tasks that are delegated in it.
4. After a crash or a wait the run begins again: its equal calls are the recorded ones, in order.
   A flow that goes on after a human's feedback does not begin again: its calls are new ones.
5. What an earlier part of a run did, and the part that began again did not, is not passed over:
   the run fails, and everything is undone. So does a program that goes on with its own boundary,
   where the runs in it leave out what they had done.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent_saga.domain.lifecycle import StepState
from agent_saga.kit.frameworks import attempts
from agent_saga.kit.frameworks.attempts import equal, stands, unsettled
from agent_saga_crewai.place import Place

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool
    from agent_saga_crewai.runs import Execution


class Attempts:
    """How this package counts the steps of one saga; it keeps no step and no saga alive.

    Args:
        saga: the engine's saga.
        again: the keys of recorded steps that the run will come to again; None for all of them.
    """

    def __init__(self, saga: Saga, again: Iterable[str] | None = None) -> None:
        self._lock = threading.Lock()
        self._numbers: Counter[tuple[object, ...]] = Counter()
        self._asked: Counter[tuple[Place, str]] = Counter()
        self._made: dict[str, Execution] = {}
        self._seen: set[Place] = set()
        wanted = None if again is None else frozenset(again)
        recorded = [(step, mark) for step in saga.keyed.values() if (mark := _read(step))]
        for step, (place, mac, number) in recorded:
            count = (place, step.tool.name, mac)
            self._numbers[count] = max(self._numbers[count], number)
        self._left = attempts.Left(
            step
            for step, (place, mac, number) in recorded
            if _may_return(step, last=number == self._numbers[place, step.tool.name, mac])
            and (wanted is None or step.key[-1] in wanted)
        )
        if wanted is not None:
            self._asked.update(_questions(saga))

    def key(
        self, saga: Saga, tool: Tool, place: Place, execution: Execution, mac: bytes
    ) -> str | None:
        """Return the key of a call; None for a step without one that it may be.

        Args:
            saga: whose step it is.
            tool: what is called.
            place: where.
            execution: what is the same object during one execution of a crew, an agent or a
                method, its attempts included.
            mac: the arguments' fingerprint.
        """
        with self._lock:
            if any(equal(one, tool, mac) for one in attempts.unnamed(saga)):
                return None
            step = self._earlier(saga, tool, place, mac)
            if step is not None:
                self._left.take(step)
                self._made[step.key[-1]] = execution
                return step.key[-1]
            count = (place, tool.name, mac.hex())
            self._numbers[count] += 1
            key = json.dumps([*place, mac.hex(), self._numbers[count]])
            self._made[key] = execution
            return key

    def question(self, place: Place, asked: str) -> str:
        """Return the key of a question to a model: which of the equal ones it is."""
        with self._lock:
            self._asked[place, asked] += 1
            return json.dumps([*place, asked, "question", self._asked[place, asked]])

    def begin(self, saga: Saga, place: Place, execution: Execution) -> None:
        """Note that an attempt begins: what earlier ones did may come again."""
        with self._lock:
            self._seen.add(place)
            for step in tuple(saga.keyed.values()):
                made = self._made.get(step.key[-1])
                own = made is execution and _at(step) == place
                inner = made is not None and made.is_inside(execution, place)
                if (own or inner) and stands(step):
                    self._left.add(step)

    def left(self, saga: Saga) -> list[str]:
        """Return the keys of what earlier parts of the run did, and this one has not yet."""
        with self._lock:
            return [step.key[-1] for step in self._left_of(saga)]

    def left_out(self, saga: Saga) -> list[Step]:
        """Return what a program that goes on with its boundary did before, and has not come to."""
        with self._lock:
            return self._left_of(saga)

    def check_repeated(self, saga: Saga, *, everywhere: bool) -> None:
        """Refuse to go on as if what an earlier part of the run did had not happened.

        Args:
            saga: whose steps are looked at.
            everywhere: the whole run began again; else only those agents that ran.

        Raises:
            ReplayConflict: a step of it stands, and this part did not repeat it.
        """
        with self._lock:
            left = self._left_of(saga)
        found = [step for step in left if everywhere or _at(step) in self._seen]
        if found:
            raise attempts.another_way(
                found, "An earlier part of this run", "Begin anew under another key."
            )

    def _earlier(self, saga: Saga, tool: Tool, place: Place, mac: bytes) -> Step | None:
        same = [
            step
            for step in tuple(saga.keyed.values())
            if equal(step, tool, mac) and _read(step) is not None
        ]
        open_ended = [step for step in same if unsettled(step)]
        if open_ended:
            return open_ended[0]
        waiting = [step for step in same if step in self._left and _at(step) == place]
        return min(waiting, key=_number, default=None)

    def _left_of(self, saga: Saga) -> list[Step]:
        return [step for step in self._left.unmet(saga) if step.key[-1] not in self._made]


def _may_return(step: Step, *, last: bool) -> bool:
    """Say whether a run that begins again may come to a recorded step.

    An effect that did not happen is tried again only if no equal call came after it.
    """
    if step.tool.reversible:
        return True
    return stands(step) or (step.state is StepState.NOT_APPLIED and last)


def _read(step: Step) -> tuple[Place, str, int] | None:
    """Return what a step's key tells; None when it is not one of this package."""
    try:
        method, task, agent, mac, number = json.loads(step.key[-1])
        return Place(method, task, agent), str(mac), int(number)
    except (ValueError, TypeError):
        return None


def _questions(saga: Saga) -> Counter[tuple[Place, str]]:
    """Return how often each question was put to a model, as far as it was recorded."""
    found: Counter[tuple[Place, str]] = Counter()
    for step in saga.keyed.values():
        try:
            method, task, agent, asked, kind, number = json.loads(step.key[-1])
        except (ValueError, TypeError):
            continue
        if kind == "question":
            count = (Place(method, task, agent), str(asked))
            found[count] = max(found[count], int(number))
    return found


def _at(step: Step) -> Place | None:
    mark = _read(step)
    return None if mark is None else mark[0]


def _number(step: Step) -> int:
    mark = _read(step)
    return 0 if mark is None else mark[2]


_attempts: attempts.PerSaga[Attempts] = attempts.PerSaga()


def attempts_of(saga: Saga) -> Attempts:
    """Return how this package counts the steps of a saga."""
    return _attempts.of(saga, lambda: Attempts(saga))


def began_again(saga: Saga, again: Iterable[str] | None) -> None:
    """Count the steps of a saga anew: a run has begun that may come to recorded ones again."""
    _attempts.of(saga, lambda: Attempts(saga, again), anew=True)


attempts.tell_left_out(lambda saga: attempts_of(saga).left_out(saga))

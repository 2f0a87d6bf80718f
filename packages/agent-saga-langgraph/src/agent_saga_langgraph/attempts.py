"""Which earlier step a call is, when a graph runs something again.

Rules of this part, in this order:

1. A copy of one call of the model, with its id and from its place, is that call.
2. A call that equals one without a known outcome is that one: a blind retry, by whomever, also of
   what the program called itself.
3. In a task that is repeated (a retry, an interrupt, a crash) a call is the equal one that an
   earlier attempt made at the same place, with the same id if there is one, else in order: a model
   that is asked again gives other ids. Equal calls of one attempt are as many steps.
4. If a graph inside the task has gone another way, it is the equal one that the same nodes led
   to, unless that graph went on from behind it.
5. After a resume: an equal call recorded in a superstep that the graph has lost, with the same id
   if there is one, else in order: its checkpoint was lost, or its state was edited.
   What was undone meanwhile is none of these: the call is a new step.
6. What an earlier, lost attempt did and the new one did not repeat is not passed over: the run
   fails, and everything is undone. What a repeated task did not repeat is told.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import StepState
from agent_saga.errors import ReplayConflict
from agent_saga.kit.frameworks.attempts import (
    PerSaga,
    another_way,
    equal,
    stands,
    unnamed,
    unsettled,
)
from agent_saga_langgraph import place as places
from agent_saga_langgraph.place import Mark, Place
from agent_saga_langgraph.wishes import Asked, History, Wish

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool
    from agent_saga_langgraph.witness import Turn, Witness


class Attempts:
    """How this package counts the steps of one saga; it keeps no step and no saga alive.

    Args:
        saga: the engine's saga.
        history: of the thread when the saga was resumed.
    """

    def __init__(self, saga: Saga, history: History | None = None) -> None:
        self._lock = threading.Lock()
        self._history = history or History()
        self._wishes: dict[tuple[str, str], list[Wish]] = {}
        self._left: set[str] = set()
        for step in tuple(saga.keyed.values()):
            mark = places.read(step.key[-1])
            if mark is None:
                continue
            wish = self._kept(step.tool.name, mark)
            if stands(step) and not self._history.has(wish):
                self._left.add(wish.key)
        for name, key in self._history.asked:
            mark = places.read(key)
            if mark is not None and _step(saga, name, key) is None:
                self._kept(name, mark)

    def key(
        self, saga: Saga, tool: Tool, call: str | None, mac: bytes, apart: str = ""
    ) -> str | None:
        """Return the key of a call; None outside a graph, and for a step without one that it is.

        Args:
            saga: whose step it is.
            tool: what is called.
            call: the model's id of the call, or None.
            mac: the arguments' MAC.
            apart: what tells the call from others beside its arguments; see `Mark`.

        Raises:
            ReplayConflict: nobody can tell whether it repeats an earlier call.
        """
        place = places.here()
        if place is None:
            return None
        with self._lock:
            wishes = self._wishes.get((tool.name, mac.hex()), [])
            asked = Asked(place, call or "", apart)
            wish = next((one for one in wishes if one.is_copy(asked)), None)
            if wish is None and not apart and any(equal(s, tool, mac) for s in unnamed(saga)):
                return None
            wish = wish or self._earlier(saga, tool, wishes, asked)
            if wish is None and not apart and (other := _keyed(saga, tool, mac)) is not None:
                return other.key[-1]
            if wish is None:
                wish = self._new(tool, wishes, asked, mac)
            wish.ask(place)
            self._left.discard(wish.key)
            return wish.key

    def _new(self, tool: Tool, wishes: list[Wish], asked: Asked, mac: bytes) -> Wish:
        place = asked.place
        if not place.watched and any(_unclear(one, place) for one in wishes):
            raise ReplayConflict(
                f"{tool.name} was called by a graph inside a node, as an earlier graph of that "
                "node did; nobody can tell whether the node is repeated. It was not run.",
                fix="Run the outermost graph with saga_run, saga_agent or their twins.",
            )
        number = 1 + sum(place.spot in one.spots for one in wishes)
        return self._kept(tool.name, Mark(place.spot, asked.call, number, mac.hex(), asked.apart))

    def _kept(self, tool: str, mark: Mark) -> Wish:
        key = places.key(mark)
        wish = Wish(key, mark, self._history.spots(key, mark))
        self._wishes.setdefault((tool, mark.mac), []).append(wish)
        return wish

    def _earlier(self, saga: Saga, tool: Tool, wishes: list[Wish], asked: Asked) -> Wish | None:
        spot, call = asked.place.spot, asked.call
        free = [one for one in wishes if one.is_free(asked.place)]
        found = _first([one for one in free if spot in one.spots and one.may_be(asked)], call)
        if found is not None:
            return found
        steps = {one.key: s for one in wishes if (s := _step(saga, tool.name, one.key))}
        for wish in wishes:
            if wish.key in steps and unsettled(steps[wish.key]) and wish.may_be(asked):
                return wish
        standing = [one for one in free if one.key in steps and stands(steps[one.key])]
        clear = [one for one in standing if one.is_clearly(asked)]
        again = [one for one in clear if one.is_again(asked.place)]
        lost = [one for one in clear if self._is_lost(one)]
        near = [one for one in lost if one.mark.spot.nodes == spot.nodes]
        return _first(again, call) or _first(near, call) or _first(lost, call)

    def _is_lost(self, wish: Wish) -> bool:
        return wish.key in self._left and self._history.has_lost(wish)

    def check_repeated(self, saga: Saga) -> None:
        """Refuse to go on as if what a lost attempt did had not happened.

        Raises:
            ReplayConflict: a step of it stands, and the new attempt did not repeat it.
        """
        left = [s for _, wish, s in self._steps(saga) if self._is_lost(wish) and stands(s)]
        if left:
            raise another_way(
                left,
                "An earlier attempt of this run, whose checkpoint was lost or state was edited,",
                "Begin again. durability='sync' keeps each checkpoint before the next effect.",
            )

    def to_keep(self, saga: Saga) -> dict[str, Any]:
        """Return, as plain data, what a run that resumes the saga must know, and the log does not.

        These are the calls that were met again at another place than the one they were made at, and
        those that were asked for and have no step: a question about them may be open.
        """
        met: dict[str, Any] = {}
        asked = []
        for (tool, _), wishes in tuple(self._wishes.items()):
            for wish in tuple(wishes):
                step = _step(saga, tool, wish.key)
                if step is None or step.state is StepState.NEW:
                    asked.append([tool, wish.key])
                elif len(wish.spots) > 1:
                    met[wish.key] = json.loads(json.dumps(wish.spots[1:]))
        return {"met": met, "asked": asked}

    def not_repeated(self, saga: Saga, witness: Witness) -> list[str]:
        """Return the tools of steps that stand, and that a task did not repeat when it ended well.

        Args:
            saga: the saga.
            witness: who saw the tasks.
        """
        return [
            tool
            for tool, wish, step in self._steps(saga)
            if stands(step) and _is_left_out(wish, witness)
        ]

    def _steps(self, saga: Saga) -> Iterator[tuple[str, Wish, Step]]:
        for (tool, _), wishes in tuple(self._wishes.items()):
            for wish in tuple(wishes):
                step = _step(saga, tool, wish.key)
                if step is not None:
                    yield tool, wish, step


def _is_left_out(wish: Wish, witness: Witness) -> bool:
    if wish.seen:
        return all(any(_is_replaced(turn) for turn in turns) for turns in wish.seen)
    for one in wish.spots:
        task = witness.outermost.get(one.task)
        if task is None or task.done is None:
            continue
        level = next(iter(one.inner), None)
        if level is None or level.step > task.done.begun.get(level.graph, level.step):
            return True
    return False


def _is_replaced(turn: Turn) -> bool:
    """Say whether another attempt at the same task ended well instead."""
    return turn.task.done is not None and turn.task.done is not turn


def _unclear(wish: Wish, place: Place) -> bool:
    """Say whether another graph of the same node, or an earlier run of it, asked for the same."""
    one, other = wish.mark.spot, place.spot
    if not other.inner or (one.checkpoint, one.task) != (other.checkpoint, other.task):
        return False
    own = place.turns[-1].task.name.rpartition("|")[0]
    return all(turns[-1].task.name.rpartition("|")[0] != own for turns in wish.seen)


def _first(wishes: list[Wish], call: str) -> Wish | None:
    """Return the one with the same call id, else the first one."""
    same = [wish for wish in wishes if call and wish.mark.caller == call]
    return next(iter(same or wishes), None)


def _step(saga: Saga, tool: str, key: str) -> Step | None:
    return saga.keyed.get(identity.given_key(("",), tool, key))


def _keyed(saga: Saga, tool: Tool, mac: bytes) -> Step | None:
    """Return an equal step that the program gave a key, and does not know the end of."""
    same = [step for step in tuple(saga.keyed.values()) if equal(step, tool, mac)]
    left = [step for step in same if unsettled(step) and places.read(step.key[-1]) is None]
    return next(iter(left), None)


_attempts: PerSaga[Attempts] = PerSaga()


def attempts_of(saga: Saga, history: History | None = None) -> Attempts:
    """Return how this package counts the steps of a saga; begun anew when a history is given."""
    return _attempts.of(saga, lambda: Attempts(saga, history), anew=history is not None)

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
5. In another try of what LangChain repeats (`with_retry`) it is the equal one that the same nodes
   of an earlier try asked for, in order.
6. After a resume: an equal call recorded in a superstep that the graph has lost, with the same id
   if there is one, else in order: its checkpoint was lost, or its state was edited.
   What was undone meanwhile is none of these: the call is a new step. That it was met again is
   kept before its result is given; see `met`.
7. What an earlier, lost attempt did and the new one did not repeat is not passed over: the run
   fails, and everything is undone. What a repeated task did not repeat is told.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import StepState
from agent_saga.errors import ReplayConflict
from agent_saga.kit.frameworks.attempts import (
    PerSaga,
    another_way,
    equal,
    stands,
    tell_left_out,
    unnamed,
    unsettled,
)
from agent_saga_langgraph import place as places
from agent_saga_langgraph.equals import Equals
from agent_saga_langgraph.place import Mark, Place
from agent_saga_langgraph.threads import on_thread
from agent_saga_langgraph.tries import Try, check_tries, failed
from agent_saga_langgraph.wishes import Asked, History, Wish

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool
    from agent_saga_langgraph.met import Notes
    from agent_saga_langgraph.place import Level, Spot
    from agent_saga_langgraph.witness import Turn, Witness

_NOTHING: Final = (StepState.NEW, StepState.NOT_APPLIED, StepState.COMPENSATED)


class Attempts:
    """How this package counts the steps of one saga; it keeps no step and no saga alive.

    Args:
        saga: the engine's saga.
        history: of the thread when the saga was resumed.
        notes: where is kept that a step was met again in another superstep; None where no other
            process will go on with the saga.
    """

    def __init__(
        self, saga: Saga, history: History | None = None, notes: Notes | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._history = history or History()
        self._notes = notes
        self._wishes: dict[tuple[str, str], Equals] = {}
        self._numbered: dict[object, list[tuple[str, Wish, Level]]] = {}
        self._left: set[str] = set()
        self._open: list[Step] = []
        self._times: dict[str, int] = {}
        self._begun: set[str] = set()
        for step in tuple(saga.keyed.values()):
            if unsettled(step):
                self._open.append(step)
            mark = places.read(step.key[-1])
            if mark is None:
                continue
            wish = self._kept(step.tool.name, mark)
            if stands(step) and not self._history.has(wish):
                self._left.add(wish.key)
                self._equals(step.tool.name, mark.mac).left.add(wish)
        for name, key in self._history.asked:
            mark = places.read(key)
            if mark is not None and _step(saga, name, key) is None:
                self._kept(name, mark)

    def asked(
        self, saga: Saga, tool: Tool, call: str | None, mac: bytes, apart: str = ""
    ) -> tuple[str | None, Try | None]:
        """Return the key of a call, and which call of that step it is, as far as it is counted.

        There is no key outside a graph, nor for a step without one that it is.

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
            check_tries(saga, tool)
            return None, None
        with self._lock:
            self._begun.add(place.spot.checkpoint)
            equals, asked = self._equals(tool.name, mac.hex()), Asked(place, call or "", apart)
            wish = next((one for one in equals.of_call(asked.call) if one.is_copy(asked)), None)
            if wish is None and not apart and any(equal(s, tool, mac) for s in unnamed(saga)):
                return None, None
            wish = wish or self._earlier(saga, tool, mac, asked)
            if wish is None and not apart:
                other = self._unsettled(saga, tool, mac, ours=False)
                if other:
                    return (key := other[0].key[-1]), Try(key, self._times.get(key, 1))
            if wish is None:
                wish = self._new(saga, tool, asked, mac)
            if wish.ask(place):
                self._met(saga, tool.name, wish, place.spot)
            self._left.discard(wish.key)
            number = self._times[wish.key] = self._times.get(wish.key, 0) + 1
            return wish.key, Try(wish.key, number)

    def _equals(self, tool: str, mac: str) -> Equals:
        return self._wishes.setdefault((tool, mac), Equals())

    def _met(self, saga: Saga, tool: str, wish: Wish, spot: Spot) -> None:
        """Take in that a wish was asked for at another place."""
        self._equals(tool, wish.mark.mac).met(wish, spot)
        self._number(tool, wish, spot)
        is_far = all(one.checkpoint != spot.checkpoint for one in wish.spots[:-1])
        if is_far and self._notes is not None and _step(saga, tool, wish.key) is not None:
            self._notes.add(wish.key, wish.spots[1:])

    def _new(self, saga: Saga, tool: Tool, asked: Asked, mac: bytes) -> Wish:
        place, equals = asked.place, self._equals(tool.name, mac.hex())
        if place.spot.inner and not place.watched and any(_unclear(one, place) for one in equals):
            raise ReplayConflict(
                f"{tool.name} was called by a graph inside a node, as an earlier graph of that "
                "node did; nobody can tell whether the node is repeated. It was not run.",
                fix="Run the outermost graph with saga_run, saga_agent or their twins.",
            )
        free = equals.near(place.spot).free(place)
        untold = [one for one in free if one.is_untold(place) and one.may_be(asked)]
        if any(_stands(saga, tool.name, one) for one in untold):
            raise ReplayConflict(
                f"{tool.name} was called in a task of a workflow, as another task did before the "
                "workflow was run again; nobody can tell whether it is repeated. It was not run.",
                fix="Take a version of langgraph that agent-saga-langgraph was tested with.",
            )
        number = 1 + len(equals.at(place.spot))
        return self._kept(tool.name, Mark(place.spot, asked.call, number, mac.hex(), asked.apart))

    def _kept(self, tool: str, mark: Mark) -> Wish:
        key = places.key(mark)
        wish = Wish(key, mark, self._history.spots(key, mark))
        self._equals(tool, mark.mac).add(wish)
        for spot in wish.spots:
            self._number(tool, wish, spot)
        return wish

    def _number(self, tool: str, wish: Wish, spot: Spot) -> None:
        """Keep of a wish which calls of tasks led to it."""
        for depth, level in enumerate(spot.inner):
            if level.asked:
                where = (spot.checkpoint, spot.task, spot.inner[:depth], level.number)
                self._numbered.setdefault(where, []).append((tool, wish, level))

    def given_to_another(
        self, saga: Saga, spot: Spot, number: int, fingerprint: str
    ) -> ReplayConflict | None:
        """Return the error of a call of a task under the number that another call had.

        Args:
            saga: the saga.
            spot: where the call is made.
            number: the call's, as LangGraph counts.
            fingerprint: what is called, and with what.

        None, if that other call came to nothing.
        """
        where = (spot.checkpoint, spot.task, spot.inner, number)
        for tool, wish, level in tuple(self._numbered.get(where, ())):
            step = _step(saga, tool, wish.key)
            if level.asked != fingerprint and step is not None and step.state not in _NOTHING:
                return another_way(
                    [step],
                    f"Before the workflow was run again, its call {number + 1} of a task",
                    "Let the workflow call the same tasks in the same order each time it is run: "
                    "take what may change, as a clock or chance, from a task of its own.",
                )
        return None

    def _earlier(self, saga: Saga, tool: Tool, mac: bytes, asked: Asked) -> Wish | None:
        place, call = asked.place, asked.call
        equals = self._equals(tool.name, mac.hex())

        def is_here(one: Wish) -> bool:
            return place.spot in one.spots and one.may_be(asked)

        def is_again(one: Wish) -> bool:
            return may_stand(one) and one.is_again(place)

        def is_lost(one: Wish) -> bool:
            return self._is_lost(one) and may_stand(one)

        def is_near(one: Wish) -> bool:
            return one.mark.spot.nodes == place.spot.nodes and is_lost(one)

        def may_stand(one: Wish) -> bool:
            return one.is_clearly(asked) and _stands(saga, tool.name, one)

        found = equals.first(equals.at(place.spot), place, call, is_here)
        if found is not None:
            return found
        for step in self._unsettled(saga, tool, mac, ours=True):
            wish = equals.get(step.key[-1])
            if wish is not None and wish.may_be(asked):
                return wish
        return (
            equals.first(equals.near(place.spot), place, call, is_again)
            or equals.first(equals.left, place, call, is_near)
            or equals.first(equals.left, place, call, is_lost)
            or equals.tried(place, call, may_stand)
        )

    def _unsettled(self, saga: Saga, tool: Tool, mac: bytes, *, ours: bool) -> list[Step]:
        """Return equal steps with keys, of ours or of the program's, whose end nobody knows."""
        known = {step.id: step for step in (*self._open, *tuple(saga.unsettled.values()))}
        return [
            step
            for step in known.values()
            if step.keyed and equal(step, tool, mac) and unsettled(step)
            if (places.read(step.key[-1]) is not None) is ours
        ]

    def _is_lost(self, wish: Wish) -> bool:
        return wish.key in self._left and self._history.has_lost(wish)

    def _lost(self, saga: Saga) -> list[Step]:
        return [s for _, wish, s in self._steps(saga) if self._is_lost(wish) and stands(s)]

    def save(self) -> None:
        """Keep for a process that goes on after a crash what was met again; blocks."""
        if self._notes is not None:
            self._notes.save()

    async def save_async(self) -> None:
        """Do what `save` does without blocking the event loop."""
        if self._notes is not None:
            await self._notes.save_async()

    def check_repeated(self, saga: Saga) -> None:
        """Refuse to go on as if what a lost attempt did had not happened.

        Raises:
            ReplayConflict: a step of it stands, and the new attempt did not repeat it.
        """
        left = self._lost(saga)
        if left:
            raise another_way(
                left,
                "An earlier attempt of this run, whose checkpoint was lost or state was edited,",
                "Begin again. durability='sync' keeps each checkpoint before the next effect.",
            )

    def left_out(self, saga: Saga) -> list[Step]:
        """Return what a program that goes on with its boundary has not come to, but on threads."""
        return [step for step in self._lost(saga) if not on_thread(step.scope.path)]

    def to_keep(self, saga: Saga, only: str = "") -> dict[str, Any]:
        """Return, as plain data, what a run that resumes the saga must know, and the log does not.

        Where the graph stored but one checkpoint, `only` is the one that it stopped at.
        These are calls that were met again elsewhere; those that were asked for and have no step,
        since a question about them may be open; and supersteps that no checkpoint tells of.
        """
        met: dict[str, Any] = {}
        asked = []
        for (tool, _), wishes in tuple(self._wishes.items()):
            for wish in wishes:
                step = _step(saga, tool, wish.key)
                if step is None or step.state is StepState.NEW:
                    asked.append([tool, wish.key])
                elif len(wish.spots) > 1:
                    met[wish.key] = json.loads(json.dumps(wish.spots[1:]))
        passed = self._history.passed | (self._begun - {only} if only else set())
        return {"met": met, "asked": asked, "passed": sorted(passed)}

    def not_repeated(self, saga: Saga, witness: Witness) -> list[str]:
        """Return the tools of steps that stand, and that a task did not repeat when it ended well.

        Args:
            saga: the saga.
            witness: who saw the tasks.
        """
        return [
            tool
            for tool, wish, step in self._steps(saga)
            if stands(step) and self._is_left_out(wish, witness)
        ]

    def _is_left_out(self, wish: Wish, witness: Witness) -> bool:
        """Say whether the last attempt, or the last call of a tool that failed, left it out."""
        called_again = bool(wish.tried) and all(
            any(self._times.get(str(one.of), 1) > one.number and not one.done for one in tried)
            for tried in wish.tried
        )
        return called_again or _ended_without(wish, witness)

    def passed_over(self, saga: Saga, witness: Witness) -> list[str]:
        """Return the tools of steps that stand, and were called in what failed for good."""
        return [
            tool
            for tool, wish, step in self._steps(saga)
            if stands(step) and wish.tried and all(map(failed, wish.tried))
            if not self._is_left_out(wish, witness)
        ]

    def left_waiting(self, saga: Saga, witness: Witness) -> list[str]:
        """Return the tools of steps that stand in tasks of which a graph that waits knows nothing.

        Arguments as for `not_repeated`.
        """
        return [
            tool
            for tool, wish, step in self._steps(saga)
            if stands(step) and wish.seen and all(map(witness.was_left, wish.seen))
        ]

    def _steps(self, saga: Saga) -> Iterator[tuple[str, Wish, Step]]:
        for (tool, _), wishes in tuple(self._wishes.items()):
            for wish in wishes:
                step = _step(saga, tool, wish.key)
                if step is not None:
                    yield tool, wish, step


def _ended_without(wish: Wish, witness: Witness) -> bool:
    """Say whether what it was asked for in was tried again, or attempted, and ended without it."""
    if wish.tried and all(map(witness.runs.was_tried_again, wish.tried)):
        return True
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


def _stands(saga: Saga, tool: str, wish: Wish) -> bool:
    step = _step(saga, tool, wish.key)
    return step is not None and stands(step)


def _step(saga: Saga, tool: str, key: str) -> Step | None:
    return saga.keyed.get(identity.given_key(("",), tool, key))


_attempts: PerSaga[Attempts] = PerSaga()


def attempts_of(saga: Saga, history: History | None = None, notes: Notes | None = None) -> Attempts:
    """Return how this package counts the steps of a saga; begun anew when a history is given."""
    make = lambda: Attempts(saga, history, notes)  # noqa: E731
    return _attempts.of(saga, make, anew=history is not None)


tell_left_out(lambda saga: attempts_of(saga).left_out(saga))

"""Which earlier step a call is, when something is called again or a run is gone on with.

Rules of this part, in this order:

1. A call at the same place is the same step: the step of the workflow is run again, in this process
   or in another one. A read that was answered is made again.
2. So is a model's call with the same id in the same turn.
3. A call that equals one without a known outcome is that one: a blind retry, by whomever.
4. In a step that is run again: so is an equal call that was made inside it before and stands, in
   order, whatever led to it. An agent that runs inside the step may take another way to it.
5. In a saga that is gone on with: so is an equal call that was recorded and stands, and that the
   context does not know of, whatever its id. What an earlier process did and the run neither knows
   nor repeats is not passed over: the run fails, and everything is undone. So does a program that
   goes on with its own boundary, where the runs in it leave out what they had done.
6. Where a context was taken in the middle of a run, it holds events of which nobody can tell any
   more whether they are such as were sent again. A call of a step that handles one is an equal call
   of the same step that was recorded and stands: rather none too few than one too many.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from agent_saga.domain.lifecycle import StepState
from agent_saga.kit.frameworks.attempts import (
    STANDS,
    Left,
    PerSaga,
    another_way,
    equal,
    full_key,
    stands,
    tell_left_out,
    unnamed,
    unsettled,
)
from agent_saga_llamaindex import calls
from agent_saga_llamaindex.calls import Path

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool


class Mark(NamedTuple):
    """What a step's key tells of the call.

    Attributes:
        name: what a model's call is known by in its run; empty for another call.
        place: the steps that it was made inside of, each with its piece of work.
        number: how many equal calls were made there before.
        mac: the arguments' fingerprint, as text.
        lines: those of the events that the steps handled, each with the length of its place.
        again: how often a read was made again.
    """

    name: Path
    place: Path
    number: int
    mac: str
    lines: tuple[tuple[int, str], ...] = ()
    again: int = 0

    def text(self) -> str:
        """Return the key."""
        return json.dumps(list(self))


def read(key: str) -> Mark | None:
    """Return what a key tells; None for a key of another kind."""
    try:
        name, place, number, mac, lines, again = json.loads(key)
        pairs = tuple((int(length), str(line)) for length, line in lines)
        return Mark(tuple(name), tuple(place), number, mac, pairs, again)
    except (ValueError, TypeError):
        return None


class Attempts:
    """Which steps of a saga may return; it keeps no step and no saga alive.

    Args:
        saga: the engine's saga.
        known: says of a recorded step's id and place whether the run knows of it already.
        blurred: says of a place whether what is handled there may have been handled before.
    """

    def __init__(
        self,
        saga: Saga,
        known: Callable[[str, Path], bool] = lambda _id, _place: False,
        blurred: Callable[[Path], bool] = lambda _place: False,
    ) -> None:
        self._blurred = blurred
        self._lock = threading.Lock()
        self._runs: Counter[Path] = Counter()
        self._places: dict[tuple[str, Path, str, int], str] = {}
        self._names: dict[tuple[str, Path, str], str] = {}
        self._handled: dict[tuple[Path, str], Path] = {}
        self._order: list[tuple[str, str, Path]] = []
        self._keys: set[tuple[str, str]] = set()
        self._met: set[tuple[str, str]] = set()
        self._left = Left()
        for step in tuple(saga.keyed.values()):
            mark = read(step.key[-1])
            if mark is None:
                continue
            old = known(step.id, mark.place)
            self._note(step.tool.name, mark, named=not old)
            for length, line in mark.lines:
                self._handled.setdefault((mark.place[: length - 1], line), mark.place[:length])
            if not old and stands(step):
                self._left.add(step)

    def expect(self, tool: str, key: str | None) -> None:
        """Note a call that did not begin, and is made again when its question was answered."""
        mark = None if key is None else read(key)
        if mark is not None and (tool, key) not in self._keys:
            self._note(tool, mark, named=True)

    @property
    def count(self) -> int:
        """How many calls there were so far."""
        return len(self._order)

    def run(self, place: Path) -> int:
        """Return which run begins now at a place."""
        with self._lock:
            self._runs[place] += 1
            return self._runs[place]

    def place(self, place: Path, line: str) -> Path:
        """Return where an event is handled: where it was handled first, if it is made again.

        Args:
            place: where it is handled now.
            line: the event's; empty if it has none.
        """
        if not line:
            return place
        with self._lock:
            return self._handled.setdefault((place[:-1], line), place)

    def key(self, saga: Saga, tool: Tool, run: calls.Run, mac: bytes) -> str | None:
        """Return the key of a call that is made here; None for a step without one that it is.

        Args:
            saga: whose step it is.
            tool: what is called.
            run: the run that it is made in.
            mac: the arguments' fingerprint.
        """
        execution = calls.execution_here(run, self.count)
        with self._lock:
            name = calls.name_of(calls.calling.get(), run)
            number = execution.number(tool.name, mac)
            lines = tuple(execution.lines())
            mark = Mark(name, execution.place, number, mac.hex(), lines)
            key = self._same(saga, tool, mark)
            if key is None and any(equal(one, tool, mac) for one in unnamed(saga)):
                return None
            if key is None:
                step = self._earlier(saga, tool, mac, execution)
                key = None if step is None else step.key[-1]
            if key is None:
                key = self._fresh(tool, mark)
            step = saga.keyed.get(full_key(tool, key))
            if step is not None:
                self._left.take(step)
            self._met.add((tool.name, key))
            for each in execution.chain():
                each.met.add((tool.name, key))
            return key

    def _same(self, saga: Saga, tool: Tool, mark: Mark) -> str | None:
        """Return the key of a call at the same place, or of the same id and turn."""
        at = self._places.get(_at(tool.name, mark)) if mark.place else None
        named = self._names.get((tool.name, mark.name, mark.mac)) if mark.name else None
        for key in (at, named):
            step = None if key is None else saga.keyed.get(full_key(tool, key))
            answered = step is not None and step.state is StepState.COMMITTED
            if key is not None and (key == named or not (answered and tool.reversible)):
                return key
        return None

    def _fresh(self, tool: Tool, mark: Mark) -> str:
        while (tool.name, mark.text()) in self._keys:
            mark = mark._replace(again=mark.again + 1)
        self._note(tool.name, mark, named=True)
        return mark.text()

    def _note(self, tool: str, mark: Mark, *, named: bool) -> None:
        key = mark.text()
        self._places[_at(tool, mark)] = key
        self._order.append((tool, key, mark.place))
        self._keys.add((tool, key))
        if named and mark.name:
            self._names[tool, mark.name, mark.mac] = key

    def _earlier(
        self, saga: Saga, tool: Tool, mac: bytes, execution: calls.Execution
    ) -> Step | None:
        same = [step for step in tuple(saga.keyed.values()) if equal(step, tool, mac)]
        open_ended = next((step for step in same if unsettled(step)), None)
        if open_ended is not None:
            return open_ended
        standing = {step.key[-1]: step for step in same if stands(step)}
        for each in execution.chain() if standing else ():
            for name, key, place in self._order[: each.before] if each.place else ():
                inside = place[: len(each.place)] == each.place and name == tool.name
                if inside and key in standing and (name, key) not in each.met:
                    return standing[key]
        lost = next((s for s in standing.values() if s in self._left), None)
        if lost is None and execution.place and not execution.line:
            lost = self._maybe(execution, standing)
        return lost

    def _maybe(self, execution: calls.Execution, standing: dict[str, Step]) -> Step | None:
        if not self._blurred(execution.place):
            return None
        named = [(read(key), step) for key, step in standing.items()]
        same = [s for mark, s in named if mark and mark.place[:1] == execution.place[:1]]
        unmet = [step for step in same if (step.tool.name, step.key[-1]) not in self._met]
        return next(iter([*unmet, *same]), None)

    def left_out(self, saga: Saga) -> list[Step]:
        """Return what a program that goes on with its boundary did before, and has not come to."""
        return self._left.unmet(saga)

    def check_repeated(self, saga: Saga) -> None:
        """Refuse to go on as if what a lost attempt did had not happened.

        Raises:
            ReplayConflict: a step of it stands, and the new attempt did not repeat it.
        """
        left = [] if saga.read_only else self._left.unmet(saga)
        if left:
            raise another_way(
                left,
                "An earlier attempt of this run, which ended without its answers,",
                "Begin again under another key.",
            )


def standing(saga: Saga) -> list[str]:
    """Return the ids of the steps of a saga that stand, and that its calls named."""
    return [step.id for step in tuple(saga.keyed.values()) if step.state in STANDS]


def _at(tool: str, mark: Mark) -> tuple[str, Path, str, int]:
    return tool, mark.place, mark.mac, mark.number


_attempts: PerSaga[Attempts] = PerSaga()


def attempts_of(saga: Saga, anew: Callable[[], Attempts] | None = None) -> Attempts:
    """Return which steps of a saga may return; begun anew where a run goes on with it.

    Args:
        saga: the engine's saga.
        anew: makes what begins anew.
    """
    return _attempts.of(saga, anew or (lambda: Attempts(saga)), anew=anew is not None)


tell_left_out(lambda saga: attempts_of(saga).left_out(saga))

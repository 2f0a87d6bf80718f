"""What goes wrong at one call of a run.

Rules of this part:

- A fault strikes one call of the agent, the `at`-th; inverses, probers and looks are never struck.
- What happened is counted here, outside of the engine: the struck call had an effect whenever the
  whole state was another one after it, and so had an inverse. An inverse that runs again after it
  took effect, or after it ended well, is one too many.
- What a call changed that nothing takes back is seen when it is made: it may have to stand.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from bench.worlds import judging, plans
from bench.worlds.standing import in_order
from bench.worlds.world import Args, Given, GoldCall, Place, Tools, World, WorldError

BEFORE: Final = "before"
AFTER: Final = "after"
HIDDEN: Final = "hidden"
TIMEOUT: Final = "timeout"
CANCELLED: Final = "cancelled"
PARALLEL: Final = "parallel"
KILLED_BEFORE: Final = "killed-before"
KILLED: Final = "killed"
GIVEN_UP: Final = "given-up"
RETRY: Final = "retry"
NONE: Final = "none"
NEIGHBOUR: Final = "neighbour"

MEANING: Final = {
    BEFORE: "the line breaks before the effect",
    AFTER: "the effect happens, then the line breaks: a lost answer",
    HIDDEN: "the effect happens, and the tool returns an error",
    TIMEOUT: "the effect happens, and the answer comes after the timeout",
    CANCELLED: "the run is cancelled while the call is under way, after its effect",
    PARALLEL: "the answer is lost while the next call is under way beside it",
    KILLED_BEFORE: "the process is killed before the effect; a daemon recovers",
    KILLED: "the process is killed after the effect; a daemon recovers",
    GIVEN_UP: "all calls go well, and the agent gives up",
    RETRY: "the answer is lost, and the call is blindly repeated; the run goes on",
    NEIGHBOUR: "another saga makes the next call and commits; then the agent gives up",
    NONE: "nothing goes wrong: what the gate costs those who do all well",
}
SUCCEEDS: Final = (RETRY, NONE)
"""Runs that end well, unless they are refused."""
AT_ONCE: Final = 0.02
"""The patience with worlds in this process, in seconds."""


class GaveUp(Exception):
    """The agent ended its run."""


class Died(BaseException):
    """The process dies here; whoever runs it sees to that."""


@dataclass(frozen=True)
class Lasting:
    """A call that nothing could take back when it was made, and what it changed."""

    call: GoldCall
    changes: tuple[judging.Difference, ...]


class Struck:
    """A place where one call goes wrong.

    Args:
        world: what is played.
        place: where.
        model: which fault; see `MEANING`.
        at: which of the agent's calls is struck, counted from 0.
    """

    def __init__(self, world: World, place: Place, model: str, at: int) -> None:
        self._world, self._place, self._model, self._at = world, place, model, at
        self._late = 2.5 * world.patience
        self._next = 0
        self._undone: Counter[str] = Counter()
        self._undoing: dict[str, Any] = {}
        self.effects = 0
        """How often the struck call changed the world."""
        self.struck = ""
        """The tool whose call was struck."""
        self.made: list[GoldCall] = []
        """The agent's calls that reached the world."""
        self.lasting: list[Lasting] = []
        """Those of them that nothing could take back."""
        self.undone_again = 0
        """How many inverses ran though they had already taken effect."""

    def agent(self, tool: str, args: Args) -> Any:
        """Make the agent's next call."""
        number = self._next
        self._next += 1
        if number != self._at or self._model == NONE:
            return self._made(tool, args)
        self.struck = tool
        if self._model == BEFORE:
            raise ConnectionError("no connection")
        if self._model == KILLED_BEFORE:
            raise Died
        answer = self._counted(tool, args)
        self._strike()
        return answer

    @property
    def cancels(self) -> bool:
        """Say whether the struck call's run is cancelled."""
        return self._model == CANCELLED

    def again(self) -> None:
        """Say that the next call repeats the struck one."""
        self._next = self._at
        self._model = ""

    def aside(self, tool: str, /, **args: Any) -> Any:
        """Make a call of an inverse, a prober or a look."""
        return self._place.call(tool, args)

    def go_on(self) -> None:
        """Say that the agent took the struck call for done."""
        self._next = self._at + 1

    def undoing(self, step: str) -> None:
        """Say that an inverse of a step begins."""
        self._undoing[step] = self._place.fingerprint()

    def undone(self, step: str, *, well: bool, again: bool) -> None:
        """Say that an inverse of a step is over.

        Args:
            step: which.
            well: it did not raise.
            again: it may be repeated; what changed nothing then counts for nothing.
        """
        changed = self._undoing.pop(step) != self._place.fingerprint()
        if self._undone[step] and (changed or not again):
            self.undone_again += 1
        self._undone[step] += well or changed

    def _strike(self) -> None:
        if self._model == HIDDEN:
            raise WorldError("internal error, please try again")
        if self._model == KILLED:
            raise Died
        if self._model == TIMEOUT:
            time.sleep(self._late)
        elif self._model in (AFTER, RETRY, PARALLEL):
            raise ConnectionError("the connection was lost")

    def _counted(self, tool: str, args: Args) -> Any:
        before = self._place.fingerprint()
        try:
            return self._made(tool, args)
        finally:
            self.effects += before != self._place.fingerprint()

    def _made(self, tool: str, args: Args) -> Any:
        call = GoldCall(tool, dict(args))
        self.made.append(call)
        if not lasts(self._world, call, self.aside):
            return self._place.call(tool, args)
        before = self._place.snapshot()
        try:
            return self._place.call(tool, args)
        finally:
            changes = tuple(in_order(judging.differences(before, self._place.snapshot())))
            self.lasting.append(Lasting(call, changes))


def lasts(world: World, call: GoldCall, tools: Tools) -> bool:
    """Say whether nothing could take a call back, as things are now."""
    plan = world.plan(call.tool)
    if isinstance(plan, plans.Final):
        return True
    if not isinstance(plan, plans.Write) or plan.always:
        return False
    try:
        args = Given(call.args)
        return bool(plan.needs(args, plan.look(tools, args)))
    except WorldError:
        return False  # the call itself will be answered with the same error

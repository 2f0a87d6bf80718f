"""What goes wrong at one call of a run.

Rules of this part:

- A fault strikes one call of the agent, the `at`-th; inverses, probers and looks are never struck.
- The effects of the struck call are counted here, outside of the engine: it had one whenever the
  whole state was another one after it.
"""

from __future__ import annotations

import time
from typing import Any, Final

from bench.worlds.world import Args, GoldCall, Place, WorldError

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

MEANING: Final = {
    BEFORE: "the line breaks before the effect",
    AFTER: "the effect happens, then the line breaks: a lost answer",
    HIDDEN: "the effect happens, and the tool returns an error",
    TIMEOUT: "the effect happens, and the answer comes after the time-out",
    CANCELLED: "the run is cancelled while the call is under way, after its effect",
    PARALLEL: "the answer is lost while the next call is under way beside it",
    KILLED_BEFORE: "the process is killed before the effect; a daemon recovers",
    KILLED: "the process is killed after the effect; a daemon recovers",
    GIVEN_UP: "all calls go well, and the agent gives up",
    RETRY: "the answer is lost, and the call is blindly repeated; the run goes on",
}
AT_ONCE: Final = 0.02
"""The patience with worlds in this process, in seconds."""


class GaveUp(Exception):
    """The agent ended its run."""


class Died(BaseException):
    """The process dies here; whoever runs it sees to that."""


class Struck:
    """A place where one call goes wrong.

    Args:
        place: the world.
        model: which fault; see `MEANING`.
        at: which of the agent's calls is struck, counted from 0.
        patience: seconds after which an answer is late.
    """

    def __init__(self, place: Place, model: str, at: int, patience: float = AT_ONCE) -> None:
        self._place, self._model, self._at = place, model, at
        self._late = 2.5 * patience
        self._next = 0
        self.effects = 0
        """How often the struck call changed the world."""
        self.struck = ""
        """The tool whose call was struck."""
        self.made: list[GoldCall] = []
        """The agent's calls that reached the world."""

    def agent(self, tool: str, args: Args) -> Any:
        """Make the agent's next call."""
        number = self._next
        self._next += 1
        if number != self._at:
            self.made.append(GoldCall(tool, dict(args)))
            return self._place.call(tool, args)
        self.struck = tool
        if self._model == BEFORE:
            raise ConnectionError("no connection")
        if self._model == KILLED_BEFORE:
            raise Died
        self.made.append(GoldCall(tool, dict(args)))
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
            return self._place.call(tool, args)
        finally:
            self.effects += before != self._place.fingerprint()

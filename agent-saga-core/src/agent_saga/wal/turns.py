"""What one event loop asks of a log, turn by turn.

Rules of this part:

- Alone, a sync that is waited for starts at once. In a crowd it starts at the end of the turn, so
  that what a turn appends shares one sync however its thread and the flusher's alternate. A crowd
  is more than one request between two wakings; it is over when a turn brings one at most.
- A sync that nobody waits for starts a moment later, between two turns; a request that comes first
  takes it along.
- Every method runs on the loop's own thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from agent_saga.wal.waiters import Future

__all__ = ["Turns"]

_MOMENT: Final = 0.002
"""Seconds for which a sync that nobody waits for is put off, at most."""


class Turns:
    """The turns of one loop.

    Args:
        loop: the event loop.
        end: called at the end of a turn with who waits for its write, and whether to start a sync.

    Attributes:
        loop: the event loop.
        waiting: who waits for the write at the end of this turn; see `watch`.
        crowded: whether several ask in each turn.
    """

    __slots__ = (
        "_armed",
        "_asked",
        "_end",
        "_ending",
        "_owed",
        "_sync",
        "crowded",
        "loop",
        "waiting",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, end: Callable[[list[Future], bool], None]
    ) -> None:
        self.loop = loop
        self._end = end
        self._asked = 0
        self._ending = self._sync = self._armed = self._owed = self.crowded = False
        self.waiting: list[Future] = []

    def ask(self) -> bool:
        """Note that a sync is waited for; whether it starts now, or else at the end of the turn."""
        self._asked += 1
        if self._asked < 2 and not self.crowded:
            return True
        self._sync = True
        self.watch()
        return False

    def postpone(self) -> None:
        """Have a sync started that nobody waits for."""
        if self.crowded:
            self._sync = True
            self.watch()
            return
        self._owed = True
        if not self._armed:
            # One timer for many steps: what was called soon would have the loop look at its files
            # once more for each of them, and so hold the flusher up.
            self._armed = True
            self.loop.call_later(_MOMENT, self._start_postponed)

    def take_along(self) -> bool:
        """Take a postponed sync back because another one starts; whether there was one."""
        owed, self._owed = self._owed, False
        return owed

    def woken(self) -> None:
        """Note that who waited for a sync goes on."""
        self._asked = 0

    def watch(self) -> None:
        """See to the end of this turn."""
        if not self._ending:
            self._ending = True
            self.loop.call_soon(self._turn_ends)

    def _turn_ends(self) -> None:
        self._ending = False
        if self._asked:
            self.crowded, self._asked = self._asked > 1, 0
        waiting, self.waiting = self.waiting, []
        sync, self._sync = self._sync, False
        self._end(waiting, sync)

    def _start_postponed(self) -> None:
        self._armed = False
        if self._owed:
            self._owed = False
            self._end([], True)

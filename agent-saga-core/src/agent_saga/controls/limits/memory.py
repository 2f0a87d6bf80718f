"""Counts in this process: no hop, no disk, nothing that another process sees.

Rules of this part:

- Where the calls of a tool are counted is looked up once (`places`), as long as the scope is the
  same. A count that was dropped meanwhile is empty, and serves again.
- One lock makes a call's charges all or nothing among threads: what was counted before a limit that
  the call is over is handed back before the lock is.
- A busy count is quick: until its newest entry closes, a whole amount that fits beside all that is
  kept only joins it. What has left the window is looked at when one does not fit.
- Limits of one name share a count. What is kept is kept for the longest of their windows; each adds
  up what lies within its own.
- Counts that are empty are dropped, so that a scope by customer does not grow with the customers.
- Nothing survives the process; a forked child begins with a copy and counts alone from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic as _monotonic
from typing import TypeAlias

from agent_saga.controls.amounts import Number, add
from agent_saga.controls.limits.limit import Limit
from agent_saga.controls.limits.usage import Over, Usage, over
from agent_saga.controls.limits.window import MERGED, Window, negative
from agent_saga.wal.os_port import restart_after_fork

__all__ = ["MemoryLimitStore", "Taken"]


Taken: TypeAlias = tuple[Window, int, Number]
"""One amount that was counted for a call: in which window, by which entry, and how much."""

Place: TypeAlias = "tuple[Limit, _Counted, Number | None]"
"""Where a call of some tool is counted: the limit, the count, how much; None for its amount."""


class _Counted(Window):
    """The count of one scope of the limits of one name.

    What joins the newest entry of a busy count is added to the total only; before anything else is
    done with the count, the entry is made to say so too.

    Attributes:
        limit: the one of them with the longest window. scope: what is counted.
        gone: it was empty and is counted in no more; see `MemoryLimitStore`.
        joins_until: before this time, a whole amount may join the newest entry.
        newest, last: that entry's name, and when something joined it.
        others: what the other entries add up to.
    """

    __slots__ = ("gone", "joins_until", "last", "limit", "newest", "others", "scope")

    def __init__(self, limit: Limit, scope: str) -> None:
        super().__init__()
        self.limit = limit
        self.scope = scope
        self.gone = False
        self.joins_until = -inf
        self.newest = 0
        self.last = -inf
        self.others: Number = 0

    def take(self, amount: Number, length: float, now: float) -> int:
        """Count an amount, and return the name of its entry."""
        if self.joins_until > -inf:
            self._tell()
        self.newest = super().take(amount, length, now)
        if len(self.ends) >= MERGED and type(self.total) is int:  # and so is every amount in it
            self.joins_until = self.start + length / MERGED
            self._told()
        else:
            self.joins_until = -inf
        return self.newest

    def prune(self, length: float, now: float) -> None:
        """Forget what has left the window."""
        ends = self.ends
        if ends and ends[0] + length <= now:  # what joined it since leaves later still
            self._tell()
            super().prune(length, now)
            self._told()

    def within(self, length: float, now: float) -> Number:
        """Return what counts within a length that may be shorter than what is kept."""
        self._tell()
        return super().within(length, now)

    def give_back(self, entry: int, amount: Number) -> None:
        """Take an amount out of an entry again, unless that has left the window."""
        self._tell()
        super().give_back(entry, amount)
        self._told()

    def _tell(self) -> None:
        """Have the newest entry say what has joined it."""
        if self.joins_until > -inf and self.ends:
            self.ends[-1] = self.last
            self.amounts[-1] = add(self.total, negative(self.others))

    def _told(self) -> None:
        """Note what the newest entry says, if anything may join it."""
        if self.joins_until > -inf and self.ends:
            self.last = self.ends[-1]
            self.others = add(self.total, negative(self.amounts[-1]))


class MemoryLimitStore:
    """Counts of limits that live in this process.

    Args:
        monotonic: the clock, in seconds; it must never step back.

    Crash: everything is forgotten. Use it where one process does all that the limits are for.
    """

    def __init__(self, *, monotonic: Callable[[], float] = _monotonic) -> None:
        self._now = monotonic
        self._windows: dict[tuple[str, str], _Counted] = {}
        self._sweep_at = 1024
        self._lock = threading.Lock()
        restart_after_fork(self)

    def take(
        self, wants: Sequence[tuple[Limit, str, Number]], forced: frozenset[str]
    ) -> tuple[list[Taken], list[Over]]:
        """Count a call against all of its limits, or against none.

        Args:
            wants: limit, scope and amount, for each limit that polices the call.
            forced: the names of the limits that a human has let it through.

        Returns:
            What was counted and where; or the limits that the call is over.
        """
        whole = all(type(amount) is int for _, _, amount in wants)
        return self.take_at(self.places(wants), 0, forced, whole=whole)

    def places(self, wants: Sequence[tuple[Limit, str, Number | None]]) -> tuple[Place, ...]:
        """Return where calls are counted that want such amounts in such scopes.

        Args:
            wants: limit, scope and amount; None is the amount that each call brings.
        """
        with self._lock:
            now = self._now()
            return tuple([(one, self._at(one, scope, now), of) for one, scope, of in wants])

    def take_at(
        self, places: Sequence[Place], amount: int, forced: frozenset[str], *, whole: bool = True
    ) -> tuple[list[Taken], list[Over]]:
        """Count a call as `take` does, where it is known already where.

        Args:
            places: where it is counted.
            amount: what it wants of those limits for which that is not said there.
            forced: as for `take`.
            whole: every amount is an int.
        """
        taken: list[Taken] = []
        overs: list[Over] = []
        with self._lock:
            now = self._now()
            joins = now if whole else inf
            for limit, window, fixed in places:
                wanted = amount if fixed is None else fixed
                if joins < window.joins_until and window.limit is limit:
                    total = window.total + wanted
                    if total <= limit.most:
                        window.total = total
                        window.last = now
                        taken.append((window, window.newest, wanted))
                        continue
                self._count(limit, self._still(window), wanted, now, forced, taken, overs)
            if overs:
                self._hand_back(taken)
                return [], overs
            return taken, overs

    def _count(
        self,
        limit: Limit,
        window: _Counted,
        amount: Number,
        now: float,
        forced: frozenset[str],
        taken: list[Taken],
        overs: list[Over],
    ) -> None:
        """Count an amount as an entry, or add the limit to those that the call is over."""
        if limit.window > window.limit.window:
            window.limit = limit
        length = window.limit.window
        window.prune(length, now)
        total = window.within(limit.window, now) if limit.window < length else window.total
        if add(total, amount) <= limit.most or limit.name in forced:
            taken.append((window, window.take(amount, length, now), amount))
        else:
            overs.append(over(limit, window.scope, amount, window, now))

    def give_back(self, taken: Sequence[Taken]) -> None:
        """Hand back what a call took that did not start."""
        with self._lock:
            self._hand_back(taken)

    @staticmethod
    def _hand_back(taken: Sequence[Taken]) -> None:
        for window, entry, amount in taken:
            window.give_back(entry, amount)

    def usage(self) -> list[Usage]:
        """Return what is counted now, by limit and scope."""
        with self._lock:
            now = self._now()
            found = []
            for (name, scope), window in sorted(self._windows.items(), key=_by_name):
                limit = window.limit
                window.prune(limit.window, now)
                used = Usage(name, scope, window.total, limit.most, limit.window, 0)
                found.append(used)
            return found

    def _at(self, limit: Limit, scope: str, now: float) -> _Counted:
        """Return the count of a limit's scope."""
        window = self._windows.get((limit.name, scope))
        if window is None:
            if len(self._windows) >= self._sweep_at:
                self._sweep(now)
            window = self._windows[limit.name, scope] = _Counted(limit, scope)
        return window

    def _still(self, window: _Counted) -> _Counted:
        """Return a count of which somebody knew, or what has come in its place."""
        if window.gone:
            found = self._windows.setdefault((window.limit.name, window.scope), window)
            window.gone = found is not window  # it is empty, so it can serve again
            return found
        return window

    def _sweep(self, now: float) -> None:
        for key, window in list(self._windows.items()):
            window.prune(window.limit.window, now)
            if not window.ends:
                window.gone = True
                del self._windows[key]
        self._sweep_at = max(1024, 2 * len(self._windows))

    def restart_in_child(self) -> None:
        """In a forked child: the lock's holder does not exist here."""
        self._lock = threading.Lock()


def _by_name(item: tuple[tuple[str, str], object]) -> tuple[str, str]:
    return item[0]

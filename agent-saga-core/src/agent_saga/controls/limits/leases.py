"""Leases: a part of a shared count that this process spends in memory, for a moment.

Rules of this part:

- A lease is taken with a call's amount, in the same transaction, and counts as used, all of it,
  until what is left is handed back. So no sum over any window is above what a limit allows,
  whatever becomes of the process: one that dies has used its leases up.
- It counts as if it were spent at its end, and nobody spends of it later: nothing of it leaves the
  window early. In a forked child there is none.
- Only a busy count is leased from, and little: a 64th of the limit at most, nothing of its upper
  half, for a quarter of a second. Then a timer hands back what is left; so does the next call that
  goes to the store, and the end of the process.
- A call is served here only if each of its counts has enough; else the store is asked for all.
- What a call took stands under its name until its announcement is out, and can be handed back. A
  lease that ends before leaves the name to the store.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from agent_saga.controls.amounts import Number, add
from agent_saga.controls.limits.count import LEASE, Count
from agent_saga.errors import AgentSagaError, StateUnavailable
from agent_saga.wal.os_port import FORKS

if TYPE_CHECKING:
    from agent_saga.controls.limits.asked import Asked
    from agent_saga.controls.limits.moments import Moment

__all__ = ["LONGEST", "Borrowing", "Lease", "Leases"]

LONGEST: Final = 0.25
"""Seconds that a lease lasts at most."""

SHARE: Final = 64
"""A lease is this part of the limit at most, and of its window."""

FEWEST, MOST = 4, 64
"""Calls that a lease is for: at first, and at most."""

_REMEMBERED: Final = 4096
_LEAST_PAUSE: Final = 0.02

Named = Mapping[str, tuple[Number, bool]]
"""What calls took of a lease, by name: the amount, and whether it stays counted in any case."""


class Lease:
    """What this process may spend of one count.

    Attributes:
        name: under which the store has it. most, window: of the limit that it was taken for.
        until: when it ends, on the clock of the counts. began: on the machine's own.
        left: what nobody has spent.
        named: calls that took of it and whose announcements are not known to be out.
        open: it may be spent of; never again once it is not.
    """

    __slots__ = ("began", "left", "most", "name", "named", "open", "until", "window")

    def __init__(self, name: str, one: Asked, left: int, until: float) -> None:
        self.name = name
        self.most, self.window = one.limit.most, one.limit.window
        self.until = until
        self.began = time.monotonic()
        self.left = left
        self.named: dict[str, tuple[int, bool]] = {}
        self.open = True

    def serves(self, name: str, one: Asked, now: float) -> bool:
        """Say whether a call may take of it what it asks for."""
        return (
            self.open
            and now < self.until
            and type(one.amount) is int
            and (one.amount <= self.left or name in self.named)
            and one.limit.most == self.most
            and one.limit.window == self.window
        )


class Leases:
    """The leases of one store of limits in this process.

    Args:
        hand_back: has the store count leases as ended, by the keys of their counts; blocks.
        monotonic: the clock, in seconds.

    Crash: what is left of a lease stays counted until it leaves the window.
    """

    def __init__(
        self, hand_back: Callable[[Borrowing], object], monotonic: Callable[[], float]
    ) -> None:
        self.own = f"{LEASE}{os.urandom(8).hex()}/"
        self.lock = threading.Lock()
        self._hand_back = hand_back
        self._monotonic = monotonic
        self._numbers = itertools.count()
        self._of: dict[str, Lease] = {}
        self._asked: dict[str, tuple[float, int]] = {}
        self._timer: threading.Timer | None = None
        self._fork = FORKS.generation
        self.outlived: set[str] = set()

    def take(self, name: str, asked: Sequence[Asked], *, stays: bool) -> bool:
        """Take what a call asks for of leases, all of it or nothing; say whether it was."""
        if not self._of:
            return False
        now = self._monotonic()
        with self.lock:
            found = [self._of.get(one.key) for one in asked]
            for lease, one in zip(found, asked, strict=True):
                if lease is None or not lease.serves(name, one, now):
                    return False
            for lease, one in zip(found, asked, strict=True):
                if lease is not None and type(one.amount) is int and name not in lease.named:
                    lease.left -= one.amount
                    lease.named[name] = (one.amount, stays)
        return True

    def settle(self, name: str, key: str) -> bool:
        """Let what a call took be counted without its name; say whether that is all to be done."""
        with self.lock:
            lease = self._of.get(key)
            return lease is not None and lease.named.pop(name, None) is not None and lease.open

    def give_back(self, name: str, keys: Sequence[str]) -> list[str]:
        """Hand back what a call took; return the counts of which the store may know its name."""
        left = []
        with self.lock:
            for key in keys:
                lease = self._of.get(key)
                taken = None if lease is None else lease.named.pop(name, None)
                if lease is not None and taken is not None:
                    lease.left += int(taken[0])
                if lease is None or taken is None or not lease.open:
                    left.append(key)
        return left

    # --- with the store --------------------------------------------------------------------------

    def borrowing(self, keys: Sequence[str]) -> Borrowing:
        """End the leases of some counts, and say how many calls new ones are to be for."""
        now = self._monotonic()
        with self.lock:
            wishes = {key: self._wish(key, now) for key in keys}
            return Borrowing(self, self._ended(keys), wishes)

    def _wish(self, key: str, now: float) -> int:
        last, wish = self._asked.get(key, (now - 2 * LONGEST, 0))
        wish = min(MOST, max(FEWEST, 2 * wish)) if now - last < LONGEST else 0
        if len(self._asked) >= _REMEMBERED:
            self._asked.clear()
        self._asked[key] = (now, wish)
        return wish

    def _ended(self, keys: Sequence[str]) -> dict[str, Lease]:
        ended = {key: self._of[key] for key in keys if key in self._of}
        for lease in ended.values():
            lease.open = False
        return ended

    def stored(self, ended: Mapping[str, Lease], begun: Mapping[str, Lease]) -> None:
        """Take in what the store has stored: which leases ended, and which began."""
        with self.lock:
            for key, lease in ended.items():
                if self._of.get(key) is lease:
                    del self._of[key]
            self._of.update(begun)
        if begun:
            self._watch()

    def new_name(self) -> str:
        """Return a name for a lease that nobody else has."""
        return f"{self.own}{next(self._numbers)}"

    # --- their ends ------------------------------------------------------------------------------

    def end(self, *, every: bool = True) -> None:
        """Have the store count leases as ended: all, or those that began long enough ago; blocks.

        Raises:
            StateError: the store cannot be used; they stay counted until it can.
        """
        past = time.monotonic() - LONGEST
        with self.lock:
            keys = [key for key, one in self._of.items() if every or one.began <= past]
            ended = self._ended(keys)
        if ended and self._fork == FORKS.generation:
            self._hand_back(Borrowing(self, ended, {}))

    def _watch(self, at_least: float = 0.0) -> None:
        """Have what is left handed back when its time is over, and when the process ends.

        Args:
            at_least: seconds until then.
        """
        with self.lock:
            if self._timer is not None or not self._of:
                return
            _at_end(self)
            first = min(lease.began for lease in self._of.values())
            pause = max(at_least, first + LONGEST - time.monotonic())
            timer = self._timer = threading.Timer(pause, self._tick)
            timer.daemon = True
        with contextlib.suppress(RuntimeError):  # no thread to be had: the next call does it
            timer.start()

    def _tick(self) -> None:
        self._timer = None
        try:
            self.end(every=False)
        except StateUnavailable:
            self._watch(LONGEST)
        except AgentSagaError:
            return  # closed, removed or damaged: the next call says so, or ends them
        else:
            self._watch(_LEAST_PAUSE)


class Borrowing:
    """The leases that end and begin in one transaction.

    Args:
        leases: of this process.
        ended: those that end, by the keys of their counts.
        wishes: how many calls a new one is to be for, by key; 0 for none.
    """

    def __init__(
        self, leases: Leases, ended: Mapping[str, Lease], wishes: Mapping[str, int]
    ) -> None:
        self._leases = leases
        self.ended = ended
        self._wishes = wishes

    def hand_back(self, key: str, count: Count) -> None:
        """Hand back what is left of a lease of this count, if one ends."""
        lease = self.ended.get(key)
        if lease is not None:
            with self._leases.lock:
                left, named = lease.left, dict(lease.named)
            count.end_lease(lease.name, left, named)

    def lent(self, counts: Sequence[Count]) -> set[str]:
        """Return the leases that other processes have, except those that outlived their time."""
        names = {name for count in counts for name in count.held if name.startswith(LEASE)}
        return {name for name in names - self._leases.outlived if self._is_foreign(name)}

    def _is_foreign(self, name: str) -> bool:
        return not name.startswith(self._leases.own)

    def lease(self, one: Asked, count: Count, now: Moment, writer: str) -> Lease | None:
        """Take a lease of a count that has just been taken of; None if none is due."""
        most, amount, used = one.limit.most, one.amount, count.used
        wish = self._wishes.get(one.key, 0)
        if not wish or not amount or not type(most) is type(amount) is type(used) is int:
            return None
        calls = min(wish, most // SHARE // amount)
        if calls < 2 or any(name.startswith(self._leases.own) for name in count.held):
            return None
        if add(used, calls * amount) > most // 2:
            return None
        lasts = min(LONGEST, one.limit.window / SHARE)
        name = self._leases.new_name()
        count.lease(name, calls * amount, writer, lasts)
        return Lease(name, one, calls * amount, now.monotonic + lasts)

    def stored(self, begun: Mapping[str, Lease]) -> None:
        """Say that the store has stored it, with the leases that began."""
        self._leases.stored(self.ended, begun)


_leasing: Final[WeakSet[Leases]] = WeakSet()


def _at_end(leases: Leases) -> None:
    """Have leases end with the process, before the stores are closed, which exist by now."""
    if not _leasing:
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
    _leasing.add(leases)


def _at_exit() -> None:
    for leases in list(_leasing):
        with contextlib.suppress(AgentSagaError):
            leases.end()

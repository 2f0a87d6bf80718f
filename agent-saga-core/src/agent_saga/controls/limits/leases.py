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
- A lease that began while its caller was cut off, or got no answer, is spent by nobody; it ends the
  same way.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakSet

from agent_saga.controls.amounts import Number, add
from agent_saga.controls.limits.asked import SharedTaken
from agent_saga.controls.limits.count import LEASE, Count
from agent_saga.errors import AgentSagaError, StateUnavailable
from agent_saga.observe.living import living
from agent_saga.wal.os_port import FORKS

if TYPE_CHECKING:
    from agent_saga.controls.limits.asked import Asked
    from agent_saga.controls.limits.limit import Limit
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


class Lease:
    """What this process may spend of one count.

    Attributes:
        name: under which the store has it. key, place: of the count; its limit's name, its scope.
        limit: for which it was taken.
        until: when it ends, on the clock of the counts. began: on the machine's own.
        left: what nobody has spent. last: what the last call took.
        open: it may be spent of; never again once it is not.
    """

    __slots__ = ("began", "key", "last", "left", "limit", "name", "open", "place", "until")

    def __init__(self, name: str, one: Asked, left: int, until: float) -> None:
        self.name = name
        self.key, self.limit = one.key, one.limit
        self.place = (one.limit.name, one.scope)
        self.until = until
        self.began = time.monotonic()
        self.left = left
        self.last = one.taken
        self.open = True

    def serves(self, limit: Limit, amount: Number, now: float) -> bool:
        """Say whether a call may take of it what it wants."""
        own = self.limit
        return (
            self.open
            and now < self.until
            and type(amount) is int
            and amount <= self.left
            and (limit is own or (limit.most == own.most and limit.window == own.window))
        )

    def take(self, amount: int) -> SharedTaken:
        """Take what it serves, and return what the call holds then."""
        self.left -= amount
        last = self.last
        if last.amount != amount:
            last = self.last = SharedTaken(last.key, amount, last.window, last.scope)
        return last


class _Call(NamedTuple):
    """What a call took.

    Attributes:
        parts: of which leases, and how much.
        stays: whether it stays counted in any case.
        endings: how many leases had ended by then.
    """

    parts: dict[Lease, int]
    stays: bool
    endings: int


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
        self._at: dict[tuple[str, str], Lease] = {}
        self._calls: dict[str, _Call] = {}
        self._endings = 0
        self._unheard: list[tuple[Borrowing, Lease]] = []
        self._asked: dict[str, tuple[float, int]] = {}
        self._timer: threading.Timer | None = None
        self._fork = FORKS.generation
        self.outlived: set[str] = set()

    def take(
        self, name: str, wants: Sequence[tuple[Limit, str, Number]], *, stays: bool
    ) -> list[SharedTaken]:
        """Take what a call wants of leases, and return it; nothing if they do not have it all."""
        at = self._at
        if not at:
            return []
        now = self._monotonic()
        parts: dict[Lease, Any] = {}
        with self.lock:
            if name in self._calls:
                return []  # the store knows what it holds
            for limit, scope, amount in wants:
                lease = at.get((limit.name, scope))
                if lease is None or not lease.serves(limit, amount, now):
                    return []
                parts.setdefault(lease, amount)  # a call takes of a count once
            self._calls[name] = _Call(parts, stays, self._endings)
            return [lease.take(amount) for lease, amount in parts.items()]

    def settle(self, name: str, taken: Sequence[SharedTaken]) -> list[str]:
        """Let what a call took be counted without its name; return the counts that may know it."""
        with self.lock:
            return self._apart(self._calls.pop(name, None), taken)

    def give_back(self, name: str, taken: Sequence[SharedTaken]) -> list[str]:
        """Hand back what a call took; return the counts of which the store may know its name."""
        with self.lock:
            call = self._calls.pop(name, None)
            for lease, amount in call.parts.items() if call is not None else ():
                lease.left += amount
            return self._apart(call, taken)

    def _apart(self, call: _Call | None, taken: Sequence[SharedTaken]) -> list[str]:
        """Return the counts of which a call did not take by a lease that is open now."""
        if call is None:
            return [one.key for one in taken]
        if call.endings == self._endings:
            return []
        here = [lease.key for lease in call.parts if lease.open]
        return [one.key for one in taken if one.key not in here]

    def taken_of(self, lease: Lease) -> tuple[int, dict[str, tuple[Number, bool]]]:
        """Return what is left of a lease, and what calls hold of it by their names."""
        with self.lock:
            return lease.left, {
                name: (call.parts[lease], call.stays)
                for name, call in self._calls.items()
                if lease in call.parts
            }

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
        self._endings += len(ended)
        return ended

    def began(self, borrowing: Borrowing, lease: Lease) -> None:
        """Note a lease that begins if the transaction is stored; nobody has heard of it yet."""
        with self.lock:
            self._unheard.append((borrowing, lease))

    def spent_by_nobody(self, key: str) -> list[Lease]:
        """Return the leases of a count that began, if they did, and whose callers gave up."""
        if not self._unheard:
            return []
        with self.lock:
            return [one for by, one in self._unheard if by.given_up and one.key == key]

    def forget(self, lease: Lease) -> None:
        """Forget a lease that the store does not have, and that nobody spends."""
        with self.lock:
            self._unheard = [pair for pair in self._unheard if pair[1] is not lease]

    def give_up(self, borrowing: Borrowing) -> None:
        """Note that whoever asked for leases heard of none; what began is handed back later."""
        borrowing.given_up = True
        self._watch()

    def stored(self, borrowing: Borrowing, begun: Mapping[str, Lease]) -> None:
        """Take in what the store has stored: which leases ended, and which began."""
        with self.lock:
            if self._unheard:
                over = [*borrowing.ended.values()]
                self._unheard = [
                    (by, one)
                    for by, one in self._unheard
                    if by is not borrowing and one not in over
                ]
            for key, lease in borrowing.ended.items():
                if self._of.get(key) is lease:
                    del self._of[key], self._at[lease.place]
                    self._forget(lease)
            self._of.update(begun)
            self._at.update({lease.place: lease for lease in begun.values()})
        if begun:
            self._watch()

    def _forget(self, lease: Lease) -> None:
        """Leave what calls took of a lease to the store."""
        for name, call in list(self._calls.items()):
            if call.parts.pop(lease, None) is not None and not call.parts:
                del self._calls[name]

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
            ended = {one.key: one for by, one in self._unheard if by.given_up} | ended
        if ended and self._fork == FORKS.generation:
            self._hand_back(Borrowing(self, ended, {}))

    def _watch(self, at_least: float = 0.0) -> None:
        """Have what is left handed back when its time is over, and when the process ends.

        Args:
            at_least: seconds until then.
        """
        with self.lock:
            if self._timer is not None or not (self._of or self._unheard):
                return
            _at_end(self)
            now = time.monotonic()
            first = min([lease.began for lease in self._of.values()], default=now)
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
        self.given_up = False

    def hand_back(self, key: str, count: Count) -> bool:
        """Hand back what is left of leases of this count that end; False if none does."""
        lease = self.ended.get(key)
        if lease is not None:
            count.end_lease(lease.name, *self._leases.taken_of(lease))
        lost = self._leases.spent_by_nobody(key)
        for one in lost:
            if one.name in count.held:
                count.end_lease(one.name, one.left, {})
            else:
                self._leases.forget(one)
        return lease is not None or bool(lost)

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
        lease = Lease(name, one, calls * amount, now.monotonic + lasts)
        self._leases.began(self, lease)
        return lease

    def stored(self, begun: Mapping[str, Lease]) -> None:
        """Say that the store has stored it, with the leases that began."""
        self._leases.stored(self, begun)

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Give up the leases that may begin in a block which does not come to its end."""
        try:
            yield
        except BaseException:
            self._leases.give_up(self)
            raise


_leasing: Final[WeakSet[Leases]] = WeakSet()


def _at_end(leases: Leases) -> None:
    """Have leases end with the process, before the stores are closed, which exist by now."""
    if not _leasing:
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
    _leasing.add(leases)


def _at_exit() -> None:
    for leases in living(_leasing):
        with contextlib.suppress(AgentSagaError):
            leases.end()

"""The counting of one limit and scope: what was let through, and what has left the window.

Rules of this part:

- No sum over any window is ever above what the limit allows. What is let through at time t counts
  until t + window; amounts that lie close together are kept as one entry, which counts until the
  last of them leaves. So a busy window forgets late, by a sixteenth of itself at most, never early.
- The size of a count is bounded, however many calls it counted.
- An entry is named by its place from the first one ever on, so that the name stays right when
  older ones leave.
- The caller holds whatever makes this atomic, and gives the time; it never steps back.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, NamedTuple

from agent_saga.controls.amounts import Number, add, number_of, text_of

__all__ = ["MERGED", "NOTHING", "Packed", "Window", "negative"]

MERGED: Final = 16
"""Entries from which on neighbours become one when they lie within this fraction of the window."""


class Packed(NamedTuple):
    """Entries that were put away.

    Attributes:
        number: how many.
        first: when the first of them ended.
        text: `end:amount` of each, with blanks between.
    """

    number: int
    first: float
    text: str


NOTHING: Final = Packed(0, 0.0, "")


class Window:
    """One count.

    Attributes:
        total: what is in the window.
        base: how many entries have left it.
        start: the time of the first amount of the last entry.
        ends, amounts: of each entry the time of its last amount, and the sum; the oldest first.
        packed: older entries as a text, which is read only when one of them matters.
    """

    __slots__ = ("amounts", "base", "ends", "packed", "start", "total")

    def __init__(
        self,
        total: Number = 0,
        base: int = 0,
        start: float = 0.0,
        ends: list[float] | None = None,
        amounts: list[Number] | None = None,
        packed: Packed = NOTHING,
    ) -> None:
        self.total = total
        self.base = base
        self.start = start
        self.ends: list[float] = [] if ends is None else ends
        self.amounts: list[Number] = [] if amounts is None else amounts
        self.packed = packed

    def prune(self, length: float, now: float) -> None:
        """Forget what has left the window, which is so many seconds long."""
        if self.packed.number:
            if self.packed.first + length > now:
                return
            self.unpack()
        ends = self.ends
        gone = 0
        for end in ends:
            if end + length > now:
                break
            self.total = add(self.total, negative(self.amounts[gone]))
            gone += 1
        if gone:
            self.base += gone
            del ends[:gone], self.amounts[:gone]

    def within(self, length: float, now: float) -> Number:
        """Return what counts within a length that may be shorter than what is kept."""
        self.unpack()
        total = self.total
        for end, amount in zip(self.ends, self.amounts, strict=True):
            if end + length > now:
                break
            total = add(total, negative(amount))
        return total

    def take(self, amount: Number, length: float, now: float) -> int:
        """Count an amount, and return the name of its entry."""
        total, ends, amounts = self.total, self.ends, self.amounts
        whole = type(total) is type(amount) is int  # and so is every amount in such a total
        self.total = total + amount if whole else add(total, amount)
        count = len(ends) + self.packed[0]
        if count >= MERGED and now - self.start < length / MERGED:
            ends[-1] = max(ends[-1], now)
            amounts[-1] = amounts[-1] + amount if whole else add(amounts[-1], amount)
            return self.base + count - 1
        self.start = now
        ends.append(now)
        amounts.append(amount)
        return self.base + count

    def give_back(self, entry: int, amount: Number) -> None:
        """Take an amount out of an entry again, unless that has left the window."""
        at = entry - self.base - self.packed.number
        if at < 0 and self.packed.number:
            self.unpack()
            at = entry - self.base
        if at >= 0:
            self.amounts[at] = add(self.amounts[at], negative(amount))
            self.total = add(self.total, negative(amount))

    def free_after(self, amount: Number, most: Number, length: float, now: float) -> float | None:
        """Return the seconds until an amount fits; None when it never does."""
        if amount > most:
            return None
        left = self.within(length, now)
        wait = 0.0
        for end, leaves in zip(self.ends, self.amounts, strict=True):
            if end + length <= now:
                continue
            if add(left, amount) <= most:
                break
            left = add(left, negative(leaves))
            wait = max(0.0, end + length - now)
        return wait

    def unpack(self) -> None:
        """Read the older entries."""
        if self.packed.number:
            pairs = [one.split(":") for one in self.packed.text.split()]
            self.ends = [*[float(end) for end, _ in pairs], *self.ends]
            self.amounts = [*[number_of(amount) for _, amount in pairs], *self.amounts]
            self.packed = NOTHING

    def pack(self) -> None:
        """Put all entries but the last one away as a text."""
        old = len(self.ends) - 1
        if old > 0:
            more = [
                f"{end!r}:{text_of(amount)}"
                for end, amount in zip(self.ends[:old], self.amounts[:old], strict=True)
            ]
            packed = self.packed
            first = packed.first if packed.number else self.ends[0]
            text = " ".join([packed.text, *more] if packed.number else more)
            self.packed = Packed(packed.number + old, first, text)
            del self.ends[:old], self.amounts[:old]


def negative(number: Number) -> Number:
    """Return the exact negative of a number, however many digits it has."""
    return number.copy_negate() if isinstance(number, Decimal) else -number

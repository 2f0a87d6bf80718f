"""The end of the log in memory: what was appended and is not yet written, and what it weighs.

Rules of this part:

- No locks and no I/O. The log calls it under its lock, `written` under the lock of its writes.
- The tail is replaced as a whole by one assignment, and only by whoever holds the lock of the
  writes. An interruption between two lines of code (Ctrl-C) so leaves either the old tail or the
  new one, and doing it again does no harm; `put` adds to the list that both of them hold.
- A batch, once stamped, stays the same until it is known to be written: same bytes, same
  sequence.
- The backlog counts, generously, the bytes that were appended and are not yet durable. By the same
  count a segment is full, and a record that ends it stands before the entry that found it so.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from agent_saga.domain.records import Ev
from agent_saga.wal.encoding import masked
from agent_saga.wal.format import Chain, Entry, Salts, stamped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Batch", "Buffer", "Durable", "own_entry"]

Durable = tuple[int, Entry]
"""A record that became durable: its sequence and what was appended."""


class Batch(Struct, frozen=True, gc=False):
    """Stamped lines that are written together.

    `last` is the sequence of the last line; `seals` says that this line seals its segment.
    """

    data: bytes
    last: int
    seals: bool = False


_Tail = tuple[Batch | None, Chain, list[Entry]]
"""The stamped batch that is not yet written, the chain behind it, and what waits to be stamped."""

_NOTHING: Final[Chain] = (0, b"")
_ENDLESS: Final = 2**62
_OVERHEAD: Final = 256
"""Bytes of a line beside its payload: enough to plan with, not a bound."""


def own_entry(time: int, event: str, facts: Mapping[str, object]) -> Entry:
    """A record that the log writes about itself."""
    return (time, event, "", 0, "", 0, masked(facts)[0])


class Buffer:
    """What was appended and is not yet durable.

    Args:
        chain: where the writer's chain stands.
        sizes: told again for every segment: how many bytes of lines it takes.

    Attributes:
        bytes_in: about how many bytes were appended.
        bytes_durable: about how many of them are durable.
        carried: the highest watermark that a stamped line carries.
        observing: whether appended entries are kept until they are durable, for observers.
    """

    __slots__ = (
        "_full_at",
        "_salts",
        "_seals",
        "_sizes",
        "_stamped",
        "_syncing",
        "_tail",
        "_undurable",
        "bytes_durable",
        "bytes_in",
        "carried",
        "observing",
    )

    def __init__(
        self, chain: Chain = _NOTHING, sizes: Callable[[], int] = lambda: _ENDLESS
    ) -> None:
        self._sizes = sizes
        self._full_at = sizes()
        self._tail: _Tail = (None, chain, [])
        self.bytes_in = self.bytes_durable = self._stamped = self._syncing = 0
        self._salts = Salts()
        self._seals = False
        self._undurable: deque[Durable] = deque()
        self.carried = 0
        self.observing = False

    @property
    def seq(self) -> int:
        """The sequence of the last record that was appended."""
        _, chain, waiting = self._tail
        return chain[0] + len(waiting)

    @property
    def backlog(self) -> int:
        """About how many bytes were appended and are not yet durable."""
        return self.bytes_in - self.bytes_durable

    def put(self, entry: Entry) -> int:
        """Add an entry, behind the end of its segment if that is full; returns its sequence."""
        end = self.bytes_in + _OVERHEAD + len(entry[6])
        if end > self._full_at:
            end += self._put_seal(entry[0])
        _, chain, waiting = self._tail
        waiting.append(entry)
        self.bytes_in = end
        if self.observing:
            self._undurable.append((self.seq, entry))
        return chain[0] + len(waiting)

    def _put_seal(self, time: int) -> int:
        """Add the record that ends a segment, and begin the next; returns what it adds."""
        seal = own_entry(time, Ev.SEGMENT_SEAL, {"last": self.seq})
        size = _OVERHEAD + len(seal[6])
        self._full_at = self.bytes_in + size
        self._seals = True  # first: it only has the next stamping look for one
        self.put(seal)
        self._full_at = self.bytes_in + self._sizes()
        return size

    def stamp(self, mark: int) -> Batch | None:
        """The batch to write next, at most up to a seal; None when nothing waits.

        Args:
            mark: the highest sequence known durable now.
        """
        batch, chain, waiting = self._tail
        if batch is not None or not waiting:
            return batch
        if len(waiting) > 1 or self._seals:
            batch, chain, waiting = self._stamp_many(chain, waiting, mark)
        else:
            line, chain = stamped(waiting[0], chain, mark, self._salts)
            batch, waiting = Batch(line, chain[0]), []
        self._tail = (batch, chain, waiting)
        self.carried = mark
        self._stamped = self.bytes_in
        return batch

    def _stamp_many(
        self, chain: Chain, waiting: list[Entry], mark: int
    ) -> tuple[Batch, Chain, list[Entry]]:
        """The tail that is made by stamping up to the first record that ends a segment."""
        count = self._to_seal(waiting) if self._seals else 0
        salts, lines = self._salts, []
        for entry in waiting[:count] if count else waiting:
            line, chain = stamped(entry, chain, mark, salts)
            lines.append(line)
        batch = Batch(b"".join(lines), chain[0], count > 0)
        return batch, chain, waiting[len(lines) :]

    def _to_seal(self, waiting: list[Entry]) -> int:
        """How many entries stand up to the first one that ends a segment; 0 when none does."""
        for count, entry in enumerate(waiting, 1):
            if entry[1] == Ev.SEGMENT_SEAL:
                return count
        self._seals = False
        return 0

    def written(self) -> bool:
        """Note that the stamped batch is written; whether more waits."""
        _, chain, waiting = self._tail
        self._tail = (None, chain, waiting)
        return bool(waiting)

    def syncing(self) -> None:
        """Note that what was stamped until now is being made durable."""
        self._syncing = self._stamped

    def durable(self, seq: int) -> list[Durable]:
        """Note that everything up to `seq` is durable; returns what observers are told."""
        self.bytes_durable = self._syncing
        undurable = self._undurable
        told: list[Durable] = []
        while undurable and undurable[0][0] <= seq:
            told.append(undurable.popleft())
        return told

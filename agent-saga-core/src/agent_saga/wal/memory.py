"""A log in memory: nothing survives the process, and whoever asks for it is told so.

Rules of this part:

- It is chosen by name (`memory:`), never by default, and its capabilities say "memory".
- What was drained counts as durable: there is nothing to wait for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent_saga.wal.base import BaseWAL, Batch, Capabilities
from agent_saga.wal.format import Record, parsed
from agent_saga.wal.writer import new_writer_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["MemoryWAL"]


class MemoryWAL(BaseWAL):
    """A log in memory, for tests and for runs whose undo needs no crash safety."""

    address = "memory:"
    capabilities = Capabilities("memory", False, False, False, False)
    syncs_inline = True

    def _reset(self) -> None:
        super()._reset()
        self._lines: list[bytes] = []
        self._last = 0

    def _open(self) -> Mapping[str, object]:
        self.writer = new_writer_id()
        return {"pid": os.getpid()}

    def _write(self, batch: Batch) -> None:
        if batch.last > self._last:
            self._lines.append(batch.data)
            self._last = batch.last

    def _sync(self, target: int) -> None:
        """Nothing to do: what is in memory stays there."""
        del target

    def _close(self) -> None:
        """Nothing to give back; the records stay readable."""

    def read_all(self) -> Iterator[Record]:
        """Every record, in sequence."""
        if self._live:
            self.drain()
        for data in list(self._lines):
            for line in data.split(b"\n"):
                record = parsed(line, self.writer)
                if record is not None:
                    yield record

"""A log over an async storage sink, for programs that have no disk.

Rules of this part:

- The sink is called on the flusher's thread, in a private event loop, one call at a time.
- What was drained waits in this process: a killed process loses what the sink did not confirm,
  and the capabilities say so. What the sink confirmed is as durable as the sink.
- A sink that raises, or does not answer in time, poisons the log for good: whether it kept
  anything is unknown, so nothing is sent again.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol

from agent_saga.errors import WALError
from agent_saga.wal.base import BaseWAL, Batch, Capabilities
from agent_saga.wal.format import Record, parsed
from agent_saga.wal.writer import new_writer_id

__all__ = ["SinkWAL", "StorageSink"]


class StorageSink(Protocol):
    """Where the lines go; an optional `read` coroutine gives all of them back."""

    async def write(self, data: bytes) -> None:
        """Take whole lines, in order."""

    async def sync(self) -> None:
        """Return when everything taken is as durable as this storage can make it."""


class SinkWAL(BaseWAL):
    """A write-ahead log over an async storage sink.

    Args:
        sink: where the lines go.
        options: see `BaseWAL`.
    """

    address = "sink:"
    capabilities = Capabilities("sink", False, False, False, False)

    def __init__(self, sink: StorageSink, **options: Any) -> None:
        self.sink = sink
        super().__init__(**options)

    def _reset(self) -> None:
        super()._reset()
        self._outgoing: list[bytes] = []
        self._last = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def _open(self) -> Mapping[str, object]:
        self.writer = new_writer_id()
        return {"pid": os.getpid(), "boot": ""}

    def _write(self, batch: Batch) -> None:
        if batch.last > self._last:
            self._outgoing.append(batch.data)
            self._last = batch.last

    def _sync(self, target: int) -> None:
        del target
        with self._io:
            data, self._outgoing = b"".join(self._outgoing), []
        self._run(self._send, data)

    async def _send(self, data: bytes) -> None:
        if data:
            await self.sink.write(data)
        await self.sink.sync()

    def _run(self, function: Callable[..., Awaitable[Any]], *args: object) -> Any:
        """Run a coroutine of the sink's on the private loop, bounded."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(self._bounded(function(*args)))

    async def _bounded(self, call: Awaitable[Any]) -> Any:
        return await asyncio.wait_for(call, self.stall_after)

    def _close(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def read_all(self) -> Iterator[Record]:
        """Every record that the sink gives back, whole lines only.

        Raises:
            WALError: the sink cannot be read.
        """
        read = getattr(self.sink, "read", None)
        if read is None:
            raise WALError("This storage sink cannot be read back.", fix="Give it a `read` method.")
        if self._live:
            self.barrier_sync()
        for line in _in_thread(read).split(b"\n"):
            record = parsed(line, self.writer)
            if record is not None:
                yield record


def _in_thread(read: Callable[[], Awaitable[bytes]]) -> bytes:
    """The answer of a coroutine function, whether or not a loop runs on this thread."""
    answers: list[bytes] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            answers.append(asyncio.run(_call(read)))
        except Exception as error:  # handed to the thread that asked
            errors.append(error)

    thread = threading.Thread(target=work, name="agent-saga-wal-reader")
    thread.start()
    thread.join()
    if errors:
        raise WALError(f"The storage sink could not be read: {errors[0]}.") from errors[0]
    return answers[0]


async def _call(read: Callable[[], Awaitable[bytes]]) -> bytes:
    return await read()

"""Exact counts of what a piece of work did: system calls of the log, hops, tasks.

Rules of this part:

- A call is a Python function entered on the thread that counts; a lock is one taken there. Both are
  exact, and tell of a longer way where a clock would need a quiet machine.
- A hop is a call that another thread hands to the event loop; a task is one that was made while
  the work ran.
- The flusher races with the next step, so a count of syncs can differ by one now and then: the
  median of several runs is the count.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from agent_saga.wal.os_port import OsPort

RUNS = 9


class CountingPort(OsPort):
    """The system calls of the log, counted."""

    def __init__(self) -> None:
        self.writes = self.syncs = self.written = 0

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write, and count it."""
        self.writes += 1
        self.written += len(data)
        return super().pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        """Sync, and count it."""
        self.syncs += 1
        super().fdatasync(fd)


class Counts:
    """What happened: writes, syncs and bytes of the log, hops and tasks of the loop."""

    def __init__(self, writes: int, syncs: int, written: int, hops: int, tasks: int) -> None:
        self.writes, self.syncs, self.written = writes, syncs, written
        self.hops, self.tasks = hops, tasks


class Counter:
    """Counts on a port and on the running loop.

    Args:
        port: the port of the log.
    """

    def __init__(self, port: CountingPort) -> None:
        self.port = port

    async def of(self, work: Callable[[], Awaitable[object]]) -> Counts:
        """Return what one piece of work did."""
        loop = asyncio.get_running_loop()
        hops, tasks = _watch_hops(loop), _watch_tasks(loop)
        before = (self.port.writes, self.port.syncs, self.port.written)
        try:
            await work()
        finally:
            del loop.call_soon_threadsafe
            loop.set_task_factory(None)
        now = (self.port.writes, self.port.syncs, self.port.written)
        writes, syncs, written = (b - a for a, b in zip(before, now, strict=True))
        return Counts(writes, syncs, written, len(hops), len(tasks))

    async def median_of(self, work: Callable[[], Awaitable[object]]) -> Counts:
        """Return the medians over several runs."""
        runs = [await self.of(work) for _ in range(RUNS)]
        return Counts(
            *(
                int(statistics.median(getattr(run, name) for run in runs))
                for name in ("writes", "syncs", "written", "hops", "tasks")
            )
        )


class Way:
    """How long the way of a piece of work is: Python calls and locks, on this thread."""

    def __init__(self, calls: float, locks: float) -> None:
        self.calls, self.locks = calls, locks


_UNLOCKED = frozenset({"__exit__", "release"})


class Counting:
    """Counts calls and locks on the threads that it is the profile function of."""

    def __init__(self) -> None:
        self.calls = self.locks = 0

    def seen(self, frame: Any, event: str, arg: Any) -> None:
        """Count an event."""
        del frame
        if event == "call":
            self.calls += 1
        elif event == "c_call" and type(getattr(arg, "__self__", None)).__name__ == "lock":
            self.locks += arg.__name__ in _UNLOCKED  # `with` shows its end only


def way_of(work: Callable[[], object], times: int = 64) -> Way:
    """Return the way of one call of `work`, the call itself not counted."""
    counts = Counting()
    for _ in range(3):
        work()
    sys.setprofile(counts.seen)
    try:
        for _ in range(times):
            work()
    finally:
        sys.setprofile(None)
    return Way(counts.calls / times - 1, counts.locks / times)


def way_elsewhere(work: Callable[[], object], times: int = 64) -> Way:
    """Return the way of one call of `work` on the thread that its first call starts."""
    counts = Counting()
    threading.setprofile(counts.seen)
    try:
        work()
    finally:
        threading.setprofile(None)
    for _ in range(3):
        work()
    calls, locks = counts.calls, counts.locks
    for _ in range(times):
        work()
    return Way((counts.calls - calls) / times, (counts.locks - locks) / times)


def _watch_hops(loop: Any) -> list[object]:
    seen: list[object] = []
    real = loop.call_soon_threadsafe

    def call_soon_threadsafe(callback: Callable[..., object], *args: Any, **more: Any) -> Any:
        seen.append(callback)
        return real(callback, *args, **more)

    loop.call_soon_threadsafe = call_soon_threadsafe
    return seen


def _watch_tasks(loop: asyncio.AbstractEventLoop) -> list[object]:
    seen: list[object] = []

    def make(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **more: Any
    ) -> asyncio.Task[Any]:
        seen.append(coro)
        return asyncio.Task(coro, loop=loop, **more)

    loop.set_task_factory(make)  # type: ignore[arg-type]
    return seen

"""The floors: what the machine, the operating system and the interpreter cost without the engine.

Rules of this part:

- No floor uses code of the engine, so that a loss of the engine's is not hidden in its own floor.
- `J` is `json.dumps` of the 366-byte record, `F` one write and `fdatasync` of 300 bytes in a file
  of allocated space, `H` a hop to a thread and back that does nothing there.
- The bare flusher is the least that two barriers for each step cost under load: tasks append 300
  bytes and await a thread that writes and syncs what has gathered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from bench import measure
from bench.workload import RECORD

LINE: Final = b"x" * 299 + b"\n"
_ALLOCATED: Final = 16 * 1024 * 1024


def dumps() -> object:
    """Carry out J."""
    return json.dumps(RECORD)


class SyncedFile:
    """A file of allocated space that lines are written to, one behind the other, and synced."""

    def __init__(self, folder: str, name: str = "floor") -> None:
        self._fd = os.open(Path(folder, name), os.O_CREAT | os.O_RDWR, 0o600)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, _ALLOCATED)
        else:
            os.write(self._fd, bytes(_ALLOCATED))
        os.fsync(self._fd)
        self._end = 0
        self._sync = getattr(os, "fdatasync", os.fsync)

    def write(self, data: bytes) -> None:
        """Write behind the last line, from the beginning again when the space is used up."""
        if self._end + len(data) > _ALLOCATED:
            self._end = 0
        os.lseek(self._fd, self._end, os.SEEK_SET)
        self._end += os.write(self._fd, data)

    def sync(self) -> None:
        """Make it durable."""
        self._sync(self._fd)

    def line(self) -> None:
        """Carry out F."""
        self.write(LINE)
        self.sync()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class Flusher:
    """A thread that carries out what has gathered, and wakes who waits for it.

    Args:
        carry_out: called on the thread with the number of lines that wait.
    """

    def __init__(self, carry_out: Callable[[int], object]) -> None:
        self._carry_out = carry_out
        self._lock = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._kicked = False
        self._stopping = False
        self._lines = 0
        self._futures: list[asyncio.Future[None]] = []
        self._threads: list[threading.Lock] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _kick(self) -> None:
        if not self._kicked:
            self._kicked = True
            self._wake.release()

    def future(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Add a line and return what is resolved when it was carried out."""
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._lines += 1
            self._loop = loop
            self._futures.append(future)
            self._kick()
        return future

    def wait(self) -> None:
        """Add a line and block until it was carried out."""
        done = threading.Lock()
        done.acquire()
        with self._lock:
            self._lines += 1
            self._threads.append(done)
            self._kick()
        done.acquire()

    async def hop(self) -> None:
        """Carry out H on this loop."""
        await self.future(asyncio.get_running_loop())

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            if self._stopping:
                return
            with self._lock:
                self._kicked = False
                lines, self._lines = self._lines, 0
                futures, self._futures = self._futures, []
                threads, self._threads = self._threads, []
            self._carry_out(lines)
            for thread in threads:
                thread.release()
            if futures and self._loop is not None:
                self._loop.call_soon_threadsafe(_resolve, futures)

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._stopping = True
            self._kick()
        self._thread.join()


def _nothing(lines: int) -> None:
    del lines


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


@contextlib.contextmanager
def hops() -> Iterator[Flusher]:
    """Make a flusher that does nothing."""
    flusher = Flusher(_nothing)
    try:
        yield flusher
    finally:
        flusher.close()


@contextlib.contextmanager
def synced_file(folder: str) -> Iterator[SyncedFile]:
    """Make a file for F."""
    file = SyncedFile(folder)
    try:
        yield file
    finally:
        file.close()


@contextlib.contextmanager
def bare_flusher(folder: str) -> Iterator[Flusher]:
    """Make a flusher that writes the lines that gathered, and syncs them."""
    file = SyncedFile(folder, "flusher")

    def carry_out(lines: int) -> None:
        file.write(LINE * lines)
        file.sync()

    flusher = Flusher(carry_out)
    try:
        yield flusher
    finally:
        flusher.close()
        file.close()


@contextlib.contextmanager
def shared_database(path: str) -> Iterator[Flusher]:
    """Make a flusher that inserts what gathered into an SQLite file, one commit for all."""
    opened: list[sqlite3.Connection] = []

    def carry_out(lines: int) -> None:
        if not opened:
            opened.append(database(path))
        connection = opened[0]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO log(line) VALUES (?)", [(LINE,)] * lines)
        connection.execute("COMMIT")

    flusher = Flusher(carry_out)
    try:
        yield flusher
    finally:
        flusher.close()


def database(path: str, synchronous: str = "FULL") -> sqlite3.Connection:
    """Open an SQLite file as a log that several processes share."""
    connection = sqlite3.connect(path, timeout=60.0, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE IF NOT EXISTS log(seq INTEGER PRIMARY KEY, line BLOB)")
    connection.execute("CREATE TABLE IF NOT EXISTS doc(key TEXT PRIMARY KEY, body BLOB)")
    return connection


async def steps(flusher: Flusher, tasks: int, seconds: float) -> float:
    """Return the steps per second of tasks that await two barriers for each step."""
    loop = asyncio.get_running_loop()

    async def one() -> None:
        await flusher.future(loop)
        await flusher.future(loop)

    return await closed_loop(one, tasks, seconds)


async def closed_loop(
    unit: Callable[[], Awaitable[object]], tasks: int, seconds: float, steps_of_unit: int = 1
) -> float:
    """Return the steps per second when so many tasks carry out units one after the other."""
    end = time.monotonic() + seconds
    done = 0

    async def run() -> None:
        nonlocal done
        while time.monotonic() < end:
            await unit()
            done += steps_of_unit

    before = time.perf_counter_ns()
    await asyncio.gather(*[run() for _ in range(tasks)])
    return done * measure.NS / (time.perf_counter_ns() - before)

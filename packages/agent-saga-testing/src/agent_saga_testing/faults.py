"""System calls that fail, come up short, hang or crash, exactly where a test wants.

    port = FaultyPort()
    port.fail("fdatasync", nth=2, error=errno.EIO)
    wal = FileWAL(path, port=port)

Rules of this part:

- Calls are counted from 1, per name and over all names, across all threads. A fault strikes at the
  n-th call of a name (or of any), counted from the moment it was asked for, and for as many calls
  as it is told.
- `calls` records what was called, so that a test runs once without a fault and then again with a
  fault at every call.
- After a crash nothing reaches the operating system any more: every later call raises
  `SimulatedCrash` too, as in a process that is no more. `let_go` closes what the dead process held,
  which frees its locks.
"""

from __future__ import annotations

import contextlib
import errno as errors
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from agent_saga.wal.os_port import OsPort

if TYPE_CHECKING:
    from os import stat_result

__all__ = ["CALLS", "FOR_EVER", "Call", "FaultyPort", "Hang", "SimulatedCrash"]

T = TypeVar("T")

CALLS: Final = (
    "open",
    "close",
    "pread",
    "pwrite",
    "append",
    "fdatasync",
    "fsync",
    "fallocate",
    "ftruncate",
    "replace",
    "unlink",
    "mkdir",
    "rmdir",
    "listdir",
    "stat",
    "fstat",
    "flock",
    "flock_shared",
)
"""The names of the system calls that a fault can strike."""

FOR_EVER: Final = 1 << 60
"""As `times`: the fault never stops."""


class SimulatedCrash(BaseException):
    """The process is no more, as far as the code under test can tell.

    It is no `Exception`, so that code which handles errors does not handle its own death.
    """


class Call(NamedTuple):
    """One system call that was made.

    Args:
        number: its place among all calls, from 1.
        name: the call.
        nth: its place among the calls of that name, from 1.
        detail: the path, or the number of bytes, where there is one.
    """

    number: int
    name: str
    nth: int
    detail: str


class Hang:
    """A call that does not come back until it is released."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._released = threading.Event()

    def release(self) -> None:
        """Let the call, and every later one of this fault, go on as usual."""
        self._released.set()

    def wait(self) -> None:
        """Hang here; called by the port."""
        self.reached.set()
        self._released.wait()


class _Fault(NamedTuple):
    name: str | None
    nth: int
    times: int
    strike: Callable[[], int | None]
    after: bool

    def hits(self, call: Call) -> bool:
        place = call.number if self.name is None else call.nth
        return self.name in (None, call.name) and self.nth <= place < self.nth + self.times

    def counted_from(self, calls: int) -> _Fault:
        return self._replace(nth=self.nth + calls)


class FaultyPort(OsPort):
    """A port that hands calls on to another one, except where a fault strikes.

    Args:
        inner: what makes the calls; the operating system's own port by default.
    """

    def __init__(self, inner: OsPort | None = None) -> None:
        self._inner = inner or OsPort()
        self.durability = self._inner.durability
        self.can_lock = self._inner.can_lock
        self.can_share_locks = self._inner.can_share_locks
        self.calls: list[Call] = []
        self.crashed = False
        self._faults: list[_Fault] = []
        self._counts: dict[str, int] = {}
        self._open: set[int] = set()
        self._lock = threading.Lock()

    def fail(
        self,
        name: str | None = None,
        *,
        nth: int = 1,
        error: int = errors.EIO,
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Make calls fail with an error of the operating system.

        Args:
            name: one of `CALLS`; None strikes any call.
            nth: the first call that fails, counted per name, or over all if `name` is None.
            error: the `errno`, for example `errno.ENOSPC`.
            times: how many calls in a row fail; `FOR_EVER` never stops.
            after: make the call first, and lose its answer.
        """

        def strike() -> None:
            raise OSError(error, os.strerror(error))

        self._add(_Fault(_known(name), nth, times, strike, after))

    def shorten(self, name: str = "pwrite", *, nth: int = 1, keep: int = 0, times: int = 1) -> None:
        """Make writes come up short: only the first `keep` bytes are written and reported."""
        self._add(_Fault(_writing(name), nth, times, lambda: keep, after=False))

    def hang(self, name: str | None = None, *, nth: int = 1, times: int = 1) -> Hang:
        """Make calls hang until the returned `Hang` is released; they then go on as usual."""
        hang = Hang()
        self._add(_Fault(_known(name), nth, times, hang.wait, after=False))
        return hang

    def crash(
        self,
        name: str | None = None,
        *,
        nth: int = 1,
        after: bool = False,
        keep: int | None = None,
        exit_code: int | None = None,
    ) -> None:
        """Let the process end at a call.

        Args:
            name: one of `CALLS`; None strikes any call.
            nth: the call at which the process ends.
            after: the call itself is still made.
            keep: for a write: how many of its bytes are still written.
            exit_code: end this real process at once with that code; None raises `SimulatedCrash`.

        Raises:
            ValueError: `name` is no call of the port, or `keep` is given for one that writes
                nothing.
        """
        if keep is not None:
            self.shorten(name or "", nth=nth, keep=keep)

        def strike() -> None:
            if exit_code is not None:
                os._exit(exit_code)
            self.crashed = True
            raise SimulatedCrash

        self._add(_Fault(_known(name), nth, 1, strike, after=after or keep is not None))

    def heal(self) -> None:
        """Take every fault away that has not struck; a crash stays."""
        with self._lock:
            self._faults.clear()

    def count(self, name: str | None = None) -> int:
        """How many calls were made, of one name or in all."""
        with self._lock:
            return len(self.calls) if name is None else self._counts.get(name, 0)

    def let_go(self) -> None:
        """Close every descriptor that is still open, as the end of a process does."""
        with self._lock:
            left, self._open = self._open, set()
        for fd in left:
            with contextlib.suppress(OSError):
                self._inner.close(fd)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open a file, unless a fault strikes."""
        return self._make("open", path, lambda: self._opened(self._inner.open(path, flags, mode)))

    def close(self, fd: int) -> None:
        """Close a descriptor, unless a fault strikes."""
        self._make("close", "", lambda: self._closed(fd))

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read, unless a fault strikes."""
        return self._make("pread", str(size), lambda: self._inner.pread(fd, size, offset))

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at an offset, unless a fault strikes."""
        return self._write("pwrite", data, lambda part: self._inner.pwrite(fd, part, offset))

    def append(self, fd: int, data: bytes) -> int:
        """Write at the end, unless a fault strikes."""
        return self._write("append", data, lambda part: self._inner.append(fd, part))

    def fdatasync(self, fd: int) -> None:
        """Sync a file's data, unless a fault strikes."""
        self._make("fdatasync", "", lambda: self._inner.fdatasync(fd))

    def fsync(self, fd: int) -> None:
        """Sync a file or directory, unless a fault strikes."""
        self._make("fsync", "", lambda: self._inner.fsync(fd))

    def fallocate(self, fd: int, size: int) -> None:
        """Allocate room, unless a fault strikes."""
        self._make("fallocate", str(size), lambda: self._inner.fallocate(fd, size))

    def ftruncate(self, fd: int, size: int) -> None:
        """Cut a file, unless a fault strikes."""
        self._make("ftruncate", str(size), lambda: self._inner.ftruncate(fd, size))

    def replace(self, source: str, target: str) -> None:
        """Rename a file, unless a fault strikes."""
        self._make("replace", target, lambda: self._inner.replace(source, target))

    def unlink(self, path: str) -> None:
        """Remove a file, unless a fault strikes."""
        self._make("unlink", path, lambda: self._inner.unlink(path))

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        """Make a directory, unless a fault strikes."""
        self._make("mkdir", path, lambda: self._inner.mkdir(path, mode))

    def rmdir(self, path: str) -> None:
        """Remove an empty directory, unless a fault strikes."""
        self._make("rmdir", path, lambda: self._inner.rmdir(path))

    def listdir(self, path: str) -> list[str]:
        """List a directory, unless a fault strikes."""
        return self._make("listdir", path, lambda: self._inner.listdir(path))

    def stat(self, path: str) -> stat_result:
        """Look at a path, unless a fault strikes."""
        return self._make("stat", path, lambda: self._inner.stat(path))

    def fstat(self, fd: int) -> stat_result:
        """Look at an open file, unless a fault strikes."""
        return self._make("fstat", "", lambda: self._inner.fstat(fd))

    def flock(self, fd: int) -> bool:
        """Take a lock, unless a fault strikes."""
        return self._make("flock", "", lambda: self._inner.flock(fd))

    def flock_shared(self, fd: int) -> bool:
        """Take a shared lock, unless a fault strikes."""
        return self._make("flock_shared", "", lambda: self._inner.flock_shared(fd))

    def _add(self, fault: _Fault) -> None:
        with self._lock:
            made = len(self.calls) if fault.name is None else self._counts.get(fault.name, 0)
            self._faults.append(fault.counted_from(made))

    def _enter(self, name: str, detail: str) -> tuple[list[_Fault], list[_Fault]]:
        """Record a call; return the faults that strike before it and after it."""
        with self._lock:
            if self.crashed:
                raise SimulatedCrash
            nth = self._counts[name] = self._counts.get(name, 0) + 1
            call = Call(len(self.calls) + 1, name, nth, detail)
            self.calls.append(call)
            hits = [fault for fault in self._faults if fault.hits(call)]
        return [f for f in hits if not f.after], [f for f in hits if f.after]

    def _opened(self, fd: int) -> int:
        with self._lock:
            self._open.add(fd)
        return fd

    def _closed(self, fd: int) -> None:
        # In one: another thread may be given the same number as soon as it is free.
        with self._lock:
            self._open.discard(fd)
            self._inner.close(fd)

    def _make(self, name: str, detail: str, call: Callable[[], T]) -> T:
        before, after = self._enter(name, detail)
        for fault in before:
            fault.strike()
        answer = call()
        for fault in after:
            fault.strike()
        return answer

    def _write(self, name: str, data: bytes, write: Callable[[bytes], int]) -> int:
        before, after = self._enter(name, str(len(data)))
        for fault in before:
            keep = fault.strike()
            if keep is not None:
                data = data[:keep]
        count = write(data) if data else 0
        for fault in after:
            fault.strike()
        return count


def _known(name: str | None) -> str | None:
    if name is not None and name not in CALLS:
        raise ValueError(f"{name!r} is no system call of the port; choose from {', '.join(CALLS)}")
    return name


def _writing(name: str) -> str:
    if name not in ("pwrite", "append"):
        raise ValueError(f"{name!r} writes nothing; choose pwrite or append")
    return name

"""The lock of a writer, and the fence that a claimer raises in it.

Rules of this part:

- A writer holds the kernel lock of its `lock` file for the life of its process. The lock alone
  says whether it lives; only a lock that was acquired proves that its owner is dead.
- A claimer fences sagas of a writer by adding lines `{"saga":…,"epoch":…}` to the same file. The
  owner looks at inode and size with one `stat`, and reads only when they changed.
- A lock file that was removed or replaced fences everything: somebody else may hold a lock of the
  same name. So does a line that cannot be read.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import WALError, WALPathError
from agent_saga.wal.os_port import close_quietly

if TYPE_CHECKING:
    from agent_saga.wal.os_port import OsPort

__all__ = [
    "EVERY_EPOCH",
    "GIVEN_BACK",
    "LOCK_FILE",
    "WHOLE_WRITER",
    "WriterLock",
    "add_fence",
    "read_fences",
]

LOCK_FILE: Final = "lock"
WHOLE_WRITER: Final = "*"
"""Stands for every saga of a writer."""

EVERY_EPOCH: Final = 2**62
"""Above every epoch that a saga can have."""

GIVEN_BACK: Final = {WHOLE_WRITER: EVERY_EPOCH}
"""The fences of a writer that has given its lock back."""

_MOST: Final = 16 * 1024 * 1024


class WriterLock:
    """The lock of a writer that lives in this process.

    Args:
        folder: the writer's folder, which exists.

    Raises:
        OSError: the lock file cannot be made.
        WALPathError: another process holds the lock, or the system has no such locks.
    """

    __slots__ = ("_fd", "_port", "_seen", "inode", "path")

    def __init__(self, port: OsPort, folder: str) -> None:
        self._port = port
        self.path = os.path.join(folder, LOCK_FILE)
        self._fd = port.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._seen: tuple[int, dict[str, int]] = (0, {})
        try:
            taken = port.flock(self._fd)
            self.inode = port.fstat(self._fd).st_ino
        except BaseException:
            self.close()
            raise
        if not taken:
            self.close()
            raise WALPathError(f"Another process holds the lock {self.path!r}.")

    def fences(self) -> dict[str, int]:
        """The fences now; one `stat` when nothing changed since the last look.

        Size and content are remembered together: of two threads that look at once, the later one
        never takes the other's size for its own older content.
        """
        try:
            found = self._port.stat(self.path)
        except OSError:
            return {WHOLE_WRITER: EVERY_EPOCH}
        if found.st_ino != self.inode:
            return {WHOLE_WRITER: EVERY_EPOCH}
        size, known = self._seen
        if found.st_size == size:
            return known
        fences = read_fences(self._port, self._fd)
        self._seen = (found.st_size, fences)
        return fences

    def close(self) -> None:
        """Give the lock back; in a forked child, only this descriptor of it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close_quietly(self._port, fd)


def read_fences(port: OsPort, fd: int) -> dict[str, int]:
    """The epochs below which each saga is fenced; everything, when it cannot be read."""
    fences: dict[str, int] = {}
    try:
        lines = port.pread(fd, _MOST, 0).split(b"\n")
        for line in lines:
            if line:
                saga, epoch = _fence_of(json.loads(line))
                fences[saga] = max(epoch, fences.get(saga, 0))
    except (OSError, ValueError, RecursionError):
        return {WHOLE_WRITER: EVERY_EPOCH}
    return fences


def _fence_of(line: Any) -> tuple[str, int]:
    if type(line) is dict:
        saga, epoch = line.get("saga"), line.get("epoch")
        if type(saga) is str and type(epoch) is int:
            return saga, epoch
    raise ValueError("not a fence")


def add_fence(port: OsPort, folder: str, saga: str, epoch: int) -> None:
    """Fence the epochs below `epoch` of a saga of the writer in `folder`.

    Raises:
        WALError: the fence could not be written whole; the claimer must not act.
    """
    line = f"\n{json.dumps({'saga': saga, 'epoch': min(epoch, EVERY_EPOCH)})}\n".encode("ascii")
    try:
        fd = port.open(os.path.join(folder, LOCK_FILE), os.O_WRONLY | os.O_APPEND)
        try:
            whole = port.append(fd, line) == len(line)
        finally:
            port.close(fd)
    except OSError as error:
        raise WALError(f"The writer in {folder!r} cannot be fenced: {error}.") from error
    if not whole:
        raise WALError(f"The writer in {folder!r} was not fenced: the disk is full.")

"""Every system call that the log makes, and what differs between operating systems.

Rules of this part:

- The log never calls `os` itself: it calls an `OsPort`, so that a test can make any call fail,
  hang or come up short, and so that what an operating system cannot do is known in one place.
- `durability` says what a sync promises here: "disk" (the drive was asked to empty its cache),
  "cache" (the drive may still hold it in a volatile cache).
- Locks are `flock` locks on Unix (record locks vanish when any descriptor of the file closes) and
  `msvcrt` locks on Windows. Descriptors are never inherited by a program that is started, and are
  closed in a forked child, where a lock that stays open would keep a dead owner alive.
- A short write is reported as the count that was written; whoever calls judges it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import weakref
from collections.abc import Iterator
from typing import Final, Protocol

from agent_saga.observe.files import open_by_name
from agent_saga.observe.living import living

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = [
    "FORKS",
    "NETWORK_FILE_SYSTEMS",
    "OsPort",
    "close_quietly",
    "fork_generation",
    "reading",
    "restart_after_fork",
]

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.gcsfuse",
        "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre",
        "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "virtiofs", "vboxsf",
    }
)  # fmt: skip
"""Types of file systems whose locks and syncs do not hold between hosts."""

_ZEROS: Final = bytes(1 << 20)
_NOT_SUPPORTED: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})
_LOCK_TAKEN: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})


class OsPort:
    """The system calls of the log; subclass it to inject faults.

    Every method raises `OSError` as the operating system does and keeps no state.
    """

    durability = "disk"
    can_lock = True
    can_share_locks = sys.platform != "win32"
    """Whether a directory can be locked, by several readers or by one compaction."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open a file and return its descriptor, which no started program inherits."""
        return open_by_name(path, flags, mode)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read up to `size` bytes at `offset`."""
        if sys.platform == "win32":
            os.lseek(fd, offset, os.SEEK_SET)
            return os.read(fd, size)
        return os.pread(fd, size, offset)

    if sys.platform == "win32":

        def pwrite(self, fd: int, data: bytes, offset: int) -> int:
            """Write at `offset`; returns how many bytes were written, which may be fewer."""
            os.lseek(fd, offset, os.SEEK_SET)
            return os.write(fd, data)

    else:

        def pwrite(self, fd: int, data: bytes, offset: int) -> int:
            """Write at `offset`; returns how many bytes were written, which may be fewer."""
            return os.pwrite(fd, data, offset)

    def append(self, fd: int, data: bytes) -> int:
        """Write at the end of a file opened with `O_APPEND`; returns how many bytes it took."""
        return os.write(fd, data)

    def fdatasync(self, fd: int) -> None:
        """Make the data of a file durable, and what is needed to find it again."""
        if sys.platform == "linux":
            os.fdatasync(fd)
        else:
            self.fsync(fd)

    def fsync(self, fd: int) -> None:
        """Make a file or directory durable with all its attributes."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)

    def fallocate(self, fd: int, size: int) -> None:
        """Give the file `size` bytes of zeros that later writes need not allocate."""
        if sys.platform not in ("win32", "darwin"):
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise
            else:
                return
        self._write_zeros(fd, size)

    def ftruncate(self, fd: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(fd, size)

    def replace(self, source: str, target: str) -> None:
        """Rename a file over another in one step."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        """Make one directory."""
        os.mkdir(path, mode)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def stat(self, path: str) -> os.stat_result:
        """The attributes of a path."""
        return os.stat(path)

    def fstat(self, fd: int) -> os.stat_result:
        """The attributes of an open file."""
        return os.fstat(fd)

    def flock(self, fd: int) -> bool:
        """Take the exclusive lock of an open file without waiting; False when another holds it."""
        try:
            if sys.platform == "win32":
                # The locked byte lies far behind the content, so that others can read and append.
                os.lseek(fd, 0x7FFF0000, os.SEEK_SET)
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _LOCK_TAKEN:
                return False
            raise
        return True

    def flock_shared(self, fd: int) -> bool:
        """Take a shared lock of an open file or directory without waiting."""
        if sys.platform != "win32":
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _LOCK_TAKEN:
                    return False
                raise
        return True

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable (Windows does so by itself)."""
        if sys.platform == "win32":
            return
        fd = self.open(path, os.O_RDONLY)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def file_system(self, path: str) -> str:
        """The type of the file system that holds `path`, or "" when it cannot be told."""
        try:
            with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
                return _type_of(os.path.realpath(path), mounts.read())
        except OSError:
            return ""

    def boot_id(self) -> str:
        """A value that changes when this host starts anew, or "" when it cannot be told."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
                return source.read().strip()
        except OSError:
            return ""

    def _write_zeros(self, fd: int, size: int) -> None:
        offset = 0
        while offset < size:
            count = self.pwrite(fd, _ZEROS[: size - offset], offset)
            if count <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            offset += count


def close_quietly(port: OsPort, fd: int) -> None:
    """Close a descriptor through which nothing was written that is not synced.

    A close that fails gives the descriptor back all the same, and a lock with it.
    """
    with contextlib.suppress(OSError):
        port.close(fd)


@contextlib.contextmanager
def reading(port: OsPort, path: str) -> Iterator[int]:
    """Open a file for reading, and close it afterwards.

    Raises:
        OSError: it cannot be opened.
    """
    fd = port.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        close_quietly(port, fd)


def _type_of(path: str, mounts: str) -> str:
    """The type of the longest mount point that is a parent of `path`."""
    best, found = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescape(fields[1])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, found = len(point), fields[2]
    return found


def _unescape(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point


# --- forks ----------------------------------------------------------------------------------------


class Forks:
    """How many forks lie between the first process and this one."""

    __slots__ = ("generation",)

    def __init__(self) -> None:
        self.generation = 0


FORKS: Final = Forks()


class ForkAware(Protocol):
    """An object that must not be used in a forked child as it is."""

    def restart_in_child(self) -> None:
        """Let go of what only the parent may hold, and begin anew."""


_fork_aware: Final[weakref.WeakSet[ForkAware]] = weakref.WeakSet()


def fork_generation() -> int:
    """How many forks lie between the first process and this one."""
    return FORKS.generation


def restart_after_fork(owner: ForkAware) -> None:
    """Have an object restarted in every forked child, as long as it lives."""
    _fork_aware.add(owner)


def _after_fork() -> None:
    FORKS.generation += 1
    with contextlib.ExitStack() as every:  # also those behind one that fails
        for owner in living(_fork_aware):
            every.callback(owner.restart_in_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

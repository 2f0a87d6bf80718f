"""A descriptor that holds a lock for as long as it is open, in one process only.

A forked child lets go of it at once: the lock is the parent's, and a descriptor that the child kept
would hold it for longer than the parent lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.wal.os_port import close_quietly, restart_after_fork

if TYPE_CHECKING:
    from agent_saga.wal.os_port import OsPort

__all__ = ["HeldDescriptor"]


class HeldDescriptor:
    """An open descriptor, and with it whatever lock was taken on it.

    Args:
        port: the system calls.
        fd: the descriptor; below zero for none.
    """

    __slots__ = ("__weakref__", "_fd", "_port")

    def __init__(self, port: OsPort, fd: int) -> None:
        self._port = port
        self._fd = fd
        restart_after_fork(self)

    def close(self) -> None:
        """Close it, once, and give its lock back."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close_quietly(self._port, fd)

    def restart_in_child(self) -> None:
        """In a forked child: let go of it; the parent still holds it."""
        self.close()

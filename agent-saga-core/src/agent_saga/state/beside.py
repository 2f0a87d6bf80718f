"""What stands beside a state store under a name of its own: in memory, or as a file that grows.

Rules of this part:

- A store in memory has one of each name, for as long as the store lives. Beside a store in a file
  of this host stands a file. A store whose changes other hosts make has nothing beside it.
- The file grows by a line each time; what one process appends never mixes with what another does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

from agent_saga.observe.files import open_by_name, sync_folder
from agent_saga.state.memory import MemoryStateStore

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.state.base import StateStore

__all__ = ["Beside", "append_line"]

M = TypeVar("M")
F = TypeVar("F")


class Beside(Generic[M, F]):
    """Finds what stands beside a store.

    Args:
        in_memory: makes one for a store in memory.
        in_file: makes one for the path of a store's file, and the name.
    """

    def __init__(self, in_memory: Callable[[], M], in_file: Callable[[Path, str], F]) -> None:
        self._in_memory = in_memory
        self._in_file = in_file
        self._made: WeakKeyDictionary[StateStore, dict[str, M]] = WeakKeyDictionary()
        self._making = threading.Lock()

    def of(self, store: StateStore, name: str) -> M | F | None:
        """Return what has this name beside a store; None where the store itself is asked."""
        if isinstance(store, MemoryStateStore):
            with self._making:
                own = self._made.setdefault(store, {})
                if name not in own:
                    own[name] = self._in_memory()
                return own[name]
        from pathlib import Path  # noqa: PLC0415 - slow to load

        path = getattr(store, "path", None)
        if isinstance(path, Path) and not store.capabilities.multi_host:
            return self._in_file(path, name)
        return None


def append_line(path: Path, line: bytes, *, durable: bool) -> None:
    """Append a line to a file, which is made if it is not there.

    Args:
        path: the file.
        line: with its newline.
        durable: have it on the disk before this returns.

    Raises:
        OSError: it could not be written, or not as a whole.
    """
    made = durable and not path.exists()
    descriptor = open_by_name(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError("the disk is full")
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if made:
        sync_folder(path.parent)

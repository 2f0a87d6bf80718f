"""Telling waiters, in this process and in others, which document changed.

Rules of this part:

- Whoever changes a document rings with its name after the change is stored; whoever waits hears the
  names that were rung since it listened last, or that anything may have been (None).
- A ring is a hint, not the truth: one that a crash prevented is made good by waiters who look by
  themselves now and then. So a bell that cannot be heard is taken for one that rang.
- The file of a bell begins anew when it has grown long.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Final, Protocol

from agent_saga.observe.files import open_by_name
from agent_saga.state.beside import Beside, append_line

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.state.base import StateStore

__all__ = ["Bell", "FileBell", "MemoryBell", "bell_of"]

_LONGEST: Final = 1 << 20

Heard = tuple[object, "frozenset[str] | None"]


class Bell(Protocol):
    """What is rung with a name."""

    def heard(self, mark: object) -> Heard:
        """Return a new mark, and the names that were rung since the old one (None: any)."""

    def ring(self, name: str) -> None:
        """Ring with a name; never raises."""


class MemoryBell:
    """A bell within this process."""

    def __init__(self) -> None:
        self._rung: list[str] = []
        self._base = 0
        self._lock = threading.Lock()

    def heard(self, mark: object) -> Heard:
        """Return the names that were rung since a mark."""
        with self._lock:
            end = self._base + len(self._rung)
            if not isinstance(mark, int) or mark < self._base:
                return end, None
            return end, frozenset(self._rung[mark - self._base :])

    def ring(self, name: str) -> None:
        """Ring with a name."""
        with self._lock:
            self._rung.append(name)
            if len(self._rung) > 10_000:
                self._base += 5_000
                del self._rung[:5_000]


class FileBell:
    """A bell among the processes of a host: a file that grows by a name at each ring.

    Args:
        path: the file; it is made at the first ring.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def heard(self, mark: object) -> Heard:
        """Return the names that were rung since a mark; one `stat` when there are none."""
        try:
            found = self.path.stat()
            now = (found.st_ino, found.st_size)
            if now == mark:
                return mark, frozenset()
            if not isinstance(mark, tuple) or mark[0] != now[0] or mark[1] > now[1]:
                return now, None
            with os.fdopen(open_by_name(self.path, os.O_RDONLY), "rb") as file:
                file.seek(mark[1])
                rung = file.read(now[1] - mark[1])
        except FileNotFoundError:
            return None, (frozenset() if mark is None else None)
        except OSError:
            return None, None
        return now, frozenset(rung.decode("ascii", "replace").split())

    def ring(self, name: str) -> None:
        """Ring with a name; a bell that cannot be rung is heard by those who look themselves."""
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                if self.path.stat().st_size > _LONGEST:
                    self.path.unlink()
            append_line(self.path, f"{name}\n".encode("ascii", "replace"), durable=False)


_bells: Final = Beside(
    MemoryBell, lambda path, name: FileBell(path.with_name(f"{path.name}.{name}"))
)


def bell_of(store: StateStore, name: str) -> Bell | None:
    """Return the bell of a name that belongs to a store; None where waiters ask the store.

    Args:
        store: the state store.
        name: what it rings for, as a part of a file's name.
    """
    return _bells.of(store, name)

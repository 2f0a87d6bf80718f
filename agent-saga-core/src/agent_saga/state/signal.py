"""Telling other processes that a document changed, without their asking the store.

Rules of this part:

- A signal stands beside a store, not in it: whoever changes the document rings after the change is
  stored. Whoever reads looks at the signal first (one `stat`, or a number in memory) and asks the
  store only if it has moved. A ring that a crash prevented is why readers also ask now and then.
- A ring carries the revision that the document has reached; the highest is the floor. A document
  that is below the floor has been lost or put back, whoever did it.
- The name of a signal's file does not begin with that of the store's file: whoever moves the store
  away, with all files of its name, leaves the floor.
- A signal that cannot be read or written is an error, never silence. Fails closed.
- A store whose changes other hosts make has no signal: it is asked every time.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from agent_saga.errors import StateError
from agent_saga.observe.files import read_by_name
from agent_saga.state.beside import Beside, append_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent_saga.state.base import StateStore

__all__ = ["FileSignal", "MemorySignal", "Signal", "signal_of"]


class Signal(Protocol):
    """What is rung after a change."""

    def seen(self) -> object:
        """Return what differs after every ring; compare it with an earlier one."""

    def since(self, seen: object) -> Callable[[], bool]:
        """Return what says whether it was rung since; as quick as can be: every effect asks."""

    def floor(self) -> int:
        """Return the highest revision that was rung; 0 before the first."""

    def ring(self, rev: int) -> None:
        """Say that the document has reached a revision."""


class MemorySignal:
    """A signal within this process."""

    __slots__ = ("_floor", "_lock", "_rings")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings = 0
        self._floor = 0

    def seen(self) -> object:
        """Return how often it was rung."""
        return self._rings

    def since(self, seen: object) -> Callable[[], bool]:
        """Return what says whether it was rung since."""
        return lambda: self._rings != seen

    def floor(self) -> int:
        """Return the highest revision that was rung."""
        return self._floor

    def ring(self, rev: int) -> None:
        """Say that the document has reached a revision."""
        with self._lock:
            self._rings += 1
            self._floor = max(self._floor, rev)


class FileSignal:
    """A signal among the processes of a host: a file that grows by a line at each ring.

    Args:
        path: the file; it is made at the first ring.

    Crash: a ring that returned is durable.
    """

    __slots__ = ("_known", "_text", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = str(path)
        self._known: tuple[object, int] = (None, 0)

    def seen(self) -> object:
        """Return the file's identity and size, or None while there is none.

        Raises:
            StateError: it cannot be looked at.
        """
        try:
            found = os.stat(self._text)  # noqa: PTH116 - a Path takes longer
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from error
        return found.st_ino, found.st_size, found.st_mtime_ns

    def since(self, seen: object) -> Callable[[], bool]:
        """Return what says whether it was rung since.

        It raises `StateError` where the file cannot be looked at. Of a file that had not been there
        it says only that: an error for each look at nothing would take as long as the look.
        """
        if seen is None:
            return partial(os.access, self._text, os.F_OK)
        return lambda: self.seen() != seen

    def floor(self) -> int:
        """Return the highest revision that was rung; read anew only when the file changed.

        Raises:
            StateError: the file cannot be read, or holds something else.
        """
        seen = self.seen()
        known, floor = self._known
        if seen is None or seen == known:
            return 0 if seen is None else floor
        try:
            floor = max(map(int, read_by_name(self.path).split()), default=0)
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        self._known = (seen, floor)
        return floor

    def ring(self, rev: int) -> None:
        """Add a line with the revision, and make it durable.

        Raises:
            StateError: it could not be written; other processes see the change later.
        """
        try:
            append_line(self.path, b"%d\n" % rev, durable=True)
        except OSError as error:
            raise StateError(
                f"The signal {self.path} could not be written: {error}.",
                fix="Give this user the right to write it, and free some space; then try again.",
            ) from error

    def _unreadable(self, error: Exception) -> StateError:
        fix = "Look who changed it; nothing but agent-saga writes it."
        if isinstance(error, NotADirectoryError):
            fix = (
                f"Part of the path '{self.path.parent}' is a plain file: rename that file, or "
                "choose another directory (AGENT_SAGA_WAL, or wal=…)."
            )
        return StateError(f"The signal {self.path} cannot be read: {error}.", fix=fix)


_signals: Final = Beside(
    MemorySignal,
    lambda path, name: FileSignal(path.with_name(f"{path.stem}.{name}{path.suffix}")),
)


def signal_of(store: StateStore, name: str) -> Signal | None:
    """Return the signal of a name that belongs to a store; None where every look asks the store.

    Args:
        store: the state store.
        name: what is rung about, as a part of a file's name.
    """
    return _signals.of(store, name)

"""A private thread that works when it is kicked.

Rules of this part:

- The thread sleeps until it is kicked, and works once per kick; a kick during the work means once
  more. It starts with the first kick, and never ends because of what its work raised.
- A kick takes no lock: two at the same time may have the thread work twice, never not at all.
- Work that nobody waits for is put off while the thread rests, a moment after its last work: a
  kick takes it along, else the end of the rest begins it. At any other time it begins at once.
- It is a daemon thread: a process that ends without closing its log loses nothing that was handed
  to the operating system.
- After work that left something to note, it waits a moment; if nobody kicked, it runs `idle`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Worker"]

_REST: Final = 0.001
"""Seconds for which the thread rests after work that left something to note."""

_log = logger("agent_saga.wal")


class Worker:
    """One thread that runs `work` whenever it is kicked.

    Args:
        name: the thread's name.
        work: what to do once per kick; returns the seconds to wait for another kick before `idle`,
            or None when there is nothing to note.
        idle: what to do when no kick came in that time.

    Attributes:
        kicked: whether work is asked for and has not begun.
    """

    __slots__ = (
        "_idle",
        "_lock",
        "_name",
        "_put_off",
        "_resting",
        "_stopping",
        "_thread",
        "_wake",
        "_work",
        "kicked",
    )

    def __init__(
        self, name: str, work: Callable[[], float | None], idle: Callable[[], None] = lambda: None
    ) -> None:
        self._name = name
        self._work = work
        self._idle = idle
        self._lock = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._resting = self._put_off = False
        self.kicked = False

    def kick(self) -> None:
        """Have the thread work once more, from now on."""
        if self.kicked:
            return
        if self._thread is None:
            self.start()
        self.kicked = True
        try:
            self._wake.release()
        except RuntimeError:  # another kick came first, and its wake was not taken yet
            return

    def kick_soon(self) -> None:
        """Have the thread work once more, together with the next kick if one comes soon."""
        self._put_off = True
        if not self._resting:  # looked at second: either this sees the end of the rest, or it us
            self.kick()

    def start(self) -> None:
        """Start the thread ahead of its first kick: a program that ends can start none any more."""
        with self._lock:
            if self._thread is None:
                self._begin()

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def stop(self, timeout: float) -> bool:
        """End the thread after the work it is in; False when it did not end in time."""
        with self._lock:
            thread = self._thread
            self._stopping = True
            if thread is None or thread is threading.current_thread():
                return True
        self.kick()
        thread.join(timeout)
        return not thread.is_alive()

    def _run(self) -> None:
        pause: float | None = None
        while not self._stopping:
            if pause is None:
                self._wake.acquire()
            elif not self._rested(pause):
                pause = self._guarded(self._idle)
                continue
            # First: whoever kicks from here on may want what this work no longer sees.
            self.kicked = self._put_off = False
            if not self._stopping:
                pause = self._guarded(self._work)

    def _rested(self, pause: float) -> bool:
        """Wait for work, at most so many seconds; whether there is some."""
        self._resting = True
        kicked = self._wake.acquire(timeout=_REST)
        self._resting = False
        if kicked:
            return True
        if self._put_off:
            self._wake.acquire(blocking=False)  # a kick that came with what had been put off
            return True
        return self._wake.acquire(timeout=pause)

    def _guarded(self, function: Callable[[], float | None]) -> float | None:
        try:
            return function()
        except BaseException:
            _log.exception("A thread of the log failed in a way that its work does not know.")
            return None

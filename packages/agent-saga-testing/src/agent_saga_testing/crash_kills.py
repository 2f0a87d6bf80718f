"""Where a process of a crash laboratory ends, stops or stands still, and what makes it do so.

Rules of this part:

- A process does it to itself, at the very place that was named: nothing is raced for, apart from a
  time.
- An end runs no handler of Python: SIGKILL, or `os._exit`.
- One place for each process; what happens there happens once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Final, NamedTuple

KILLED: Final = -signal.SIGKILL
"""The exit status of a process that was killed."""

EXITED: Final = 86
"""The exit status of a process that ended itself by `os._exit` where it was told to."""

_FOR_EVER: Final = 60.0


class Kill(NamedTuple):
    """Where a process ends, stops or stands still.

    Attributes:
        where: "record", "call", "point" or "time".
        name: the event, the system call or the point; any when empty.
        nth: at the how manieth of these, counted from 1.
        after: when it is done, rather than before.
        by: "kill" (SIGKILL), "exit" (`os._exit`), "stop" (SIGSTOP: it stands until
            `CrashLab.revive`) or "block" (the thread that came here, an event loop's perhaps,
            stands still for a while).
        seconds: for "time": after how long, counted from the start of the program.
        blocks: for "block": for how many seconds.
    """

    where: str
    name: str = ""
    nth: int = 1
    after: bool = True
    by: str = "kill"
    seconds: float = 0.0
    blocks: float = 0.2

    @classmethod
    def at_record(
        cls, event: str = "", nth: int = 1, *, after: bool = True, by: str = "kill"
    ) -> Kill:
        """End at a record of the log: before it is written, or when the system has it."""
        return cls("record", event, nth, after, by)

    @classmethod
    def at_call(cls, name: str = "", nth: int = 1, *, after: bool = True, by: str = "kill") -> Kill:
        """End at a system call of the log: before it, or when it has been made."""
        return cls("call", name, nth, after, by)

    @classmethod
    def at_point(cls, name: str, nth: int = 1, *, by: str = "kill") -> Kill:
        """End where the program says `point(name)`."""
        return cls("point", name, nth, after=True, by=by)

    @classmethod
    def after_seconds(cls, seconds: float, *, by: str = "kill") -> Kill:
        """End after some time, wherever that is."""
        return cls("time", seconds=seconds, by=by)

    def __str__(self) -> str:
        if self.where == "time":
            return f"{self.by} after {self.seconds:.4f} s"
        side = "" if self.where == "point" else "after " if self.after else "before "
        what = f"{self.where} {self.name!r}" if self.name else self.where
        return f"{self.by} {side}{what} number {self.nth}"


class Trigger:
    """Lets what a `Kill` asks for happen to this process, at its place."""

    def __init__(self, kill: Kill | None) -> None:
        self._kill = kill
        self._left = kill.nth if kill is not None else 0
        self._lock = threading.Lock()
        if kill is not None and kill.where == "time":
            timer = threading.Timer(kill.seconds, self._happen, (kill,))
            timer.daemon = True
            timer.start()

    def wants(self, event: str) -> bool:
        """Say whether a record of this event may be the place."""
        kill = self._kill
        return kill is not None and kill.where == "record" and kill.name in ("", event)

    def reached(self, where: str, name: str, *, after: bool) -> None:
        """Say that a place is reached; does not return if it is where the process ends."""
        kill = self._kill
        if kill is None or (kill.where, kill.after) != (where, after):
            return
        if kill.name and kill.name != name:
            return
        with self._lock:
            self._left -= 1
            if self._left != 0:
                return
            if kill.by in ("kill", "exit"):
                self._happen(kill)
        self._happen(kill)

    def _happen(self, kill: Kill) -> None:
        if kill.by == "block":
            time.sleep(kill.blocks)
        elif kill.by == "stop":
            # Sent to this thread, not to the process: it stops here, whatever the others do.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        elif kill.by == "exit":
            os._exit(EXITED)
        else:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(_FOR_EVER)


_trigger: list[Trigger] = []


def arm(kill: Kill | None) -> Trigger:
    """Ask for the end of this process at a place; returns what must be told of places."""
    _trigger[:] = [Trigger(kill)]
    return _trigger[0]


def point(name: str) -> None:
    """Name a place of a program at which a test may end it; does nothing otherwise."""
    for trigger in _trigger:
        trigger.reached("point", name, after=True)

"""A crash laboratory: real processes that are killed, and recovered by other real processes.

    # shop.py: the tools, and a program that uses them
    from agent_saga_testing.crash import point

    def run(bench):
        with kit.transaction():
            charge(42)
            point("between charge and mail")
            mail()

    # test_shop.py
    def test_killed_after_the_charge(tmp_path):
        with CrashLab(tmp_path, "shop:run") as lab:
            lab.run(Kill.at_record("STEP_COMMITTED"))
            assert lab.recover() == [0]
        lab.world.assert_restored()

Rules of this part:

- The worker and every daemon is a process of its own, and dies by SIGKILL or by `os._exit`: no
  handler of Python runs. They are forked from one server that has loaded the program and has never
  opened a log, so that a case costs milliseconds.
- The world is a database file that the test reads by itself: what is counted does not go through
  what is tested.
- A kill is asked for ahead: at a record, at a system call of the log, at a point that the program
  names, or after some time.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_saga import Settings
from agent_saga.domain.fold import fold, resolve
from agent_saga.domain.views import SagaView
from agent_saga.wal.format import Record
from agent_saga.wal.reader import scan
from agent_saga_testing.world import World

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["EXITED", "KILLED", "Bench", "CrashLab", "Kill", "Server", "bench", "point"]

KILLED: Final = -signal.SIGKILL
"""The exit status of a process that was killed."""

EXITED: Final = 86
"""The exit status of a process that ended itself by `os._exit` where it was told to."""

PATIENCE: Final = 60.0
"""Seconds after which a process that should have ended is killed and counted as a failure."""


class Kill(NamedTuple):
    """Where a process ends.

    Attributes:
        where: "record", "call", "point" or "time".
        name: the event, the system call or the point; any when empty.
        nth: at the how manieth of these, counted from 1.
        after: when it is done, rather than before.
        by: "kill" (SIGKILL) or "exit" (`os._exit`).
        seconds: for "time": after how long, counted from the start of the program.
    """

    where: str
    name: str = ""
    nth: int = 1
    after: bool = True
    by: str = "kill"
    seconds: float = 0.0

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


class Trigger:
    """Ends this process at the place that a `Kill` names."""

    def __init__(self, kill: Kill | None) -> None:
        self._kill = kill
        self._left = kill.nth if kill is not None else 0
        self._lock = threading.Lock()
        if kill is not None and kill.where == "time":
            timer = threading.Timer(kill.seconds, self._end)
            timer.daemon = True
            timer.start()

    def wants(self, event: str) -> bool:
        """Say whether a record of this event may be the place."""
        kill = self._kill
        return kill is not None and kill.where == "record" and kill.name in ("", event)

    def reached(self, where: str, name: str, *, after: bool) -> None:
        """Say that a place is reached; does not return if it is the one."""
        kill = self._kill
        if kill is None or (kill.where, kill.after) != (where, after):
            return
        if kill.name and kill.name != name:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._end()

    def _end(self) -> None:
        if self._kill is not None and self._kill.by == "exit":
            os._exit(EXITED)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(PATIENCE)


_trigger: list[Trigger] = []


def arm(kill: Kill | None) -> Trigger:
    """Ask for the end of this process at a place; returns what must be told of places."""
    _trigger[:] = [Trigger(kill)]
    return _trigger[0]


def point(name: str) -> None:
    """Name a place of a program at which a test may end it; does nothing otherwise."""
    for trigger in _trigger:
        trigger.reached("point", name, after=True)


class CrashLab:
    """One log, one world, and the processes that act on them.

    Args:
        folder: where log and world are; made if it is not there.
        program: "module:function"; the function gets the `Bench` of its process. Importing the
            module must register the handlers that recovery needs.
        server: processes are forked from this one; a server of its own when not given.
        settings: settings of agent-saga for every process, by field name.
        argument: plain data that the program finds at `Bench.argument`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        program: str,
        *,
        server: Server | None = None,
        settings: dict[str, Any] | None = None,
        argument: object = None,
    ) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "log"
        self.world = World(self.folder / "world.sqlite")
        self.program = program
        self.argument = argument
        self.settings = {"settle_after": 0.0, "inverse_delay": 0.0, **(settings or {})}
        self._own = Server() if server is None else None
        self._server = server or self._own

    def run(self, kill: Kill | None = None) -> int:
        """Run the program in a process; return its exit status (negative: the signal)."""
        return self.wait(self.start(kill))

    def start(self, kill: Kill | None = None) -> int:
        """Start the program in a process; return its number."""
        return self._start("worker", kill)

    def recover(self, daemons: int = 1, kills: Sequence[Kill | None] = ()) -> list[int]:
        """Let so many daemons recover at once, each in a process; return their exit statuses.

        Args:
            daemons: how many.
            kills: where the first ones end; the others live.

        Returns:
            For each: 0 if nothing is left to do, 1 if something waits or needs a human.
        """
        asked = [*kills, *[None] * daemons][:daemons]
        return [self.wait(number) for number in [self._start("daemon", kill) for kill in asked]]

    def start_daemon(self, kill: Kill | None = None) -> int:
        """Start one daemon that makes one pass; return its number."""
        return self._start("daemon", kill)

    def wait(self, process: int) -> int:
        """Wait until a process has ended; return its exit status (negative: the signal)."""
        return int(self._ask("wait", process))

    def views(self) -> dict[str, SagaView]:
        """Return the sagas as a reader of the log sees them."""
        records = [found for found in scan(self.log) if isinstance(found, Record)]
        views = fold(records)
        for saga, view in views.items():
            if view.contested:
                views[saga] = resolve(saga, [one for one in records if one.saga == saga])
        return views

    def records(self) -> list[Record]:
        """Return every record of the log that can be read."""
        return [found for found in scan(self.log) if isinstance(found, Record)]

    def close(self) -> None:
        """End the laboratory's own server, if it has one."""
        if self._own is not None:
            self._own.close()

    def _start(self, role: str, kill: Kill | None) -> int:
        order = Order(
            role, self.program, str(self.folder), tuple(self.settings.items()), self.argument, kill
        )
        return int(self._ask("start", order))

    def _ask(self, what: str, about: object) -> Any:
        if self._server is None:
            raise RuntimeError("The laboratory is closed.")
        return self._server.ask(what, about)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Order(NamedTuple):
    """What a process is to do; it travels pickled."""

    role: str
    program: str
    folder: str
    settings: tuple[tuple[str, Any], ...]
    argument: object
    kill: Kill | None


class Bench:
    """What a program of a crash laboratory works with.

    Attributes:
        log: the path of the log, which is the default log of the process.
        world: the world to act on.
        settings: of the laboratory, as they hold for recovery.
        argument: what the laboratory was given.
    """

    def __init__(self, order: Order) -> None:
        folder = Path(order.folder)
        self.log = folder / "log"
        self.world = World(folder / "world.sqlite")
        self.settings = Settings(**dict(order.settings))
        self.argument = order.argument


_bench: list[Bench] = []


def use(bench: Bench) -> None:
    """Make this the bench of the process."""
    _bench[:] = [bench]


def bench() -> Bench:
    """Return the bench of this process, for tools and handlers, which are given nothing else.

    Raises:
        LookupError: this process was not started by a laboratory.
    """
    if not _bench:
        raise LookupError("This process was not started by a crash laboratory.")
    return _bench[0]


class Server:
    """A process that has loaded agent-saga, and forks workers and daemons.

    Args:
        path: folders in which programs are found, beside the usual ones.
    """

    def __init__(self, path: Sequence[str | os.PathLike[str]] = ()) -> None:
        found = os.pathsep.join([*(os.fspath(one) for one in path), *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from agent_saga_testing.crash_server import main; main()"],
            env={**os.environ, "PYTHONPATH": found},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._lock = threading.Lock()

    def ask(self, what: str, about: object) -> Any:
        """Send one order and return its answer; raise what it raised."""
        orders, answers = self._process.stdin, self._process.stdout
        if orders is None or answers is None:
            raise RuntimeError("The server has no pipes.")
        with self._lock:
            pickle.dump((what, about), orders)
            orders.flush()
            ended_well, value = pickle.load(answers)  # noqa: S301 - written by our own program
        if not ended_well:
            raise value
        return value

    def close(self) -> None:
        """End the server and whatever it has started."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

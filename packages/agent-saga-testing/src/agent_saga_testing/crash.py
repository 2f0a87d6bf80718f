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
- The world is kept and counted by another process still, which nobody kills: what is counted does
  not go through what is tested, and a call that reached the world is counted whether or not its
  caller lives to hear of it.
- A kill is asked for ahead: at a record, at a system call of the log, at a point that the program
  names, or after some time. A process can be stopped there instead, taken for dead, and revived.
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
from agent_saga.domain.effective import facts_of
from agent_saga.domain.fold import fold, resolve
from agent_saga.domain.records import Ev
from agent_saga.domain.views import SagaView
from agent_saga.wal.format import Record
from agent_saga.wal.reader import scan_log
from agent_saga_testing.crash_kills import EXITED, KILLED, Kill, point
from agent_saga_testing.world import World
from agent_saga_testing.world_server import ServedWorld, WorldServer, search_path

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["EXITED", "KILLED", "Bench", "CrashLab", "Kill", "Server", "bench", "point"]

PATIENCE: Final = 300.0
"""Seconds after which a process that should have ended is killed and counted as a failure."""


class CrashLab:
    """One log, one world, and the processes that act on them.

    Args:
        folder: where log and world are; made if it is not there.
        program: "module:function"; the function gets the `Bench` of its process. Importing the
            module must register the handlers that recovery needs.
        server: processes are forked from this one; a server of its own when not given.
        settings: settings of agent-saga for every process, by field name.
        argument: plain data that the program finds at `Bench.argument`.

    Attributes:
        log: the path of the log.
        world: what the processes act on; it is counted by a process of its own.
        clock: seconds by which the wall clock is off in processes that are started from now on.
        presumed_dead: writers of the log that daemons take for dead from now on; see
            `presume_dead`.
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
        self.program = program
        self.argument = argument
        self.settings = {"settle_after": 0.0, "inverse_delay": 0.0, **(settings or {})}
        self.clock = 0.0
        self.presumed_dead: tuple[str, ...] = ()
        self._own = Server() if server is None else None
        self._server: Server = server or self._own or Server()
        self.world = ServedWorld(self.folder / "world.sqlite", self._server.world)

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
        return int(self._server.ask("wait", process))

    def stopped(self, process: int) -> bool:
        """Wait until a process has stopped, or has ended without; say which (True: stopped)."""
        return bool(self._server.ask("stopped", process))

    def revive(self, process: int) -> None:
        """Let a process that has stopped go on."""
        os.kill(process, signal.SIGCONT)

    def kill(self, process: int) -> None:
        """Kill a process now, wherever it is; `wait` for it afterwards."""
        os.kill(process, signal.SIGKILL)

    def presume_dead(self, process: int) -> None:
        """Let every daemon from now on take a process for dead, although it may live.

        No lock of one host errs like this; a lost lease between hosts may.
        """
        mine = [
            record.writer
            for record in self.records()
            if record.event == Ev.WRITER_OPEN and facts_of(record).get("pid") == process
        ]
        self.presumed_dead = (*self.presumed_dead, *mine)

    def retry(self, kill: Kill | None = None) -> int:
        """Let an operator, in a process, retry every case of the queue; return its exit status."""
        return self.wait(self._start("operator", kill))

    def views(self) -> dict[str, SagaView]:
        """Return the sagas as a reader of the log sees them."""
        records = [found for found in scan_log(self.log) if isinstance(found, Record)]
        views = fold(records)
        for saga, view in views.items():
            if view.contested:
                views[saga] = resolve(saga, [one for one in records if one.saga == saga])
        return views

    def records(self) -> list[Record]:
        """Return every record of the log that can be read."""
        return [found for found in scan_log(self.log) if isinstance(found, Record)]

    def close(self) -> None:
        """End the laboratory's own server, if it has one."""
        self.world.forget()
        if self._own is not None:
            self._own.close()

    def _start(self, role: str, kill: Kill | None) -> int:
        order = Order(
            role,
            self.program,
            str(self.folder),
            tuple(self.settings.items()),
            self.argument,
            kill,
            self._server.world,
            self.clock,
            self.presumed_dead,
        )
        return int(self._server.ask("start", order))

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
    world: str = ""
    clock: float = 0.0
    presumed_dead: tuple[str, ...] = ()


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
        place = folder / "world.sqlite"
        self.world = ServedWorld(place, order.world) if order.world else World(place)
        self.settings = Settings(**dict(order.settings))
        self.argument = order.argument
        self.move_clock(order.clock)

    def move_clock(self, seconds: float) -> None:
        """Put the wall clock of this process forward, or back; the monotonic one goes on."""
        shift = self._shift = self._shift + seconds
        if shift:
            time.time = lambda: _TIME() + shift
            time.time_ns = lambda: _TIME_NS() + round(shift * 1e9)

    _shift = 0.0


_TIME, _TIME_NS = time.time, time.time_ns
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
    """A process that has loaded agent-saga, and forks workers and daemons; and a world's server.

    Args:
        path: folders in which programs are found, beside the usual ones.

    Attributes:
        world: the address at which worlds are kept.
    """

    def __init__(self, path: Sequence[str | os.PathLike[str]] = ()) -> None:
        self._worlds = WorldServer()
        self.world = self._worlds.address
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from agent_saga_testing.crash_server import main; main()"],
            env={**os.environ, "PYTHONPATH": search_path(path)},
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
            self._worlds.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

"""The server of a crash laboratory: forks one process for each order, and tells how it ended.

Rules of this part:

- What every process would look up once, about what is installed, the server looks up for all.
- The server itself opens no log, starts no thread and keeps nothing of a case: what is forked from
  it is as fresh as a new interpreter that has loaded the same modules.
- A child never comes back into the server's code: it ends by `os._exit`, by a kill, or by the end
  of its work.
- When its orders end, it kills what it has started.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from agent_saga import RecoveryDaemon, set_default_wal
from agent_saga.errors import AgentSagaError
from agent_saga.plugins.process import process_plugins
from agent_saga.plugins.releases import release_of
from agent_saga.wal.directory import WRITERS
from agent_saga.wal.file import FileWAL
from agent_saga.wal.lock import LOCK_FILE
from agent_saga.wal.os_port import OsPort
from agent_saga_testing.crash import PATIENCE, Bench, Order, use
from agent_saga_testing.crash_kills import Trigger, arm

__all__ = ["main"]

_CALLS = ("open", "pwrite", "append", "fdatasync", "fsync", "fallocate", "ftruncate")
_MORE_CALLS = ("replace", "unlink", "mkdir", "flock")


class CrashingPort(OsPort):
    """Tells a trigger of every system call that changes something."""

    def __init__(self, trigger: Trigger) -> None:
        for name in (*_CALLS, *_MORE_CALLS):
            setattr(self, name, self._told(trigger, name))

    def _told(self, trigger: Trigger, name: str) -> Any:
        call = getattr(super(), name)

        def told(*args: Any, **kwargs: Any) -> Any:
            trigger.reached("call", name, after=False)
            answer = call(*args, **kwargs)
            trigger.reached("call", name, after=True)
            return answer

        return told


def presume_dead(log: Path, writers: Iterable[str]) -> None:
    """Let the locks of some writers seem free to this process, whoever holds them."""
    locks = {(log / WRITERS / writer / LOCK_FILE).stat().st_ino for writer in writers}
    if not locks:
        return
    tried = OsPort.flock

    def flock(port: OsPort, fd: int) -> bool:
        return tried(port, fd) or port.fstat(fd).st_ino in locks

    setattr(OsPort, OsPort.flock.__name__, flock)


class CrashingWAL(FileWAL):
    """Tells a trigger of every record, before it is appended and when the system has it."""

    def __init__(self, path: Path, trigger: Trigger) -> None:
        super().__init__(path, CrashingPort(trigger))
        self._trigger = trigger

    def append(self, event: str, **fields: Any) -> int:
        """Append a record; see `BaseWAL.append`."""
        self._trigger.reached("record", event, after=False)
        seq = super().append(event, **fields)
        self._reached(event)
        return seq

    def append_out(self, event: str, **fields: Any) -> tuple[int, bool]:
        """Append a record and write it; see `BaseWAL.append_out`."""
        self._trigger.reached("record", event, after=False)
        answer = super().append_out(event, **fields)
        self._reached(event)
        return answer

    def _reached(self, event: str) -> None:
        if self._trigger.wants(event):
            self.drain()
            self._trigger.reached("record", event, after=True)


def main() -> None:
    """Carry out orders until there are none."""
    orders, answers = sys.stdin.buffer, sys.stdout.buffer
    process_plugins().load()
    release_of("agent_saga")
    children = Children()
    try:
        while True:
            try:
                what, about = pickle.load(orders)  # noqa: S301 - written by the test
            except EOFError:
                return
            _answer(answers, what, about, children)
    finally:
        children.end()


def _answer(answers: BinaryIO, what: str, about: Any, children: Children) -> None:
    try:
        answer: tuple[bool, object] = (True, getattr(children, what)(about))
    except Exception as error:
        answer = (False, error)
    pickle.dump(answer, answers)
    answers.flush()


class Children:
    """The processes that were started and that nobody has waited for."""

    def __init__(self) -> None:
        self._running: dict[int, int] = {}
        self._ended: dict[int, int] = {}

    def start(self, order: Order) -> int:
        """Start a process; return its number."""
        number = _start(order)
        self._running[number] = os.pidfd_open(number) if hasattr(os, "pidfd_open") else -1
        return number

    def wait(self, number: int) -> int:
        """Wait until a process has ended; return how."""
        if number not in self._ended and self._poll(number, stops=False) is None:
            os.kill(number, signal.SIGKILL)
            self._poll(number, stops=False)
            raise TimeoutError(f"The process {number} did not end within {PATIENCE} s.")
        return self._ended.pop(number)

    def stopped(self, number: int) -> bool:
        """Wait until a process has stopped or ended; say whether it has stopped."""
        if number in self._ended:
            return False
        return self._poll(number, stops=True) is True

    def end(self) -> None:
        """Kill what is left."""
        for number in list(self._running):
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)

    def _poll(self, number: int, *, stops: bool) -> bool | None:
        """Return True when it has stopped, False when it has ended, None if neither in time."""
        deadline = time.monotonic() + PATIENCE
        descriptor = self._running[number]
        while time.monotonic() < deadline:
            ended, status = os.waitpid(number, os.WNOHANG | (os.WUNTRACED if stops else 0))
            if ended and os.WIFSTOPPED(status):
                return True
            if ended:
                self._forget(number, os.waitstatus_to_exitcode(status))
                return False
            if descriptor >= 0 and not stops:
                select.select([descriptor], [], [], PATIENCE)
            else:
                time.sleep(0.001)
        return None

    def _forget(self, number: int, status: int) -> None:
        self._ended[number] = status
        descriptor = self._running.pop(number)
        if descriptor >= 0:
            os.close(descriptor)


def _start(order: Order) -> int:
    sys.stdout.flush()
    _function(order.program)
    number = os.fork()
    if number:
        return number
    status = 70
    try:
        status = _work(order)
    except BaseException:
        with (Path(order.folder) / f"{order.role}.errors").open("a", encoding="utf-8") as file:
            traceback.print_exc(file=file)
    finally:
        os._exit(status)


def _function(program: str) -> Any:
    module, _, name = program.partition(":")
    return getattr(importlib.import_module(module), name)


def _work(order: Order) -> int:
    """Be the worker or a daemon; in the forked process."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    made = Bench(order)
    use(made)
    presume_dead(made.log, order.presumed_dead)
    wal = CrashingWAL(made.log, arm(order.kill))
    work = {"worker": _program, "daemon": _recover, "operator": _retry}[order.role]
    status = work(order, made, wal)
    wal.close()
    return status


def _program(order: Order, made: Bench, wal: CrashingWAL) -> int:
    set_default_wal(wal)
    try:
        _function(order.program)(made)
    except Exception:
        return 1
    return 0


def _recover(_order: Order, made: Bench, wal: CrashingWAL) -> int:
    daemon = RecoveryDaemon(wal, settings=made.settings)
    result = daemon.recover_all()
    daemon.close()
    return 0 if result.clean else 1


def _retry(_order: Order, made: Bench, wal: CrashingWAL) -> int:
    daemon = RecoveryDaemon(wal, settings=made.settings)
    status = 0
    for case in daemon.cases():
        try:
            done = daemon.retry(case.id, by="operator")
        except AgentSagaError:
            status = 1
        else:
            status = status or (1 if done.needs_human else 0)
    daemon.close()
    return status


if __name__ == "__main__":
    main()

"""The server of a crash laboratory: forks one process for each order, and tells how it ended.

Rules of this part:

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
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO

from agent_saga import RecoveryDaemon, set_default_wal
from agent_saga.plugins.process import process_plugins
from agent_saga.wal.file import FileWAL
from agent_saga.wal.os_port import OsPort
from agent_saga_testing.crash import PATIENCE, Bench, Order, Trigger, arm, use

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
    started: set[int] = set()
    process_plugins().load()
    try:
        while True:
            try:
                what, about = pickle.load(orders)  # noqa: S301 - written by the test
            except EOFError:
                return
            _answer(answers, what, about, started)
    finally:
        for number in started:
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)


def _answer(answers: BinaryIO, what: str, about: Any, started: set[int]) -> None:
    try:
        if what == "start":
            value: object = _start(about)
            started.add(int(str(value)))
        else:
            value = _wait(about)
            started.discard(about)
        answer: tuple[bool, object] = (True, value)
    except Exception as error:
        answer = (False, error)
    pickle.dump(answer, answers)
    answers.flush()


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


def _wait(number: int) -> int:
    end = time.monotonic() + PATIENCE
    while True:
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
            raise TimeoutError(f"The process {number} did not end within {PATIENCE} s.")
        time.sleep(0.002)


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
    wal = CrashingWAL(made.log, arm(order.kill))
    if order.role == "daemon":
        daemon = RecoveryDaemon(wal, settings=made.settings)
        result = daemon.recover_all()
        daemon.close()
        wal.close()
        return 0 if result.clean else 1
    set_default_wal(wal)
    status = 0
    try:
        _function(order.program)(made)
    except Exception:
        status = 1
    wal.close()
    return status


if __name__ == "__main__":
    main()

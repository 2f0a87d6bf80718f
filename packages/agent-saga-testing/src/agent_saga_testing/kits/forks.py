"""Processes that need not load a framework each: forks of one server that has loaded it once.

Rules of this part:

- The server opens no log, starts no thread and keeps nothing of a call: what is forked from it is
  as fresh as a new interpreter that has loaded the same modules. Where loading them starts a
  thread, or a process cannot be watched safely, each is started anew, and is only slower.
- A fork has the environment, the search path and the folder that the test has at that moment. It
  ends as any process does, or is killed.
- An error is told as what it is, also where it cannot travel. What a module prints while it is
  loaded goes to the standard error.
- One runs at a time, and is waited for; one that does not end in time is killed.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from agent_saga_testing.kits.processes import (
    PATIENCE,
    Process,
    answer_of,
    portable,
    take_output,
)

__all__ = ["run_forked"]

_PROGRAM: Final = "from agent_saga_testing.kits.forks import main; main()"
_POSSIBLE: Final = hasattr(os, "pidfd_open")
_THREADED: Final = "it has threads"


def run_forked(
    function: Callable[..., Any], *args: object, load: Sequence[object] | None = None
) -> Any:
    """Run a function in a process of its own; return what it returned, raise what it raised.

    Args:
        function: an importable function; its module is loaded once for all.
        args: its arguments, picklable.
        load: another importable function, and its arguments: called once before, to load more.

    Raises:
        ChildProcessError: the process died; its last argument is the exit status.
    """
    status: object = _THREADED
    if _POSSIBLE:
        with tempfile.NamedTemporaryFile() as answer:
            status = _SERVER.ask(pickle.dumps(load), pickle.dumps((function, args)), answer.name)
            said = answer.read()
        if said:
            return _value(said)
    if status == _THREADED:
        with Process(function, *args) as process:
            return process.answer()
    if isinstance(status, Exception):
        raise status
    raise ChildProcessError(f"The process ended with {status}.", status)


def _value(said: bytes) -> Any:
    ended_well, value = pickle.loads(said)  # noqa: S301 - written by our own program
    if not ended_well:
        raise value
    return value


class _Order(NamedTuple):
    """What a fork is to do, as it travels."""

    environ: dict[str, str]
    path: list[str]
    folder: str
    load: bytes
    call: bytes
    answer: str


class _Server:
    """The client's side: starts the server when it is first asked, and ends it at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, load: bytes, call: bytes, answer: str) -> object:
        """Have a function run in a fork; return how the fork ended."""
        order = _Order({**os.environ}, [*sys.path], str(Path.cwd()), load, call, answer)
        with self._lock:
            process = self._process = self._process or self._start()
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("The server has no pipes.")
            pickle.dump(tuple(order), process.stdin)
            process.stdin.flush()
            told: object = pickle.load(process.stdout)  # noqa: S301 - written by our own program
            return told

    def _start(self) -> subprocess.Popen[bytes]:
        atexit.register(self._end)
        command = [sys.executable, "-c", _PROGRAM]
        return subprocess.Popen(  # noqa: S603 - our own interpreter and program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def _end(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=PATIENCE)


_SERVER: Final = _Server()


def main() -> None:
    """Carry out orders until there are none."""
    output = take_output()
    loaded: set[bytes] = set()
    with os.fdopen(output, "wb") as answers:
        while True:
            try:
                order = _Order(*pickle.load(sys.stdin.buffer))  # noqa: S301 - written by the test
            except EOFError:
                return
            try:
                told: object = _carried_out(order, loaded, output)
            except Exception as error:
                told = portable(error)
            answers.write(pickle.dumps(told))
            answers.flush()


def _carried_out(order: _Order, loaded: set[bytes], output: int) -> object:
    sys.path[:] = order.path
    load = pickle.loads(order.load)  # noqa: S301 - written by the test
    if load is not None and order.load not in loaded:
        load[0](*load[1:])
        loaded.add(order.load)
    function, args = pickle.loads(order.call)  # noqa: S301 - written by the test
    if threading.active_count() > 1:
        return _THREADED
    sys.stdout.flush()  # or each fork says it again
    number = os.fork()
    if number == 0:
        _be(order, function, args, output)
    return _end_of(number)


def _be(
    order: _Order, function: Callable[..., Any], args: Sequence[object], output: int
) -> NoReturn:
    """Be the process, to the end; never go back to what the server does."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, output):
            os.dup2(null, descriptor)
        os.environ.clear()
        os.environ.update(order.environ)
        os.chdir(order.folder)
        Path(order.answer).write_bytes(answer_of(function, args))
    except Exception:
        traceback.print_exc()
        os._exit(1)
    raise SystemExit


def _end_of(number: int) -> object:
    """Wait until a fork has ended; return its exit status (negative: the signal)."""
    descriptor = os.pidfd_open(number)
    try:
        ended, _, _ = select.select([descriptor], [], [], PATIENCE)
        if not ended:
            os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
    finally:
        os.close(descriptor)
    if not ended:
        return TimeoutError(f"The process did not end within {PATIENCE} s.")
    return os.waitstatus_to_exitcode(status)

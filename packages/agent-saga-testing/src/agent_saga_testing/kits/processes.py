"""Real processes for the kits: functions that run elsewhere, and are waited for or killed.

Rules of this part:

- A process is started anew, never forked, so that it shares nothing with the test but what the
  backend shares.
- Function, arguments and answer travel pickled; the function must be importable by name. An error
  that cannot travel is told as a `RuntimeError`: it never looks like the death of a process.
- What a function prints is no answer: it goes to the standard error.
- Whoever starts a process ends it: `Process` is a context manager that kills what is left.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Process", "run_all"]

_PROGRAM = "from agent_saga_testing.kits.processes import main; main()"
PATIENCE = 300.0
"""Seconds after which a process that should have ended is killed and counted as a failure."""


class Process:
    """One function in a process of its own.

    Args:
        function: an importable function.
        args: its arguments, picklable.
    """

    def __init__(self, function: Callable[..., Any], *args: object) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with self._process.stdin as order:  # type: ignore[union-attr]
            order.write(pickle.dumps((function, args)))
        self._process.stdin = None

    def answer(self) -> Any:
        """Wait for the end and return what the function returned; raise what it raised.

        Raises:
            ChildProcessError: the process died; its last argument is the exit status.
        """
        output, _ = self._process.communicate(timeout=PATIENCE)
        if not output:
            status = self._process.returncode
            raise ChildProcessError(f"The process ended with {status}.", status)
        ended_well, value = pickle.loads(output)  # noqa: S301 - written by our own program
        if not ended_well:
            raise value
        return value

    def kill(self) -> None:
        """Kill the process as a machine would: no handler runs."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


def run_all(function: Callable[..., Any], arguments: list[tuple[object, ...]]) -> list[Any]:
    """Run a function in several processes at once and return their answers in order."""
    processes = [Process(function, *args) for args in arguments]
    try:
        return [process.answer() for process in processes]
    finally:
        for process in processes:
            process.__exit__(None, None, None)


def answer_of(function: Callable[..., Any], args: Sequence[object]) -> bytes:
    """Call a function; return what came of it as it travels: whether it ended well, and with what.

    What it returned, too, may be unable to travel: then that is the error.
    """
    try:
        return pickle.dumps((True, function(*args)))
    except Exception as error:
        return pickle.dumps((False, portable(error)))


def portable(error: Exception) -> Exception:
    """Return an error that arrives where this process sends it: itself, or what it says."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own error
    except Exception:
        return RuntimeError(repr(error))
    return error


def take_output() -> int:
    """Return a descriptor of the standard output, which from now on is the standard error."""
    taken = os.dup(1)
    os.dup2(2, 1)
    return taken


def main() -> None:
    """Run the function that stands on the standard input; the answer goes to the output."""
    output = take_output()
    function, args = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the test
    with os.fdopen(output, "wb") as answer:
        answer.write(answer_of(function, args))

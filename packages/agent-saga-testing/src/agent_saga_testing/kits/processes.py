"""Real processes for the kits: functions that run elsewhere, and are waited for or killed.

Rules of this part:

- A process is started anew, never forked, so that it shares nothing with the test but what the
  backend shares.
- Function, arguments and answer travel pickled; the function must be importable by name.
- Whoever starts a process ends it: `Process` is a context manager that kills what is left.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Process", "run_all"]

_PROGRAM = "from agent_saga_testing.kits.processes import main; main()"
PATIENCE = 60.0
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
        """Wait for the end and return what the function returned; raise what it raised."""
        output, _ = self._process.communicate(timeout=PATIENCE)
        if not output:
            raise ChildProcessError(f"The process ended with {self._process.returncode}.")
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


def main() -> None:
    """Run the function that stands on the standard input; the answer goes to the output."""
    function, args = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the test
    try:
        answer: tuple[bool, Any] = (True, function(*args))
    except Exception as error:
        answer = (False, error)
    sys.stdout.buffer.write(pickle.dumps(answer))

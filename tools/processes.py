"""Runs commands so that nothing of them outlives its bound or this process.

Rules of this part:

- Each command leads a process group of its own, and its end is the end of the whole group.
- After `end_all` nothing starts any more.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

OVERRAN = 124
STOPPED = 130


class Group:
    """Commands that are ended together; several threads may run one each.

    Args:
        bound: seconds that one command may take.
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._lock = threading.Lock()
        self._live: set[subprocess.Popen[bytes]] = set()
        self._over = False

    def run(self, command: Sequence[str], cwd: Path, environ: Mapping[str, str], log: int) -> int:
        """Run a command without standard input and return its exit code.

        Args:
            command: the program and its arguments.
            cwd: where it starts.
            environ: its whole environment.
            log: a descriptor that receives its output.

        Returns:
            Its code; `OVERRAN` when it took too long; `STOPPED` after `end_all`.
        """
        with self._lock:
            if self._over:
                return STOPPED
            process = _start(command, cwd, environ, log)
            self._live.add(process)
        try:
            return process.wait(self._bound)
        except subprocess.TimeoutExpired:
            os.write(log, f"\nStopped: it took longer than {self._bound:.0f} seconds.\n".encode())
            return OVERRAN
        finally:
            _end(process)
            with self._lock:
                self._live.discard(process)

    def end_all(self) -> None:
        """End every command that still runs, and let none start."""
        with self._lock:
            self._over = True
            for process in self._live:
                _end(process)


def _start(
    command: Sequence[str], cwd: Path, environ: Mapping[str, str], log: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole group, also what the command itself left behind."""
    if sys.platform == "win32":
        process.kill()
    else:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
    process.wait()

"""Finds the Python interpreters that the project must pass on.

Rules of this part:

- An interpreter counts only after it was started and named its own version: the command of a
  version manager may lie on the path and lead nowhere.
- The running interpreter is preferred for its own version, then the path, then pyenv's folders,
  then what uv knows. Nothing is ever downloaded.

Called by `run.py` and by the noxfile. `python -m tools.interpreters` prints what it finds.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SUPPORTED = ("3.11", "3.12", "3.13")

_PROBE = "import sys; print('%d.%d' % sys.version_info[:2])"


def running() -> str:
    """Return the version of this process's Python, as `3.11`."""
    return "{}.{}".format(*sys.version_info[:2])


@functools.cache
def find(version: str) -> Path | None:
    """Return a working interpreter of that version, or None.

    Args:
        version: major and minor number, as `3.12`.
    """
    return next((path for path in _candidates(version) if _version_of(path) == version), None)


def found() -> list[str]:
    """Return the supported versions that this machine has, oldest first."""
    return [version for version in SUPPORTED if find(version)]


def missing() -> list[str]:
    """Return the supported versions that this machine lacks, oldest first."""
    return [version for version in SUPPORTED if not find(version)]


def search_path(path: str) -> str:
    """Return a PATH on which `pythonX.Y` starts the interpreter that `find` gives.

    Args:
        path: the PATH to begin with; folders are only put in front of it.
    """
    for version in found():
        interpreter = find(version)
        first = shutil.which(f"python{version}", path=path)
        if interpreter and (first is None or _version_of(Path(first)) != version):
            path = os.pathsep.join([str(interpreter.parent), path])
    return path


def _candidates(version: str) -> Iterator[Path]:
    if version == running():
        yield Path(sys.executable)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        command = shutil.which(f"python{version}", path=folder)
        if command:
            yield Path(command)
    yield from _pyenv(version)
    yield from _uv(version)


def _pyenv(version: str) -> Iterator[Path]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    try:
        yield from sorted(root.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    except OSError:
        return


def _uv(version: str) -> Iterator[Path]:
    uv = shutil.which("uv")
    if uv:
        answer = _output(
            [uv, "python", "find", "--no-python-downloads", "--no-project", "--system", version]
        )
        if answer:
            yield Path(answer)


@functools.cache
def _version_of(interpreter: Path) -> str:
    return _output([str(interpreter), "-I", "-c", _PROBE])


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    for wanted in SUPPORTED:
        print(f"Python {wanted}: {find(wanted) or 'not found'}")

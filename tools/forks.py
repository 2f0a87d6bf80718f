"""Runs pytest many times, each in a fork of one process that has loaded what all of them need.

Rules of this part:

- Loaded before the first run: pytest with its plugins, and what the test files import of other
  people, in the environment that the files set up: what starts a thread in another one starts none.
  Of this workspace nothing is, but what a plugin brings: each run loads it anew.
- A run ends as a process ends, with its own code, and what it said is handed back. A run that
  breaks before a test has failed never looks like a failing test.
- Where there is no fork, or a thread runs that a fork would lose, each run is a process of its own,
  and only slower.

pytest takes 0.8 s of CPU to start, and three where the tests import LangGraph; most runs need less
than that for themselves. A fork has both at once.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tools import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BROKEN = 3
"""pytest's own code for an error of its own."""

_FORKS = hasattr(os, "fork")
_LOADED_EARLY = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
"""What is loaded before pytest starts has its plain asserts; pytest would say so."""

_PROGRAM = """
import sys
sys.path[:1] = ["", sys.argv[1]]
from tools import forks
forks.be(sys.argv[2:])
"""


def load(files: Sequence[str]) -> None:
    """Load what runs of these test files will need of other people.

    Args:
        files: the test files; a fork collects them, to see what they load.
    """
    if not _FORKS:
        return
    with contextlib.redirect_stdout(io.StringIO()):
        # It ends before it collects, and its plugins stay, loaded as it loads them.
        _pytest(["--markers", str(tree.ROOT / "conftest.py")])
    if not _can_fork():
        return
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as seen:
        _forked(lambda: _collect(files, Path(seen.name)))
        names, environ = json.loads(seen.read() or "[[], {}]")
    with _environment(environ):
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    gc.freeze()  # forks share this memory, and look for no garbage in it


@contextlib.contextmanager
def _environment(environ: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run(arguments: Sequence[str]) -> tuple[int, str]:
    """Run pytest once, and return its exit code and all that it said.

    Args:
        arguments: those of pytest.
    """
    if _can_fork():
        return _forked(lambda: _pytest(arguments))
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tree.ROOT), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def be(arguments: Sequence[str]) -> NoReturn:
    """Run pytest once as all that this process does."""
    _end_with(lambda: _pytest(arguments))


def _can_fork() -> bool:
    return _FORKS and threading.active_count() == 1


def _forked(do: Callable[[], int]) -> tuple[int, str]:
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            _end_with(do, said.fileno())
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read().decode("utf-8", "replace")


def _end_with(do: Callable[[], int], output: int | None = None) -> NoReturn:
    """Do something and end this process with its code: nothing is taken apart or waited for.

    What wants to know of the end is told. Whatever breaks, be it the output, the code is `BROKEN`:
    Python's own, for an error that nobody caught, is that of a failing test.
    """
    code = BROKEN
    try:
        if output is not None:
            os.dup2(output, 1)
            os.dup2(output, 2)
        done = do()
        atexit._run_exitfuncs()  # noqa: SLF001 - what a process does that ends by itself
        sys.stdout.flush()
        sys.stderr.flush()
        code = done
    finally:
        os._exit(code)


def _pytest(arguments: Sequence[str]) -> int:
    import pytest  # noqa: PLC0415 - only the process that runs it needs it

    try:
        return int(pytest.main([*_LOADED_EARLY, *arguments]))
    except BaseException:
        traceback.print_exc()
        return BROKEN


def _collect(files: Sequence[str], seen: Path) -> int:
    code = _pytest(["-q", "--collect-only", "-p", "no:cacheprovider", *files])
    names = sorted(filter(_is_foreign, sys.modules))
    seen.write_text(json.dumps([names, dict(os.environ)]), "utf-8")
    return code


def _is_foreign(name: str) -> bool:
    """Whether a loaded module came from a file that is not of this workspace."""
    origin = getattr(getattr(sys.modules[name], "__spec__", None), "origin", None)
    if origin is None or not Path(origin).is_absolute():
        return False
    return not Path(origin).is_relative_to(tree.ROOT) or "site-packages" in Path(origin).parts

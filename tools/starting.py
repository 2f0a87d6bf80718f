"""Starts pages and programs of this repository as a reader would: from an empty folder.

Rules of this part:

- No setting of agent-saga comes from outside; nothing is typed in.
- What was started has ended when this returns.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools import tree


def page(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Carry out the blocks of a page in a folder; see `tools.pages`."""
    searched = os.pathsep.join([str(tree.ROOT), os.environ.get("PYTHONPATH", "")])
    command = ["-Wdefault", "-m", "tools.pages", str(path)]
    return _run(command, folder, PYTHONPATH=searched)


def program(path: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder that is also the place of its temporary files."""
    return _run([str(path), *arguments], folder, TMPDIR=str(folder))


def _run(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("AGENT_SAGA")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**environ, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

"""Lists the files that belong to this repository, for tests that look at all of them.

Rules of this part:

- What git would commit counts, also before it is committed; what git ignores does not.
- In a copy without git every file counts, except below folders whose name begins with a dot.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@cache
def files() -> tuple[Path, ...]:
    """Return all files of the repository, sorted."""
    names = _git() if (ROOT / ".git").exists() else _walk()
    return tuple(sorted(ROOT / name for name in names if (ROOT / name).is_file()))


def texts() -> list[tuple[Path, str]]:
    """Return every text file with its content."""
    found = []
    for path in files():
        content = path.read_bytes()
        if b"\0" not in content:
            found.append((path, content.decode("utf-8")))
    return found


def sources() -> list[Path]:
    """Return the Python files of all packages that are shipped."""
    return [path for path in files() if path.suffix == ".py" and "src" in _parts(path)]


def _parts(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).parts


def _git() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in done.stdout.split("\0") if name]


def _walk() -> list[str]:
    return [
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*")
        if not any(part.startswith(".") and part != ".ci" for part in _parts(path))
        and "__pycache__" not in path.parts
    ]

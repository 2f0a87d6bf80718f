"""A newcomer's walk: both commands of the README, from a fresh clone, on a bare machine.

Rules of this part:

- The clone lies in a new folder; the environment has a PATH with `python3`, `git` and the system's
  folders, a new home, a locale, and nothing else: no cache, no settings.
- Run as root it walks twice: as root, and as the user `nobody`, who owns the folder.
- Only what is committed takes the walk.

Called as `python -m tools.newcomer [--quick]`; with `--quick` the second command runs its first
stages only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_COMMANDS = (("demo",), ("test",))
_QUICK = (("demo",), ("test", "lint", "imports"))
_TRUST = ("SSL_CERT_FILE", "PIP_CERT")
_BOUND_SECONDS = 5400


def main(arguments: list[str]) -> int:
    """Walk as every user that this process can be; return 0 if all walks succeed."""
    commands = _QUICK if "--quick" in arguments else _COMMANDS
    as_root = hasattr(os, "getuid") and os.getuid() == 0
    users = [None, "nobody"] if as_root else [None]
    wrong = [user or "this user" for user in users if not walk(user, commands)]
    print(f"{len(users) - len(wrong)} walks succeeded, {len(wrong)} failed")
    return 1 if wrong else 0


def walk(user: str | None, commands: tuple[tuple[str, ...], ...]) -> bool:
    """Clone the repository for a user and run the commands there.

    Args:
        user: a name to become (needs root), or None for the present user.
        commands: arguments of `run.py`, in order; the first failure ends the walk.
    """
    with _folder(user) as folder:
        clone = folder / "agent-saga"
        subprocess.run(["git", "clone", "--quiet", ROOT.as_uri(), str(clone)], check=True)
        if user:
            _give(folder, user)
        return all(
            _run(["python3", "run.py", *command], clone, user, folder) for command in commands
        )


@contextmanager
def _folder(user: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="newcomer-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        (folder / "tmp").mkdir()
        _provide(folder / "bin", user)
        yield folder


def _give(folder: Path, user: str) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            shutil.chown(path, user)


def _provide(commands: Path, user: str | None) -> None:
    """Put `python3` and `git` into a folder: the system's own where this Python is out of reach."""
    base = Path(os.path.realpath(sys.executable))
    python = base if user is None else _system_python()
    (commands / "python3").symlink_to(python)
    (commands / "git").symlink_to(shutil.which("git") or "/usr/bin/git")


def _system_python() -> Path:
    for version in ("3.13", "3.12", "3.11"):
        found = shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin")
        if found:
            return Path(found)
    raise SystemExit("This machine has no Python 3.11 or newer that every user may run.")


def _run(command: list[str], cwd: Path, user: str | None, home: Path) -> bool:
    become = ["setpriv", "--reuid", user, "--regid", "nogroup", "--clear-groups"] if user else []
    environ = {name: os.environ[name] for name in _TRUST if name in os.environ}
    environ.update(
        PATH=f"{home / 'bin'}:/usr/bin:/bin",
        HOME=str(home),
        TMPDIR=str(home / "tmp"),
        LANG="C.UTF-8",
    )
    print(f"-- {user or 'this user'}: {' '.join(command)}", flush=True)
    done = subprocess.run(
        [*become, *command],
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        timeout=_BOUND_SECONDS,
        check=False,
    )
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

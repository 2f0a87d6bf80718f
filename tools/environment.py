"""Makes the virtual environments of `run.py`, with the standard library alone.

Rules of this part:

- Everything lies in one folder: `.venv-run` in the repository, or, when this user cannot write
  there, a folder of this user's cache. Nothing is ever installed outside of it.
- An environment is made by `venv` with `ensurepip`; where a distribution took `ensurepip` out, by
  `venv` and the pip that Python has; where neither exists, `CannotBuild` names the system package
  to install.
- A stamp is written last: an environment without the stamp of the same inputs is made again.
- Compiled Python is kept there, whatever this user's settings say: the tests start thousands of
  processes, and each would compile all packages anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints" / "latest.txt"

_FOREIGN = (
    *("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"),
    *("PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV"),
)


class CannotBuild(Exception):
    """This machine lacks something that only its owner can install."""


def state_folder(root: Path = ROOT) -> Path:
    """Return the folder for environments, made and writable for this user alone.

    Args:
        root: the repository.

    Raises:
        CannotBuild: when no place can be written.
    """
    name = hashlib.sha256(str(root).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    shared = Path(tempfile.gettempdir()) / f"agent-saga-{_user()}"
    for folder in (root / ".venv-run", cache / "agent-saga" / name, shared / name):
        if _usable(folder):
            return folder
    raise CannotBuild("No folder can be written: neither the repository, nor the cache, nor /tmp.")


def ensure(name: str, requirements: Sequence[str], inputs: Sequence[Path]) -> Path:
    """Return the Python of a ready environment; make it if it is missing or out of date.

    Args:
        name: the environment's folder.
        requirements: arguments of `pip install`.
        inputs: files whose change makes the environment stale, beside the constraints.

    Raises:
        CannotBuild: when this machine's Python can make no environment.
        subprocess.CalledProcessError: when an installation fails; its output was printed.
    """
    folder = state_folder() / name
    with locked(folder.with_suffix(".lock")):
        stamp = _stamp(requirements, [CONSTRAINTS, Path(__file__), *inputs], folder)
        mark = folder / "stamp"
        if not (mark.is_file() and mark.read_text("utf-8") == stamp and _starts(folder)):
            print(f"run.py: making the environment {folder} (once)", flush=True)
            _make(folder, requirements)
            mark.write_text(stamp, "utf-8")
    return _python(folder)


def clean_environ() -> dict[str, str]:
    """Return this process's environment without what leads an installer or Python astray."""
    environ = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    environ.update(
        PYTHONPYCACHEPREFIX=str(state_folder() / "pycache"),
        PIP_CONSTRAINT=str(CONSTRAINTS),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PIP_NO_INPUT="1",
        PIP_USER="0",
        # The repository may belong to another user; git is asked for its version only.
        GIT_CONFIG_COUNT="1",
        GIT_CONFIG_KEY_0="safe.directory",
        GIT_CONFIG_VALUE_0=str(ROOT),
    )
    if _has_certificates():
        # As pip does: a network's own certificate is in the system's store.
        environ.setdefault("UV_SYSTEM_CERTS", "1")
    return environ


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two runs do not work in one folder; wait while another has it."""
    try:
        import fcntl  # noqa: PLC0415 - Windows has none; there two runs are the user's care
    except ImportError:
        yield
        return
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"run.py: another run uses {path.parent}; waiting for it", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _make(folder: Path, requirements: Sequence[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    own_pip = _has("ensurepip")
    if not _has("venv") or not (own_pip or _pip_can_aim()):
        raise CannotBuild(_advice())
    making = [sys.executable, "-m", "venv", str(folder)]
    _run(making if own_pip else [*making, "--without-pip"])
    python = str(_python(folder))
    aim = [python, "-m", "pip"] if own_pip else [sys.executable, "-m", "pip", "--python", python]
    _run([*aim, "install", "--quiet", "--constraint", str(CONSTRAINTS), *requirements])


def _run(command: list[str]) -> None:
    subprocess.run(
        command, check=True, cwd=ROOT, env=clean_environ(), stdin=subprocess.DEVNULL, timeout=900
    )


def _has_certificates() -> bool:
    paths = ssl.get_default_verify_paths()
    single = paths.cafile is not None and Path(paths.cafile).is_file()
    return single or (paths.capath is not None and any(Path(paths.capath).glob("*")))


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _pip_can_aim() -> bool:
    if not _has("pip"):
        return False
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "--help"], capture_output=True, text=True, check=False
    )
    return "--python" in asked.stdout


def _advice() -> str:
    return (
        "This Python can make no virtual environment: it has neither ensurepip nor pip.\n"
        "Install the one system package that brings them, then run this command again.\n"
        "On Debian and Ubuntu: apt-get install python3-venv"
    )


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else "user"


def _stamp(requirements: Sequence[str], inputs: Sequence[Path], folder: Path) -> str:
    digest = hashlib.sha256()
    for part in (*requirements, sys.version, os.path.realpath(sys.executable), str(folder)):
        digest.update(part.encode() + b"\0")
    for path in inputs:
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def _starts(folder: Path) -> bool:
    try:
        done = subprocess.run([str(_python(folder)), "-c", ""], check=False, timeout=60)
    except OSError:
        return False
    return done.returncode == 0


def _python(folder: Path) -> Path:
    windows = folder / "Scripts" / "python.exe"
    return windows if os.name == "nt" else folder / "bin" / "python"

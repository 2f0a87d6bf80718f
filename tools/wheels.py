"""Builds every package, and tests the wheels alone: with the source out of reach.

Rules of this part:

- Wheels are built from source archives, as a release is.
- They are installed as the pages say, then with what their tests need.
- The session's own environment is that of the workspace; a framework has one beside it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import nox

from tools import pages, places, sessions

ROOT = places.ROOT
PACKAGES = list(places.packages())


def tested_alone(session: nox.Session) -> None:
    """Build all wheels, and test those of every place there.

    Args:
        session: the session that does it.
    """
    with tempfile.TemporaryDirectory(prefix="agent-saga-wheels-") as folder:
        built = _build(session, Path(folder, "dist"))
        copy = _copy_tests(Path(folder, "copy"))
        session.install(str(built[places.CORE]))
        session.run("python", str(ROOT / "tools" / "installed.py"), places.CORE)
        for place in (places.SHARED, *places.frameworks()):
            _test_wheels(session, place, built, copy)


def _test_wheels(session: nox.Session, place: str, built: dict[str, Path], copy: Path) -> None:
    """Install the wheels of a place as the pages say, and test them there."""
    python = "python"
    if place != places.SHARED:
        python = _environment(session, copy.parent / Path(place).name)
    _install_apart(session, python, place, [str(built[places.CORE])])
    for told in pages.installs():
        chosen = [package for package in sessions.inside(place) if Path(package).name in told]
        if len(chosen) == len(told):
            _install_apart(session, python, place, [str(built[one]) for one in chosen])
    wheels = [str(built[package]) for package in sessions.inside(place)]
    needed = sessions.needed(sessions.inside(place))
    _install_apart(session, python, place, [*wheels, *sessions.group("test"), *needed])
    with session.chdir(copy):
        checks = str(ROOT / "tools" / "installed.py")
        session.run(python, checks, external=python != "python")
        for package in sessions.tested(place):
            results, chosen = Path(package).name, sessions.chosen(package)
            env = {"PYTHONSAFEPATH": "1"}
            sessions.pytest(session, *chosen, results=results, python=python, **env)


def _environment(session: nox.Session, folder: Path) -> str:
    """Make an environment beside the session's own, and return its Python."""
    uv = shutil.which("uv")
    made = [uv, "venv", "--quiet", "--python", session.python] if uv else ["python", "-m", "venv"]
    session.run(*map(str, made), str(folder), external=True)
    return str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def _install_apart(session: nox.Session, python: str, place: str, lines: list[str]) -> None:
    env = sessions.pinned(place)
    if python == "python":
        session.install(*lines, env=env)
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--python", python]
        session.run(*command, *lines, env=env, external=True)
    else:
        command = [python, "-m", "pip", "install", "--quiet"]
        session.run(*command, *lines, env=env, external=True)


def _build(session: nox.Session, output: Path) -> dict[str, Path]:
    """Build source archives and, from them, wheels; return the wheel of each package."""
    uv = shutil.which("uv")
    for package in PACKAGES:
        if uv:
            source = [uv, "build", "--quiet", str(ROOT / package), "--out-dir", str(output)]
            session.run(*source, external=True)
        else:
            command = ["python", "-m", "pip", "wheel", "--quiet", "--no-deps", str(ROOT / package)]
            session.run(*command, "--wheel-dir", str(output))
    stems = {package: Path(package).name.replace("-", "_") for package in PACKAGES}
    return {package: next(output.glob(f"{stem}-*.whl")) for package, stem in stems.items()}


def _copy_tests(tree: Path) -> Path:
    """Copy the tests and their settings, nothing else, and return the folder."""
    tree.mkdir()
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, tree / name)
    skipped = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package / "tests", tree / package / "tests", ignore=skipped)
    return tree

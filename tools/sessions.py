"""How a session of the noxfile installs, and how it runs pytest.

Rules of this part:

- What is installed is pinned by the place that the packages belong to, and packages of this
  workspace are edited in place; see `tools.places`.
- Worlds of other people have pins of their own, which are not ours.
- Every cache lies beside the environments, none in the repository.
"""

from __future__ import annotations

import os
from pathlib import Path

import nox

from tools import places

CORE, TESTING = places.CORE, places.TESTING
FRAMEWORKS = list(places.frameworks())
SHARED = list(places.shared())
GROUPS = nox.project.load_toml(places.ROOT / "pyproject.toml")
FREE = {"UV_CONSTRAINT": "", "PIP_CONSTRAINT": ""}
"""The environment of an installer that keeps to no pins of ours."""


def names(folders: list[str]) -> list[str]:
    """Return how the sessions of these packages or places are called."""
    return [Path(folder).name for folder in folders]


def pinned(place: str, *, lowest: bool = False) -> dict[str, str]:
    """Return the environment of an installer in a place."""
    pins = str(places.constraints(place, lowest=lowest))
    return {"UV_CONSTRAINT": pins, "PIP_CONSTRAINT": pins}


def group(name: str) -> list[str]:
    """Return the requirements of a dependency group."""
    return list(nox.project.dependency_groups(GROUPS, name))


def install(
    session: nox.Session, *groups: str, packages: list[str] = SHARED, lowest: bool = False
) -> None:
    """Install packages of this workspace to be edited in place, and dependency groups.

    A group that is named after a package is what its tests need beside it.
    """
    place = places.place_of(packages)
    lines = [line for name in groups for line in group(name)]
    env = pinned(place, lowest=lowest)
    session.install(*edited(packages), *lines, *needed(packages), env=env)


def needed(packages: list[str]) -> list[str]:
    """Return what the tests of these packages need beside them: of a framework's, or of all."""
    place = places.place_of(packages)
    chosen = packages if place == places.SHARED else [place]
    known = [name for name in names(chosen) if name in GROUPS["dependency-groups"]]
    return [line for name in known for line in group(name)]


def edited(packages: list[str]) -> list[str]:
    """Return what an installer is told so that packages are used where they lie."""
    return [part for package in packages for part in ("--editable", package)]


def beside(package: str) -> list[str]:
    """Return what a package's tests need of this workspace."""
    return list(dict.fromkeys([CORE, TESTING, package]))


def inside(place: str) -> list[str]:
    """Return the packages that are installed in a place."""
    return SHARED if place == places.SHARED else beside(place)


def tested(place: str) -> list[str]:
    """Return the packages whose tests run in a place."""
    return SHARED if place == places.SHARED else [place]


def caches(session: nox.Session) -> Path:
    """Return the folder for the caches of this session's tools."""
    folder = Path(session.cache_dir) / session.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def pytest(
    session: nox.Session,
    *arguments: str,
    results: str = "tests",
    python: str = "python",
    **env: str,
) -> None:
    """Run pytest with all caches outside the repository; what a passed test wrote goes with it."""
    folder = caches(session)
    command = [python, "-m", "pytest", "-q", "-o", f"cache_dir={folder / 'pytest'}"]
    command += ["-o", "tmp_path_retention_policy=failed"]
    if "AGENT_SAGA_RESULTS" in os.environ:
        command.append(f"--junitxml={os.environ['AGENT_SAGA_RESULTS']}/{results}.xml")
    own = {"HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"), **env}
    external = python != "python"
    session.run(*command, *arguments, *session.posargs, env=own, external=external)


def tests_of(package: str) -> str:
    """Return the test folder of a package."""
    return f"{package}/tests"


def chosen(package: str) -> list[str]:
    """What is run of a package's tests where they have run once already.

    The random and the killing ones run again only in the full matrix; of a framework's package only
    what tells whether the wheel is whole.
    """
    tests = tests_of(package)
    if "AGENT_SAGA_FULL" in os.environ:
        return [tests]
    if package in FRAMEWORKS:
        return [f"{tests}/test_package.py"]
    return [tests, "-m", "not property and not crash", f"--ignore={tests}/faults"]


def install_worlds(session: nox.Session, *more: str, packages: list[str] | None = None) -> None:
    """Install the worlds in an environment of their own: their pins are not ours."""
    for name in ("requirements.txt", *more):
        pins = str(places.ROOT / "bench" / "worlds" / name)
        session.install(*edited(packages or [CORE]), "-r", pins, env=FREE)
    # These ask for much that their worlds never use.
    bare = str(places.ROOT / "bench" / "worlds" / "requirements-bare.txt")
    session.install("--no-deps", "-r", bare, env=FREE)

"""The sessions of this workspace: what is checked, with which Python, and how.

Rules of this part:

- This file is the one truth; `run.py`, `tox.ini` and continuous integration only call it. How a
  session installs and runs pytest is in `tools/sessions.py`, the wheels are in `tools/wheels.py`.
- The tag `ci` marks what every change must pass, the tag `full` the whole matrix; the tag `long`
  what takes longest, and starts first; the tag `alone` what must not share the machine with another
  session; the tag `disk` what has its temporary files on a disk in any case.
- Every environment is installed under `constraints/`, and holds one agent framework at most: what
  frameworks require may conflict. See `tools/places.py`; a session that needs them all is made
  once for each place.
- No session writes into the repository: caches lie beside the environments, so that a read-only
  clone can be tested.
- A session whose tests write JUnit files puts them into `AGENT_SAGA_RESULTS` when that is set.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nox
from nox.command import CommandFailed

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tools import guarantees, interpreters, places
from tools.sessions import (
    CORE,
    FRAMEWORKS,
    FREE,
    SHARED,
    beside,
    caches,
    chosen,
    group,
    inside,
    install,
    install_worlds,
    names,
    pytest,
    tested,
    tests_of,
)
from tools.wheels import tested_alone

PACKAGES = list(places.packages())
PLACES = [places.SHARED, *FRAMEWORKS]
GUARDED = list(dict.fromkeys(entry.place for entry in guarantees.load().values()))
PYTHONS = list(interpreters.SUPPORTED)
PEERS = {
    "larzstate": "larzstate==0.1.0",
    "latch": "latch-idempotent==0.4.1",
    "safeact": "safeact==0.0.2",
    "sagaz": "sagaz==1.5.0",
}

nox.needs_version = ">=2026.4"
nox.options.default_venv_backend = "uv|venv"
nox.options.download_python = "never"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "imports", "typing", "tests"]

os.environ["PATH"] = interpreters.search_path(os.environ.get("PATH", os.defpath))
for _setting in ("UV_CONSTRAINT", "UV_BUILD_CONSTRAINT", "PIP_CONSTRAINT"):
    os.environ.setdefault(_setting, str(places.constraints(places.SHARED)))


@nox.session(tags=["full", "long"])
@nox.parametrize("python", PYTHONS, ids=PYTHONS, tags=[["ci"] for _ in PYTHONS[:-1]] + [[]])
def tests(session: nox.Session) -> None:
    """The core's tests, on every supported Python; the random and killing ones on the oldest.

    What they look for does not depend on the version; the full matrix runs them on all. For a
    change, the newest is tested by `wheels`: the same tests, on what would be released.
    """
    install(session, "test", packages=beside(CORE))
    pytest(session, *([tests_of(CORE)] if session.python == PYTHONS[0] else chosen(CORE)))


@nox.session(tags=["ci", "long"])
@nox.parametrize("package", PACKAGES[1:], ids=names(PACKAGES[1:]))
def packages(session: nox.Session, package: str) -> None:
    """Each other package's tests, on one Python; a framework's pages and examples, too."""
    install(session, "test", packages=beside(package))
    pytest(session, tests_of(package))
    if package in FRAMEWORKS:
        pytest(session, "tests/frameworks", results="frameworks")


@nox.session(python=PYTHONS, tags=["full"])
@nox.parametrize("package", PACKAGES[1:], ids=names(PACKAGES[1:]))
def matrix(session: nox.Session, package: str) -> None:
    """Each other package's tests, on every supported Python."""
    install(session, "test", packages=beside(package))
    pytest(session, tests_of(package))


@nox.session(python=PYTHONS, tags=["full"])
def lowest(session: nox.Session) -> None:
    """The core's tests with the oldest dependencies that it claims to work with."""
    install(session, "test", packages=beside(CORE), lowest=True)
    pytest(session, tests_of(CORE))


@nox.session(tags=["full"])
@nox.parametrize("package", FRAMEWORKS, ids=names(FRAMEWORKS))
def oldest(session: nox.Session, package: str) -> None:
    """Each framework package's tests with the oldest framework that it claims to work with."""
    install(session, "test", packages=beside(package), lowest=True)
    pytest(session, tests_of(package))


@nox.session(tags=["full"])
@nox.parametrize("place", PLACES, ids=names(PLACES))
def conformance(session: nox.Session, place: str) -> None:
    """Every backend of every port, and every framework, against its kit."""
    install(session, "test", packages=inside(place))
    pytest(session, "-m", "conformance", *map(tests_of, tested(place)))


@nox.session(tags=["full"])
@nox.parametrize("place", PLACES, ids=names(PLACES))
def crash(session: nox.Session, place: str) -> None:
    """Tests that kill real processes, three times over: a race may need company."""
    install(session, "test", packages=inside(place))
    across = ["tests"] if place == places.SHARED else []
    for number, turn in enumerate(("first", "second", "third"), start=1):
        env = {"AGENT_SAGA_CRASH_CASES": "3400", "AGENT_SAGA_CRASH_SEED": str(number)}
        env["AGENT_SAGA_FULL"] = "1"
        chosen = ["-m", "crash", "--ignore=tests/frameworks", *map(tests_of, tested(place))]
        pytest(session, *chosen, *across, results=turn, **env)


@nox.session(tags=["full"])
def property(session: nox.Session) -> None:
    """Random sagas against the model of the world; many states of the real code; power losses."""
    install(session, "test")
    deep = ("-m", "property", "--hypothesis-profile=deep")
    env = {"AGENT_SAGA_MODEL_STATES": "120000", "AGENT_SAGA_POWER_CASES": "3000"}
    env["AGENT_SAGA_FULL"] = "1"
    pytest(session, *deep, *map(tests_of, SHARED), **env)


@nox.session(tags=["full"])
def mutants(session: nox.Session) -> None:
    """Seed mistakes into the code, one by one: the model must find each, by the right property."""
    install(session, "test")
    environ = {"AGENT_SAGA_CACHE": str(caches(session))}
    session.run("python", "-m", "tools.mutants", *session.posargs, env=environ)


@nox.session(tags=["ci", "full"])
def lint(session: nox.Session) -> None:
    """Style and plain mistakes."""
    session.install(*group("lint"))
    cache = ["--cache-dir", str(caches(session))]
    session.run("ruff", "check", *cache, ".")
    session.run("ruff", "format", "--check", *cache, ".")


@nox.session(tags=["ci", "full"])
def imports(session: nox.Session) -> None:
    """The layers of the core."""
    install(session, "imports")
    session.run("lint-imports", "--cache-dir", str(caches(session)))


@nox.session(tags=["ci", "full"])
@nox.parametrize("place", PLACES, ids=names(PLACES))
def typing(session: nox.Session, place: str) -> None:
    """Types of everything that is shipped, of programs, and of calls as users write them."""
    install(session, "typing", packages=inside(place))
    session.run("mypy", f"--cache-dir={caches(session)}", *places.typed(place))


@nox.session(tags=["ci", "full"])
def workspace(session: nox.Session) -> None:
    """Tests across packages: layout, packaging, the public door, the guarantees' tests."""
    install(session, "test")
    others = [f"--ignore=tests/{name}" for name in ("docs", "examples", "frameworks")]
    pytest(session, "tests", *others)


@nox.session(tags=["ci", "full"])
def docs(session: nox.Session) -> None:
    """Every link of every page, and every code block; those of a framework run in its place."""
    install(session, "test")
    pytest(session, "tests/docs")


@nox.session(tags=["ci", "full"])
def examples(session: nox.Session) -> None:
    """Every example as a user starts it; those of a framework run in its place."""
    install(session, "test")
    pytest(session, "tests/examples")


@nox.session(tags=["ci", "full"])
@nox.parametrize("place", GUARDED, ids=names(GUARDED))
def guards(session: nox.Session, place: str) -> None:
    """Take out each guarantee's guard: its tests must fail."""
    own = [entry.id for entry in guarantees.load().values() if entry.place == place]
    wanted = [name for name in session.posargs or own if name in own]
    if not wanted:
        session.skip("nothing that was asked for is guaranteed by a package of this place")
    install(session, "test", packages=inside(place))
    environ = {"AGENT_SAGA_CACHE": str(caches(session))}
    session.run("python", "-m", "tools.guards", *wanted, env=environ)


@nox.session(tags=["full", "long", "disk"], reuse_venv=False)
@nox.parametrize("python", PYTHONS, ids=PYTHONS, tags=[[] for _ in PYTHONS[:-1]] + [["ci"]])
def wheels(session: nox.Session) -> None:
    """Build everything, install the wheels alone, test them with the source out of reach.

    A change is tested so with the newest Python, a release with all; what the tests write is on a
    disk.
    """
    tested_alone(session)


@nox.session(tags=["ci", "full", "alone", "disk"])
def bench(session: nox.Session) -> None:
    """Print all figures beside their bars; counts are exact and judged, times are not."""
    install(session, packages=[CORE])
    session.run("python", "bench/bench_core.py", "--counters", *session.posargs)


@nox.session(tags=["full", "alone"])
def ratios(session: nox.Session) -> None:
    """Judge the times of all figures, too, each as a ratio to its floor."""
    install(session, packages=[CORE, "packages/agent-saga-langgraph"])
    session.run("python", "bench/bench_core.py", *session.posargs)
    session.run("python", "bench/bench_langgraph.py")


@nox.session(tags=["ci"])
def worlds(session: nox.Session) -> None:
    """A small share of the runs in worlds that other people wrote."""
    install_worlds(session)
    few = ("bfcl", "tau2-telecom", "mcp-mock", "--runs", "8", "--seed", "1")
    session.run("python", "-m", "bench.worlds", *(session.posargs or few))
    if not session.posargs:
        session.run("python", "-m", "bench.worlds.mutants", "tau2-telecom", "mcp-mock")
        rows = ("bfcl", "tau2-telecom", "mcp-mock", "--tasks", "30")
        session.run("python", "-m", "bench.worlds.evidence", *rows)


@nox.session(tags=["full"])
def all_worlds(session: nox.Session) -> None:
    """Many runs in all of them, through a framework, too; and rogue agents."""
    more = ("requirements-dojo.txt", "requirements-graph.txt")
    install_worlds(session, *more, packages=[CORE, "packages/agent-saga-langgraph"])
    session.run("python", "-m", "bench.worlds", "--runs", "40", *session.posargs)
    session.run("python", "-m", "bench.worlds", "--runs", "10", "--present", *session.posargs)
    session.run("python", "-m", "bench.worlds", "--runs", "4", "--mixed", "300", *session.posargs)
    session.run("python", "-m", "bench.worlds.graph", "bfcl", "tau2-telecom", "dojo-slack")
    session.run("python", "-m", "bench.worlds.rogue")
    session.run("python", "-m", "bench.worlds.mutants")
    session.run("python", "-m", "bench.worlds.evidence")


@nox.session(tags=["full"])
@nox.parametrize("who", list(PEERS), ids=list(PEERS))
def peers(session: nox.Session, who: str) -> None:
    """The same runs through each published alternative, in an environment of its own."""
    install_worlds(session, "requirements-dojo.txt")
    try:
        session.install(PEERS[who], env=FREE)
    except CommandFailed:
        session.skip(f"{PEERS[who]} cannot be installed any more")
    few = ("--who", who, "--seed", "1")
    session.run("python", "-m", "bench.worlds.peers", *few, *session.posargs)


@nox.session(tags=["ci", "full"])
def demo(session: nox.Session) -> None:
    """The first command of the README."""
    install(session, packages=[CORE])
    session.run("python", "examples/demo.py", *session.posargs)


@nox.session(tags=["full", "alone"])
def newcomer(session: nox.Session) -> None:
    """Both commands of the README, from a fresh clone, in a bare environment."""
    session.run("python", "-m", "tools.newcomer", *session.posargs)


@nox.session(python=False)
def lock(session: nox.Session) -> None:
    """Resolve all dependencies anew and write `constraints/`."""
    for name in ("UV_CONSTRAINT", "UV_BUILD_CONSTRAINT"):
        os.environ.pop(name, None)
    session.run(sys.executable, "-m", "tools.lock", *session.posargs)


@nox.session(python=False)
def full(session: nox.Session) -> None:
    """The whole matrix, newcomer's walk included."""
    session.run(sys.executable, "run.py", "test", "--full", "--all-pythons", *session.posargs)

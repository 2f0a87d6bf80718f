"""The two commands of the README, on a machine with git and Python 3.11 or newer.

    python3 run.py demo        the first run, undone before your eyes
    python3 run.py test        everything that a change must pass

Rules of this part:

- Standard library only. The first lines can be read by Python 3.6, to say that it is too old.
- Environments are made in a folder of this repository (or of the user's cache) and reused;
  nothing is installed for the whole machine.
- `test` runs the sessions of the noxfile that carry the tag `ci`. An interpreter that is missing
  is said; with CI=true or --all-pythons it is a failure.
- The last line is the sum. Exit codes: 0 all passed, 1 something failed, 2 this machine lacks
  something or the call was wrong.
"""

import sys

if sys.version_info < (3, 11):
    sys.stderr.write(
        "run.py needs Python 3.11 or newer; this is Python %d.%d (%s).\n"
        "Start it with a newer one, for example: python3.12 run.py demo\n"
        % (sys.version_info[0], sys.version_info[1], sys.executable)
    )
    sys.exit(2)

import argparse
import os
import signal
import subprocess
import tomllib
from pathlib import Path

from tools import environment, interpreters, results, stages

ROOT = environment.ROOT
BOUND_SECONDS = 1800.0
FULL_BOUND_SECONDS = 5400.0


def main(arguments: "list[str]") -> int:
    """Run one command and return the exit code."""
    # As for an interrupt: whatever was started is ended before this process ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _ignore_alone()
    _end_when_hung_up()
    options = _parser().parse_args(arguments)
    try:
        return demo() if options.command == "demo" else test(options)
    except environment.CannotBuild as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"run.py: this command failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        if "pip" in error.cmd:
            print(
                "  To do: see that pip can reach a package index, then try again.", file=sys.stderr
            )
        return 1
    except KeyboardInterrupt:
        return 130


def demo() -> int:
    """Run `examples/demo.py` in an environment that has the core alone."""
    core = ROOT / "agent-saga-core"
    python = environment.ensure("demo", ["--editable", str(core)], [core / "pyproject.toml"])
    command = [str(python), str(ROOT / "examples" / "demo.py")]
    return subprocess.run(command, env=environment.clean_environ(), check=False).returncode


def test(options: argparse.Namespace) -> int:
    """Run the stages, print their sum, and return 0 only if nothing failed."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    python = environment.ensure("test", groups["run"], [ROOT / "pyproject.toml"])
    folder = environment.state_folder()
    bound = FULL_BOUND_SECONDS if options.full else BOUND_SECONDS
    environ = _environ(python)
    if options.full:
        environ["AGENT_SAGA_FULL"] = "1"
    runner = stages.Runner(python, ROOT, folder, environ, bound, disk=options.full)
    with environment.locked(folder / "stages.lock"):
        chosen = _chosen(runner.stages("full" if options.full else "ci"), options.stage)
        ready = [stage for stage in chosen if stage.python not in interpreters.missing()]
        outcomes = runner.run(ready, options.jobs)
    absent = _say_missing(strict=options.all_pythons)
    counts = sum((outcome.counts for outcome in outcomes), results.Counts())
    failed = sum(outcome.failures for outcome in outcomes) + absent + (0 if outcomes else 1)
    print(f"{counts.passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def _ignore_alone() -> None:
    """Ignore what this process was told to ignore, as in the background, but let no child do so."""
    for number in {signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(
                number, lambda *_: None
            )  # what is handled, a new program does not inherit


def _end_when_hung_up() -> None:
    """End as for an interrupt when the terminal goes, unless that is to be ignored."""
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is not None and signal.getsignal(hang_up) == signal.SIG_DFL:
        signal.signal(hang_up, signal.default_int_handler)


def _chosen(listed: "list[stages.Stage]", prefixes: "list[str]") -> "list[stages.Stage]":
    unknown = [p for p in prefixes if not any(stage.name.startswith(p) for stage in listed)]
    if unknown:
        names = "\n  ".join(stage.name for stage in listed)
        raise environment.CannotBuild(f"No stage begins with {', '.join(unknown)}:\n  {names}")
    return [stage for stage in listed if not prefixes or stage.name.startswith(tuple(prefixes))]


def _say_missing(*, strict: bool) -> int:
    absent = interpreters.missing()
    for version in absent:
        print(f"{'failed' if strict else 'note':6} Python {version} was not found here; not tested")
    return len(absent) if strict else 0


def _environ(python: Path) -> "dict[str, str]":
    # uv lies beside this Python, and may know interpreters that nobody else does.
    beside = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    os.environ["PATH"] = beside
    return {**environment.clean_environ(), "PATH": interpreters.search_path(beside)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run.py", description="Runs the demo or the tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="run examples/demo.py")
    testing = commands.add_parser("test", help="run everything that a change must pass")
    testing.add_argument("stage", nargs="*", help="only the stages whose name begins so")
    testing.add_argument("--full", action="store_true", help="run the whole matrix")
    testing.add_argument("--jobs", type=int, default=stages.JOBS, help="stages at a time")
    testing.add_argument(
        "--all-pythons",
        action="store_true",
        default=os.environ.get("CI", "").lower() in {"1", "true"},
        help="fail for a supported Python that is missing (the default when CI=true)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`run.py` and what it stands on: old Pythons, bare machines, bounds, and an honest sum."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tools import environment, interpreters, processes, results, stages, tree

RUN = tree.ROOT / "run.py"
TOO_OLD = ("3.6", "3.7", "3.8", "3.9", "3.10")


def test_an_old_python_can_read_it():
    ast.parse(RUN.read_text("utf-8"), feature_version=(3, 6))


def test_every_old_python_of_this_machine_is_told_what_it_needs():
    for python in filter(None, map(interpreters.find, TOO_OLD)):
        done = subprocess.run([python, RUN, "demo"], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "needs Python 3.11 or newer" in done.stderr
        assert "Traceback" not in done.stderr


def test_without_a_command_it_says_how_it_is_used():
    done = subprocess.run([sys.executable, RUN], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage: run.py" in done.stderr


def test_an_interpreter_counts_only_if_it_starts(tmp_path, monkeypatch):
    broken = tmp_path / "python3.99"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreters.find("3.99") is None


def test_the_running_interpreter_is_found():
    assert interpreters.find(interpreters.running()) == Path(sys.executable)


def test_the_search_path_starts_the_interpreters_that_were_found():
    path = interpreters.search_path(os.environ["PATH"])
    for version in interpreters.found():
        command = [
            shutil.which(f"python{version}", path=path),
            "-c",
            "import sys; print(sys.version)",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(version + ".")


def test_a_repository_that_cannot_be_written_leaves_the_cache(tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    repository.write_text("a file, so that no folder can be made below it")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = environment.state_folder(repository)
    assert folder.is_relative_to(tmp_path / "cache" / "agent-saga")


def test_neither_repository_nor_cache_leaves_the_temporary_folder(tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(environment.tempfile, "gettempdir", lambda: str(tmp_path))
    assert environment.state_folder(blocked).is_relative_to(tmp_path)


def without(*names):
    return lambda module: module not in names


def test_a_python_without_venv_and_pip_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_has", without("ensurepip", "pip"))
    with pytest.raises(environment.CannotBuild, match="python3-venv"):
        environment._make(tmp_path / "env", [])


def test_without_ensurepip_the_pip_at_hand_is_aimed(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(environment, "_has", without("ensurepip"))
    monkeypatch.setattr(environment, "_pip_can_aim", lambda: True)
    monkeypatch.setattr(environment, "_run", ran.append)
    environment._make(tmp_path / "env", ["nox"])
    make, fill = ran
    assert make[1:3] == ["-m", "venv"]
    assert make[-1] == "--without-pip"
    assert fill[1:5] == ["-m", "pip", "--python", str(tmp_path / "env" / "bin" / "python")]


def test_settings_that_lead_an_installer_elsewhere_are_dropped(monkeypatch):
    monkeypatch.setenv("PIP_TARGET", "elsewhere")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert not {"PIP_TARGET", "PYTHONPATH"} & set(environment.clean_environ())


def test_a_changed_input_makes_an_environment_stale(tmp_path):
    source = tmp_path / "input"
    source.write_text("one")
    first = environment._stamp(["nox"], [source], tmp_path)
    assert environment._stamp(["nox"], [source], tmp_path) == first
    source.write_text("two")
    assert environment._stamp(["nox"], [source], tmp_path) != first
    assert environment._stamp(["nox", "uv"], [source], tmp_path) != first


SUITE = '<testsuites><testsuite tests="5" failures="1" errors="1" skipped="1"/></testsuites>'


def test_the_sum_counts_errors_as_failures(tmp_path):
    (tmp_path / "one.xml").write_text(SUITE)
    (tmp_path / "two.xml").write_text(SUITE)
    assert results.read(tmp_path) == results.Counts(passed=4, failed=4, skipped=2)


def test_a_file_that_cannot_be_read_counts_nothing(tmp_path):
    (tmp_path / "one.xml").write_text("<testsuites>")
    assert results.read(tmp_path) == results.Counts()


@pytest.mark.parametrize(
    ("code", "failed", "expected"), [(0, 0, 0), (1, 0, 1), (1, 3, 3), (0, 2, 2), (124, 0, 1)]
)
def test_a_stage_never_counts_better_than_it_ended(code, failed, expected):
    stage = stages.Stage("any", None)
    outcome = stages.Outcome(stage, code, 0.0, results.Counts(passed=9, failed=failed))
    assert outcome.failures == expected


@pytest.fixture
def log(tmp_path):
    with (tmp_path / "log").open("w+b") as handle:
        yield handle


def run(group, log, *command):
    return group.run(command, Path.cwd(), dict(os.environ), log.fileno())


def test_a_command_gives_its_code_and_its_output(log):
    assert run(processes.Group(60), log, "sh", "-c", "echo said; exit 3") == 3
    log.seek(0)
    assert log.read() == b"said\n"


def test_a_command_that_overruns_is_ended_with_its_children(log):
    slow = "sleep 1000 & echo $!; wait"
    assert run(processes.Group(1), log, "sh", "-c", slow) == processes.OVERRAN
    log.seek(0)
    child = int(log.readline())
    gone(child)


def test_nothing_starts_after_the_end(log):
    group = processes.Group(60)
    group.end_all()
    assert run(group, log, "true") == processes.STOPPED


def test_the_end_reaches_what_runs(log):
    group = processes.Group(600)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(run(group, log, "sleep", "1000")))
    thread.start()
    while not group._live:
        thread.join(0.01)
    group.end_all()
    thread.join(60)
    assert codes == [-9]


def gone(process):
    """Wait until a process has ended; a dead child of nobody may wait for its reaper."""
    for _ in range(6000):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        threading.Event().wait(0.01)
    pytest.fail(f"process {process} still runs")


def test_continuous_integration_calls_the_command_that_the_readme_names():
    script = tree.ROOT / ".ci" / "run"
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK)
    assert "python3 run.py test" in script.read_text("utf-8")


def test_stages_that_run_alone_run_last_and_by_themselves(tmp_path, monkeypatch):
    runner = stages.Runner(Path(sys.executable), tree.ROOT, tmp_path, {}, 60)
    open_now, seen = [], []

    def run(stage):
        open_now.append(stage.name)
        seen.append((stage.name, len(open_now)))
        open_now.remove(stage.name)
        return stages.Outcome(stage, 0, 0.0, results.Counts())

    monkeypatch.setattr(runner, "_stage", run)
    listed = [stages.Stage("bench", None, alone=True), stages.Stage("lint", None)]
    runner.run(listed, 2)
    assert seen == [("lint", 1), ("bench", 1)]


STAGES = {
    "bench": ["alone", "disk"],
    "lint": [],
    "tests": ["long"],
    "docs": [],
    "wheels": ["long", "disk"],
}


def test_long_stages_start_first_and_those_that_run_alone_last(tmp_path, monkeypatch):
    listed = [
        {"session": name, "python": None, "tags": ["ci", *tags]} for name, tags in STAGES.items()
    ]
    done = subprocess.CompletedProcess([], 0, json.dumps(listed))
    monkeypatch.setattr(stages.subprocess, "run", lambda *_args, **_how: done)
    runner = stages.Runner(Path(sys.executable), tree.ROOT, tmp_path, {}, 60)
    names = ["wheels", "tests", "lint", "docs", "bench"]
    assert [stage.name for stage in runner.stages("ci")] == names


def test_tests_can_be_interrupted_where_the_command_itself_is_not_to_be():
    """As a shell starts what it is to run in the background, or `nohup`."""
    program = (
        "import signal, subprocess, sys, run\n"
        "ignored = [signal.SIGINT, signal.SIGHUP]\n"
        "for number in ignored: signal.signal(number, signal.SIG_IGN)\n"
        "run._ignore_alone()\n"
        "for number in ignored: signal.raise_signal(number)\n"
        "asked = 'import signal; print(*map(signal.getsignal, (signal.SIGINT, signal.SIGHUP)))'\n"
        "subprocess.run([sys.executable, '-c', asked], check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tree.ROOT, capture_output=True, text=True, check=True
    )
    assert "default_int_handler" in done.stdout
    assert "SIG_IGN" not in done.stdout
    assert done.stdout.split()[-1] in ("Handlers.SIG_DFL", "0")


HUNG_UP = """
import signal, sys
from pathlib import Path
import run
from tools import memory

def test(options):
    memory.FOLDER, memory.is_large = Path(sys.argv[2]), lambda *_: True
    with memory.temporary(on_disk=False):
        print("begun", flush=True)
        sys.stdin.read()
    return 7

signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))
run.test = test
sys.exit(run.main(["test"]))
"""


@pytest.mark.parametrize(("told", "code"), [("SIG_DFL", 130), ("SIG_IGN", 7)])
def test_a_terminal_that_goes_ends_it_in_order_unless_that_is_ignored(tmp_path, told, code):
    with subprocess.Popen(
        [sys.executable, "-c", HUNG_UP, told, tmp_path],
        cwd=tree.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as started:
        assert started.stdout.readline() == b"begun\n"
        started.send_signal(signal.SIGHUP)
        if told == "SIG_IGN":
            started.stdin.close()
        assert started.wait(60) == code
    assert list(tmp_path.iterdir()) == []

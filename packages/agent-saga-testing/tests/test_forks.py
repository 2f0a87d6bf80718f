"""Forks of a server that has loaded what they need: each is as fresh as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from laboratory import forked

from agent_saga_testing.integration import elsewhere
from agent_saga_testing.integration.driver import AgentDriver
from agent_saga_testing.kits.forks import run_forked
from agent_saga_testing.kits.processes import run_all

ALONE = """
from laboratory import forked
from agent_saga_testing.kits.forks import run_forked
one, two = (run_forked(forked.told, n, load=(forked.starts_a_thread,)) for n in "ab")
print(one["loaded by"] == one["process"], two["loaded by"] == two["process"], two["calls"])
"""


@pytest.fixture
def run_anew(monkeypatch):
    """Run a function in a process that is started for it alone."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    monkeypatch.setenv("PYTHONPATH", path)
    return lambda function, *args: run_all(function, [args])[0]


def test_each_is_a_process_of_its_own_that_knows_nothing_of_the_one_before():
    one, two = run_forked(forked.told, "one"), run_forked(forked.told, "two")
    assert (one["calls"], two["calls"]) == (["one"], ["two"])
    assert len({one["process"], two["process"], os.getpid()}) == 3


def test_what_they_need_is_loaded_once():
    one, two = run_forked(forked.told, "one"), run_forked(forked.told, "two")
    assert one["loaded by"] == two["loaded by"] != os.getpid()


def test_it_has_the_environment_and_the_folder_of_the_moment(tmp_path, monkeypatch):
    run_forked(forked.told, "before")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLOUR", "red")
    told = run_forked(forked.told, "now")
    assert (told["folder"], told["colour"], told["read"]) == (str(tmp_path), "red", "")


def test_what_it_raises_is_raised():
    with pytest.raises(LookupError, match="not here"):
        run_forked(forked.refuses)


def test_its_death_is_told_with_its_status_and_the_next_one_lives():
    with pytest.raises(ChildProcessError) as died:
        run_forked(forked.dies)
    assert died.value.args[-1] == -signal.SIGKILL
    assert run_forked(forked.told, "next")["what"] == "next"


@pytest.mark.parametrize("kind", ["local", "far", "answer"])
def test_what_cannot_travel_is_told_and_is_no_death(run_anew, kind):
    for run in (run_forked, run_anew):
        with pytest.raises(Exception, match=r"not to be had|local object") as told:
            run(forked.raises, kind)
        assert not isinstance(told.value, OSError)


def test_what_cannot_be_loaded_is_told_and_the_next_one_lives():
    with pytest.raises(RuntimeError, match="not to be had"):
        run_forked(forked.told, "never", load=(forked.raises, "local"))
    assert run_forked(forked.told, "next")["what"] == "next"


def test_what_cannot_begin_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "cwd", lambda: tmp_path / "nowhere")
    with pytest.raises(ChildProcessError) as died:
        run_forked(forked.told, "never")
    assert died.value.args[-1] == 1


def test_what_is_printed_is_no_answer(run_anew):
    assert run_forked(forked.told, "one", load=(forked.prints,))["what"] == "one"
    assert run_anew(forked.prints) is None


@pytest.mark.parametrize("status", [0, 1, -signal.SIGTERM])
def test_only_a_death_by_the_tool_is_one(tmp_path, monkeypatch, status):
    def died(*_call, **_how):
        return run_forked(forked.ends, status) if status >= 0 else run_forked(forked.dies, -status)

    monkeypatch.setattr(elsewhere, "run_forked", died)
    with pytest.raises(AssertionError, match=str(status)):
        elsewhere.run_and_die(AgentDriver, tmp_path, [])


def test_a_death_by_the_tool_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(elsewhere, "run_forked", lambda *_call, **_how: run_forked(forked.dies))
    elsewhere.run_and_die(AgentDriver, tmp_path, [])


def test_where_loading_leaves_a_thread_each_is_started_anew():
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", ALONE], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "True True ['b']"

"""Forks of a server that has loaded what they need: each is as fresh as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from laboratory import forked

from agent_saga_testing.kits.forks import run_forked

ALONE = """
from laboratory import forked
from agent_saga_testing.kits.forks import run_forked
one, two = (run_forked(forked.told, n, load=(forked.starts_a_thread,)) for n in "ab")
print(one["loaded by"] == one["process"], two["loaded by"] == two["process"], two["calls"])
"""


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


def test_where_loading_leaves_a_thread_each_is_started_anew():
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", ALONE], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "True True ['b']"

"""Opening a store by its address."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent_saga.errors import ConfigurationError
from agent_saga.state.address import BUILT_IN, open_state
from agent_saga.state.memory import MemoryStateStore
from agent_saga.state.sqlite import SQLiteStateStore
from agent_saga.wal.address import open_wal


def test_memory():
    with open_state("memory:") as store:
        assert type(store) is MemoryStateStore
    with pytest.raises(ConfigurationError):
        open_state("memory:named")


@pytest.mark.parametrize("form", ["file:{}", "{}"])
def test_the_logs_address_opens_the_file_in_its_folder(tmp_path, form):
    with open_state(form.format(tmp_path / "log")) as store:
        assert type(store) is SQLiteStateStore
        assert store.path == tmp_path / "log" / "state.sqlite"


def test_a_relative_path_is_taken_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_state("./agent-saga.wal") as store:
        assert store.path == tmp_path / "agent-saga.wal" / "state.sqlite"


def test_a_file_of_its_own(tmp_path):
    with open_state(f"sqlite:{tmp_path}/my.db") as store:
        assert store.address == f"sqlite:{tmp_path}/my.db"
    assert list(tmp_path.iterdir()) == []


def test_schemes_are_given(tmp_path):
    mine = MemoryStateStore()
    asked = []
    schemes = {**BUILT_IN, "mine": lambda address: asked.append(address) or mine}
    assert open_state("mine:x/y:z", schemes) is mine
    assert asked == ["mine:x/y:z"]
    with pytest.raises(ConfigurationError) as caught:
        open_state("redis://host:1/0")
    assert "'redis'" in str(caught.value)
    assert "memory" in caught.value.fix


@pytest.mark.parametrize("name", ["50%20off", "a?b", "a:b", "memory:", "naïve ☃"])
def test_a_log_and_its_state_agree_about_odd_names(tmp_path, name):
    log = open_wal(tmp_path / name)
    for address in (log.address, tmp_path / name):
        with open_state(address) as store:
            assert store.path == tmp_path / name / "state.sqlite"
        assert open_wal(address).address == log.address


def test_sqlite_is_loaded_by_who_uses_it():
    program = (
        "import sys; from agent_saga.state.address import open_state; open_state('memory:');"
        "sys.exit('sqlite3' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

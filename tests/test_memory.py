"""Temporary files in memory: only where there is enough of it, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools import memory, stages, tree


@pytest.fixture
def known(tmp_path, monkeypatch):
    """What this machine says of its memory; it has enough."""
    known = tmp_path / "meminfo"
    known.write_text(f"MemTotal: 1 kB\nMemAvailable:  {memory.NEEDED // 1024} kB\n")
    monkeypatch.setattr(memory, "_KNOWN", known)
    monkeypatch.setattr(memory, "FOLDER", tmp_path / "memory")
    monkeypatch.setattr(memory, "_MEMBER", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")
    memory.FOLDER.mkdir()
    return known


def test_a_stage_gets_a_folder_in_memory_that_goes_with_it(known):
    with memory.temporary(on_disk=False) as told:
        folder = Path(told["TMPDIR"])
        assert folder.parent == memory.FOLDER
        (folder / "left").write_text("behind")
    assert list(memory.FOLDER.iterdir()) == []


def test_what_asks_for_a_disk_gets_none(known):
    with memory.temporary(on_disk=True) as told:
        assert told == {}


@pytest.mark.parametrize("said", ["MemAvailable: 4096 kB\n", "MemTotal: 1 kB\n", "strange\n", None])
def test_without_enough_memory_it_stays_on_the_disk(known, said):
    known.unlink() if said is None else known.write_text(said)
    with memory.temporary(on_disk=False) as told:
        assert told == {}


def test_where_there_is_no_such_folder_it_stays_on_the_disk(known):
    memory.FOLDER.rmdir()
    with memory.temporary(on_disk=False) as told:
        assert told == {}


def in_memory(**how):
    with memory.temporary(on_disk=False, **how) as told:
        return told != {}


def test_there_is_enough_for_all_stages_at_once(known):
    assert in_memory(stages=1)
    assert not in_memory(stages=2)
    known.write_text(f"MemAvailable: {memory.NEEDED // 512} kB\n")
    assert in_memory(stages=2)


def test_the_runner_asks_for_as_many_as_run_at_a_time(known, tmp_path, monkeypatch):
    runner = stages.Runner(Path(sys.executable), tree.ROOT, tmp_path, {}, 60)
    seen = []
    monkeypatch.setattr(
        runner._processes, "run", lambda _command, _cwd, environ, _log: seen.append(environ) or 0
    )
    for jobs in (1, 2):
        runner.run([stages.Stage("tests", None)], jobs)
        runner._processes._over = False
    assert ["TMPDIR" in environ for environ in seen] == [True, False]


USED = memory.NEEDED // 4
BOUNDS = [
    (memory.NEEDED, 0, False),
    (memory.NEEDED, USED, True),
    (memory.NEEDED + USED, 0, True),
    (2**63 - 4096, 0, True),
]


@pytest.mark.parametrize("bounded", ["", "box", "box/inner"])
@pytest.mark.parametrize(
    ("version", "bound", "cached", "enough"),
    [
        *[(version, *row) for version in (1, 2) for row in BOUNDS],
        (2, "max", 0, True),  # the first version has no such word
    ],
)
def test_the_bound_of_a_container_is_heeded(known, version, bounded, bound, cached, enough):
    member = {1: "3:cpu,memory:/box/inner\n0::/\n", 2: "0::/box/inner\n"}
    memory._MEMBER.write_text(member[version])
    group = (memory._GROUPS / "memory" if version == 1 else memory._GROUPS) / bounded
    group.mkdir(parents=True)
    limit, used, idle = memory._FILES[version]
    (group / limit).write_text(f"{bound}\n")
    (group / used).write_text(f"{USED}\n")
    (group / "memory.stat").write_text(f"anon 1\n{idle} {cached}\n")
    assert in_memory() is enough


def test_a_bound_whose_use_is_unknown_leaves_nothing(known):
    memory._MEMBER.write_text("0::/\n")
    memory._GROUPS.mkdir()
    (memory._GROUPS / "memory.max").write_text(f"{memory.NEEDED * 9}\n")
    assert not in_memory()


def test_where_no_program_may_be_started_it_stays_on_the_disk(known, monkeypatch):
    real = os.statvfs(memory.FOLDER)

    class NoPrograms:
        f_flag = real.f_flag | os.ST_NOEXEC

        def __getattr__(self, name):
            return getattr(real, name)

    monkeypatch.setattr(os, "statvfs", lambda _folder: NoPrograms())
    assert not in_memory()


KILLED = """
import os, signal, sys
from pathlib import Path
from tools import memory
memory.FOLDER, memory.is_large = Path(sys.argv[1]), lambda *_: True
with memory.temporary(on_disk=False) as told:
    (Path(told["TMPDIR"]) / "left").write_text("behind")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_and_nothing_else(known):
    living = memory.FOLDER / f"{memory._prefix()}{os.getppid()}-other"
    elsewhere = memory.FOLDER / "agent-saga-1-4194305-other"
    foreign = memory.FOLDER / f"{memory._prefix()}name-other"
    for folder in (living, elsewhere, foreign):
        folder.mkdir()
    command = [sys.executable, "-c", KILLED, memory.FOLDER]
    done = subprocess.run(command, cwd=tree.ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(memory.FOLDER.iterdir())) == 4
    assert in_memory()
    assert set(memory.FOLDER.iterdir()) == {living, elsewhere, foreign}


def test_what_somebody_else_left_stays(known, monkeypatch):
    command = [sys.executable, "-c", KILLED, memory.FOLDER]
    subprocess.run(command, cwd=tree.ROOT, check=False)
    monkeypatch.setattr(os, "getuid", lambda: memory.FOLDER.stat().st_uid + 1)
    assert in_memory()
    assert len(list(memory.FOLDER.iterdir())) == 1


@pytest.mark.parametrize(
    ("stage", "all_on_disk", "in_memory"),
    [
        (stages.Stage("tests", None), False, True),
        (stages.Stage("wheels", None, disk=True), False, False),
        (stages.Stage("tests", None), True, False),
    ],
)
def test_a_stage_that_asks_for_a_disk_has_one(
    known, tmp_path, monkeypatch, stage, all_on_disk, in_memory
):
    environ = {k: v for k, v in os.environ.items() if k != "TMPDIR"}
    runner = stages.Runner(Path(sys.executable), tree.ROOT, tmp_path, environ, 60, disk=all_on_disk)
    seen = []
    monkeypatch.setattr(
        runner._processes, "run", lambda _command, _cwd, environ, _log: seen.append(environ) or 0
    )
    assert runner._stage(stage).code == 0
    assert ("TMPDIR" in seen[0]) is in_memory

"""What stands under a name in the log's folder and is no file hangs nobody and breaks nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

import pytest
from compaction.logs import Writer

from agent_saga import AgentKit, AgentSagaError, FileWAL, Settings, compensator
from agent_saga.cli.main import main
from agent_saga.plugins.registry import process_handlers
from agent_saga.runtime.daemon import RecoveryDaemon

COMMANDS = (
    ["list"],
    ["show", "open"],
    ["status"],
    ["queue", "list"],
    ["verify"],
    ["doctor"],
    ["limits"],
    ["recover", "--dry-run"],
    ["recover"],
)
IDLE = ["checkpoint", "recovery.seen", "writers/WRITER/poisoned", "compaction.draft", ".gitignore"]
NEEDED = [
    "compaction",
    "format",
    "state.sqlite",
    "state.sqlite-wal",
    "state.switches.sqlite",
    "writers/WRITER/lock",
    "writers/WRITER/seg-00000001.jsonl",
    "writers/WRITER/seg-00000002.jsonl",
    "writers/WRITER",
    "writers",
]


def pipe(place):
    os.mkfifo(place)


def folder(place):
    place.mkdir()


def device(place):
    place.symlink_to("/dev/zero")


def plug(place):
    with contextlib.chdir(place.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(place.name)  # the whole path may be too long for it


@pytest.fixture
def undone():
    done = []
    with process_handlers().isolated():

        @compensator("refund")
        def refund(what):
            done.append(what)

        yield done


@pytest.fixture
def path(tmp_path):
    past = Writer(tmp_path / "log")
    past.begin("open")
    past.applied("open", "a")
    past.close()
    return tmp_path / "log"


def placed(path, name, make):
    [writer] = [one.name for one in (path / "writers").iterdir()]
    place = path / name.replace("WRITER", writer)
    if place.is_dir():
        place.rename(path.parent / "moved")
    else:
        place.unlink(missing_ok=True)
    make(place)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        (name, make)
        for name in [*IDLE, *NEEDED]
        for make in (pipe, folder, device, plug)
        if make is not folder or name not in ("writers", "writers/WRITER")
    ],
)
def test_no_command_hangs_or_breaks_over_it(path, undone, capsys, name, make):
    placed(path, name, make)
    codes = {words[0]: main([*words, "--wal-path", str(path)]) for words in COMMANDS}
    told = capsys.readouterr()
    assert "Traceback" not in told.out + told.err
    assert set(codes.values()) <= {0, 1, 3, 4}
    if name in IDLE:
        assert undone == ["a"]
    else:
        assert undone == [] or codes["recover"] == 0
    if undone == [] and not name.startswith("writers"):
        assert codes["recover"] != 0


@pytest.mark.parametrize("make", [pipe, device, plug])
@pytest.mark.parametrize("name", ["checkpoint", "format", "state.sqlite", "state.switches.sqlite"])
def test_no_agent_hangs_over_it(path, undone, name, make):
    placed(path, name, make)
    with contextlib.suppress(AgentSagaError):
        kit = AgentKit(wal=str(path))
        try:
            with kit.transaction():
                pass
        finally:
            with contextlib.suppress(AgentSagaError):
                kit.runtime.wal.close()


def test_what_recovery_leaves_in_the_folder_is_for_its_owner_only(path, undone):
    old = path / "recovery.seen"
    old.write_text("{}")
    old.chmod(0o644)
    wal = FileWAL(path)
    daemon = RecoveryDaemon(wal, settings=Settings(settle_after=0.0))
    assert [one.outcome for one in daemon.recover_all().sagas] == ["undone"]
    daemon.close()
    wal.close()
    for place in [path, *path.rglob("*")]:
        mode = stat.S_IMODE(place.stat().st_mode)
        assert mode & 0o077 == 0 or place.name == ".gitignore", (place, oct(mode))

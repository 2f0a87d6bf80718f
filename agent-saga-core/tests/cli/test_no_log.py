"""A folder that is empty or holds something else is no log, and never one that is clean."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agent_saga import FileWAL
from agent_saga.domain.records import Ev

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import Cli

WHO = ("--by", "ann", "--reason", "because")
RESUME = ("resume", "--scope", "*", "--by", "ann")
COMMANDS = [
    ("list",),
    ("status",),
    ("verify",),
    ("limits",),
    ("recover",),
    ("recover", "--dry-run"),
    ("queue", "list"),
    ("queue", "show", "x"),
    ("queue", "close", "x", *WHO),
    ("show", "x"),
    ("undo", "x", *WHO),
    ("approvals", "list"),
    ("breaker", "status"),
    ("quarantine", "x", *WHO),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_empty_folder_is_no_log(cli: Cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "empty").mkdir()
    run = cli(*words, "--wal-path", tmp_path / "empty")
    assert run.code == 3
    assert "no log" in run.out + run.err or "no record" in run.out
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("words", [*COMMANDS, ("halt", *WHO), RESUME], ids=" ".join)
def test_a_folder_of_something_else_is_no_log(
    cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "ada.jpg").write_text("not a log")
    run = cli(*words, "--wal-path", tmp_path / "photos")
    assert run.code == 3
    assert f"{tmp_path / 'photos'}' holds other files ('ada.jpg'), so it is no log." in run.err
    assert "--wal-path" in run.err
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["ada.jpg"]


def test_doctor_tells_an_empty_folder_from_a_log(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o700)
    run = cli("doctor", "--wal-path", tmp_path / "empty")
    assert (run.code, "is empty: no log has begun there" in run.out) == (0, True)
    (tmp_path / "empty" / "ada.jpg").write_text("not a log")
    run = cli("doctor", "--wal-path", tmp_path / "empty")
    assert (run.code, "so it is no log" in run.out) == (1, True)


def test_what_was_halted_before_the_first_agent_is_told(cli: Cli, tmp_path: Path) -> None:
    cli("halt", *WHO)
    run = cli("status")
    assert run.code == 1
    assert "halted by ann" in run.out
    assert cli("recover").code == 0


def service(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "agent_saga.cli.recoveryd", "--interval", "0.1", *words],
        cwd=folder, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.crash
@pytest.mark.parametrize("there", [False, True])
def test_a_daemon_may_come_before_the_first_agent_and_says_so(
    tmp_path: Path, *, there: bool
) -> None:
    if there:
        (tmp_path / "agent-saga.wal").mkdir()
    with service(tmp_path) as daemon:
        assert daemon.stderr is not None
        try:
            assert f"no log at {tmp_path / 'agent-saga.wal'} yet" in daemon.stderr.readline()
            wal = FileWAL(tmp_path / "agent-saga.wal")
            wal.append(Ev.SAGA_BEGIN, saga="s", epoch=1, payload={})
            wal.close()
            assert "Saga s was undone" in daemon.stderr.readline()
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(30) == 0
        finally:
            daemon.kill()


@pytest.mark.crash
def test_a_daemon_does_not_start_where_something_else_stands(tmp_path: Path) -> None:
    (tmp_path / "ada.jpg").write_text("not a log")
    with service(tmp_path, "--wal-path", os.fspath(tmp_path)) as daemon:
        try:
            assert daemon.wait(60) == 3
        finally:
            daemon.kill()
        assert daemon.stderr is not None
        assert "holds other files" in daemon.stderr.read()

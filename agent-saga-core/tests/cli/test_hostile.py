"""Whatever is typed, a command answers: with a code of the table, one document, and no surprise."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga.cli.exits import Exit
from agent_saga.domain.records import Ev

if TYPE_CHECKING:
    from cli.conftest import Cli

HUGE = "x" * 100_000
VALUES = ["", " ", HUGE, "\x1b[31m\u202e", "-1", "--", "../../etc", "\udcff", "nan", "a\nb", "{}%s"]
PATHS = [
    "plain", "empty", "pipe", "dangling", "loop", "nope/deep", "plain/below", "/dev/null", HUGE,
    "file://host/x", "redis://x", "memory:", "sqlite:x", "\udcff",
]  # fmt: skip
COMMANDS = [
    "list --name V",
    "list --state V",
    "status",
    "show V",
    "queue list",
    "queue show V",
    "queue retry V --by V",
    "queue close V --by V --reason V",
    "undo V --by V --reason V --dry-run",
    "undo saga-1 --by a --reason r --to V --dry-run",
    "undo saga-1 --by a --reason r --import V",
    "recover --dry-run",
    "recover --import V",
    "halt --scope V --by a --reason r --ttl V",
    "resume --scope V --by V",
    "resume V",
    "quarantine V --by V --reason V",
    "approvals list",
    "approvals approve V --approver V --up-to V --arg V --for V --uses V",
    "approvals deny V --approver V --note V",
    "approvals challenge V --out V",
    "approvals review V --approver V",
    "limits --limit V",
    "limits --store V",
    "breaker status",
    "breaker reset V --by V",
    "doctor --import V",
    "verify",
    "guarantees",
    "V",
]


@pytest.fixture
def around(log: Any, tmp_path: Path) -> Path:
    """A log with one saga, and beside it all that is no log."""
    log.begin()
    log.charged()
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []})
    log.sync()
    (tmp_path / "plain").write_text("no log")
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
    return tmp_path


def answered(cli: Cli, words: list[str]) -> None:
    run = cli(*words, "--json")
    assert run.code in set(Exit) - {Exit.INTERRUPTED}
    assert run.document is not None
    assert "Traceback" not in run.err
    assert len(run.err) < 20_000
    for character in "\x1b\u202e":
        assert character not in run.out + run.err


def worded(command: str, value: str) -> list[str]:
    return [value if word == "V" else word for word in command.split()]


@pytest.mark.parametrize("command", [one for one in COMMANDS if "V" in one.split()])
def test_no_value_is_too_odd(cli: Cli, around: Path, command: str) -> None:
    for value in VALUES:
        answered(cli, worded(command, value))


@pytest.mark.parametrize("command", [one for one in COMMANDS if one != "V"])
def test_no_path_is_too_odd(cli: Cli, around: Path, command: str) -> None:
    before = (around / "plain").read_text()
    for path in PATHS:
        if path != "pipe" or hasattr(os, "mkfifo"):
            answered(cli, [*worded(command, "x"), "--wal-path", path])
    assert (around / "plain").read_text() == before

"""Every error and report names a next command, and what it names works as it stands there.

The commands are taken out of what was printed and typed again, letter for letter; only what a
person has to fill in (NAME, WHY, MODULE, SAGA) is filled in.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from recovery.conftest import SAGA, Log, Past
from recovery.states import (
    STATES,
    closed,
    committed,
    crashed,
    overdue,
    overdue_for_a_human,
    reopened,
    rolled_back,
    running,
    stuck,
    suspended,
    untrusted,
)

from agent_saga import FileSwitchStore, KillSwitch
from agent_saga.cli.main import main

COMMAND = re.compile(
    r"agent-saga (?:show|list|status|verify|recover|undo|queue|resume|doctor|approvals|halt)\b.*$",
    re.MULTILINE,
)
FILLED = {"NAME": "ann", "WHY": "'put right by hand'", "MODULE": "string", "SAGA": SAGA}
WHO = ("--by", "ann", "--reason", "because")


class Told(NamedTuple):
    """What a command answered."""

    code: int
    text: str

    def commands(self) -> list[list[str]]:
        """The commands that it names, ready to be typed."""
        found = []
        for text in COMMAND.findall(self.text):
            typed = re.sub(r"\b[A-Z]+\b", lambda word: FILLED.get(word[0], word[0]), text)
            found.append(shlex.split(typed)[1:])
        return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SAGA_SETTLE_AFTER", "0")
    monkeypatch.setenv("AGENT_SAGA_INVERSE_DELAY", "0")


@pytest.fixture
def typed(log: Log, capsys: pytest.CaptureFixture[str], tmp_path: Any) -> Callable[..., Told]:
    def run(*words: str) -> Told:
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        return Told(int(code), out + err)

    return run


ASKED = [
    ("show", SAGA),
    ("status",),
    ("recover", "--dry-run"),
    ("undo", SAGA, *WHO, "--dry-run"),
    ("queue", "list"),
    ("queue", "show", SAGA),
    ("queue", "close", SAGA, *WHO),
    ("queue", "retry", SAGA, "--by", "ann"),
    ("doctor",),
    ("undo", "nothing", *WHO),
    ("queue", "show", "nothing"),
    ("approvals", "approve", "nothing", "--approver", "ann"),
]


@pytest.mark.parametrize("words", ASKED, ids=lambda words: " ".join(words).replace(SAGA, "SAGA"))
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_what_is_named_next_works_as_it_stands(
    log: Log, typed: Callable[..., Told], state: Callable[[Log], Past], words: tuple[str, ...]
) -> None:
    state(log)
    told = typed(*words, "--wal-path", str(log.path))
    if told.code == 4:
        assert told.commands() or "--leave-the-rest" in told.text or "resume=True" in told.text
    for command in told.commands():
        assert command[-2:] == ["--wal-path", str(log.path)] or "--wal-path" in command
    for command in told.commands()[:1] if words[0] == "queue" else told.commands():
        answer = typed(*command)
        assert answer.code in (0, 1), f"{command}: {answer.text}"


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_the_way_that_is_named_leads_to_an_end(
    log: Log, typed: Callable[..., Told], state: Callable[[Log], Past]
) -> None:
    """Whoever types what `show` names, and what that names, is done after a few commands."""
    past = state(log)
    for _ in range(4):
        told = typed("show", SAGA, "--wal-path", str(log.path))
        commands = told.commands()
        if told.code == 0 or not commands:
            break
        answer = typed(*commands[0])
        for command in answer.commands() if commands[0][0] == "queue" else ():
            typed(*command)
    told = typed("show", SAGA, "--wal-path", str(log.path))
    waits = "resume=True" in told.text or "whoever approved" in told.text
    assert told.code == 0 or waits or state is running, told.text
    past.die()


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (running, "agent-saga recover "),
        (crashed, "agent-saga recover "),
        (suspended, "transaction(saga_id=…, resume=True)"),
        (overdue, "agent-saga recover "),
        (overdue_for_a_human, f"agent-saga queue show {SAGA} "),
        (rolled_back, f"agent-saga show {SAGA} "),
        (stuck, f"agent-saga queue show {SAGA} "),
        (reopened, f"agent-saga queue show {SAGA} "),
        (closed, f"agent-saga show {SAGA} "),
        (untrusted, f"agent-saga queue show {SAGA} "),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_cannot_be_undone_later_names_what_can_be_done(
    log: Log, typed: Callable[..., Told], state: Callable[[Log], Past], said: str
) -> None:
    state(log)
    told = typed("undo", SAGA, *WHO, "--wal-path", str(log.path))
    assert told.code == 4
    assert said in told.text


def test_a_saga_that_is_no_case_is_not_said_to_be_missing(
    log: Log, typed: Callable[..., Told]
) -> None:
    committed(log)
    for words in (("show",), ("retry", "--by", "ann"), ("close", *WHO)):
        told = typed("queue", words[0], SAGA, *words[1:], "--wal-path", str(log.path))
        assert told.code == 4
        assert f"Saga {SAGA} is COMMITTED and no case" in told.text


def test_a_case_past_its_deadline_is_resumed_or_undone_and_never_closed(
    log: Log, typed: Callable[..., Told]
) -> None:
    overdue_for_a_human(log)
    shown = typed("queue", "show", SAGA, "--wal-path", str(log.path))
    assert "resume=True" in shown.text
    assert "queue close" not in shown.text
    refused = typed("queue", "close", SAGA, *WHO, "--wal-path", str(log.path))
    assert refused.code == 4
    [retry] = refused.commands()
    assert typed(*retry).code == 0


def test_records_that_cannot_be_trusted_are_only_closed(
    log: Log, typed: Callable[..., Told]
) -> None:
    untrusted(log)
    shown = typed("queue", "show", SAGA, "--wal-path", str(log.path))
    assert "queue retry" not in shown.text
    [close] = shown.commands()
    assert typed(*close).code == 0


def test_a_path_with_blanks_is_quoted(tmp_path: Any, log: Log, typed: Callable[..., Told]) -> None:
    odd = Log(tmp_path / "an odd 'log'")
    stuck(odd)
    told = typed("show", SAGA, "--wal-path", str(odd.path))
    [command] = told.commands()
    assert typed(*command).code == 1
    odd.close()


@pytest.mark.skipif(not shutil.which("bash"), reason="such words are bash's, zsh's and ksh's")
@pytest.mark.parametrize("odd", [b"of \xff bytes", "of ' \n\u202e\\ letters".encode()])
def test_a_path_that_does_not_print_can_be_pasted(
    tmp_path: Any, typed: Callable[..., Told], odd: bytes
) -> None:
    log = Log(tmp_path / os.fsdecode(odd))
    stuck(log)
    told = typed("show", SAGA, "--wal-path", str(log.path))
    [command] = COMMAND.findall(told.text)
    read = f"set -- {command}; printf '%s\\0' \"$@\""
    words = subprocess.run(["bash", "-c", read], stdout=subprocess.PIPE, check=True).stdout
    assert typed(*map(os.fsdecode, words.split(b"\0")[1:-1])).code == 1
    log.close()


def test_a_quarantined_saga_is_released_as_it_is_told(log: Log, typed: Callable[..., Told]) -> None:
    committed(log)
    KillSwitch(FileSwitchStore(log.path)).quarantine(SAGA, reason="odd", by="soc")
    told = typed("undo", SAGA, *WHO, "--wal-path", str(log.path), "--dry-run")
    assert told.code == 4
    [command] = told.commands()
    assert typed(*command).code == 0
    assert typed("undo", SAGA, *WHO, "--wal-path", str(log.path)).code == 0

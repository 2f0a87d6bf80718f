"""One table of exit codes for every command, and errors that a program can read."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga import FileSwitchStore, KillSwitch
from agent_saga.cli.exits import MEANINGS, Exit, exit_of
from agent_saga.domain.records import Ev
from agent_saga.errors import (
    AgentSagaError,
    Ambiguous,
    ApprovalError,
    ClaimRefused,
    ConfigurationError,
    NotFound,
    RecoveryError,
    UndoRefused,
    WALError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import Cli

WHO = ("--by", "ann", "--reason", "because")
NAMING = [
    ("show", "{}"),
    ("queue", "show", "{}"),
    ("queue", "retry", "{}", "--by", "ann"),
    ("queue", "close", "{}", *WHO),
    ("undo", "{}", *WHO),
    ("undo", "{}", *WHO, "--dry-run"),
    ("quarantine", "{}", *WHO),
]
"""Every command that names a saga."""

SIGNED = [
    ("queue", "retry", "x", "--by", "{}"),
    ("queue", "close", "x", "--by", "{}", "--reason", "r"),
    ("queue", "close", "x", "--by", "ann", "--reason", "{}"),
    ("undo", "x", "--by", "{}", "--reason", "r"),
    ("undo", "x", "--by", "ann", "--reason", "{}"),
    ("quarantine", "x", "--by", "{}", "--reason", "r"),
    ("quarantine", "x", "--by", "ann", "--reason", "{}"),
    ("halt", "--by", "{}", "--reason", "r"),
    ("halt", "--by", "ann", "--reason", "{}"),
    ("resume", "--scope", "*", "--by", "{}"),
    ("breaker", "reset", "x", "--by", "{}"),
    ("approvals", "approve", "x", "--approver", "{}"),
    ("approvals", "deny", "x", "--approver", "{}"),
    ("approvals", "review", "x", "--approver", "{}"),
]
"""Every option that names a person or says why."""

LISTING = [
    ("list",),
    ("status",),
    ("queue", "list"),
    ("verify",),
    ("limits",),
    ("breaker", "status"),
    ("approvals", "list"),
]
"""Every command that tells of a whole log."""


def filled(words: tuple[str, ...], text: str) -> list[str]:
    return [word.replace("{}", text) for word in words]


def test_every_code_has_its_words_in_the_help_and_in_the_documentation(cli: Cli) -> None:
    told = " ".join(cli("--help").out.split())
    for code, (words, _) in MEANINGS.items():
        assert f"{code.value} {words}" in told
    assert set(MEANINGS) == set(Exit)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError, 2),
        (Ambiguous, 2),
        (NotFound, 3),
        (WALError, 3),
        (RecoveryError, 4),
        (ClaimRefused, 4),
        (UndoRefused, 4),
        (ApprovalError, 4),
    ],
)
def test_an_error_has_one_code_whoever_raises_it(error: type[AgentSagaError], code: int) -> None:
    assert exit_of(error("x")) == code


@pytest.mark.parametrize("words", NAMING, ids=" ".join)
def test_a_name_of_nothing_ends_with_3_and_one_of_several_with_2(
    cli: Cli, log: Any, words: tuple[str, ...]
) -> None:
    for saga in ("alpha-1", "alpha-2"):
        log.begin(saga, "twice")
    log.close()
    none = cli(*filled(words, "gamma"))
    assert none.code == 3
    assert "There is no saga 'gamma' in the log" in none.err
    for name in ("twice", "alpha"):
        several = cli(*filled(words, name))
        assert several.code == 2
        assert "alpha-1" in several.err
        assert "alpha-2" in several.err


@pytest.mark.parametrize("words", NAMING, ids=" ".join)
def test_a_name_where_there_is_no_log_ends_with_3_and_makes_nothing(
    cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    run = cli(*filled(words, "x"))
    assert (run.code, "There is no log at" in run.err) == (3, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("blank", ["", "  ", "\t\n"])
@pytest.mark.parametrize("words", SIGNED, ids=" ".join)
def test_nobody_and_no_reason_are_wrong_usage(
    cli: Cli, log: Any, words: tuple[str, ...], blank: str
) -> None:
    log.begin("x")
    log.close()
    assert cli(*filled(words, blank)).code == 2


@pytest.mark.parametrize("words", LISTING, ids=" ".join)
def test_a_log_that_is_not_there_is_not_clean(
    cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    run = cli(*words)
    assert run.code == 3
    assert "here yet" in run.out or "no record" in run.out
    told = cli(*words, "--json")
    assert told.code == 3
    assert told.document is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (("nonsense",), 2, "UsageError"),
        (("list", "--nonsense"), 2, "UsageError"),
        (("show",), 2, "UsageError"),
        (("show", ""), 2, "UsageError"),
        (("show", "x", "--wal-path", "memory:"), 2, "ConfigurationError"),
        (("show", "x"), 3, "NotFound"),
        (("undo", "x", *WHO, "--import", "no_such_module_anywhere"), 2, "PluginError"),
        (("resume", "x"), 2, "UsageError"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_with_json_an_error_is_one_document_too(
    cli: Cli, log: Any, words: tuple[str, ...], code: int, kind: str
) -> None:
    log.begin("y")
    log.close()
    run = cli(*words, "--json")
    told = run.document["error"]
    assert run.code == code
    assert (told["exit"], told["kind"]) == (code, kind)
    assert told["message"]
    assert told["message"].partition("\n")[0] in " ".join(run.err.split("\n"))


@pytest.mark.parametrize("name", ["undo", "recover"])
def test_a_refusal_with_json_says_code_and_what_to_do(cli: Cli, log: Any, name: str) -> None:
    log.begin("x")
    log.charged("x", {"handler": "gone.handler", "kwargs": {}})
    if name == "undo":
        log.add(Ev.SAGA_COMMITTED, {"unsettled": []}, saga="x")
    log.close()
    run = cli(*(("undo", "x", *WHO) if name == "undo" else ("recover",)), "--json")
    told = run.document["error"]
    assert run.code == told["exit"] == 4
    assert re.fullmatch(r"SAGA-70\d", told["code"])
    assert told["fix"]


def program(name: str, *words: str) -> list[str]:
    module = {"agent-saga": "agent_saga.cli", "saga-recoveryd": "agent_saga.cli.recoveryd"}[name]
    return [sys.executable, "-m", module, *words]


@pytest.mark.parametrize(
    "words", [("agent-saga", "recover"), ("saga-recoveryd", "--once"), ("saga-recoveryd",)]
)
def test_an_interruption_while_a_module_loads_is_no_traceback(
    tmp_path: Path, log: Any, words: tuple[str, ...]
) -> None:
    log.begin("x")
    log.close()
    (tmp_path / "interrupted_module.py").write_text("raise KeyboardInterrupt\n")
    run = subprocess.run(
        program(*words, "--import", "interrupted_module"),
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == Exit.INTERRUPTED == 128 + signal.SIGINT
    assert run.stderr.strip().startswith("Error: Interrupted.")
    assert "Traceback" not in run.stderr


def test_the_daemon_with_json_logs_says_its_errors_as_lines_of_json(
    tmp_path: Path, log: Any
) -> None:
    log.begin("x")
    log.close()
    run = subprocess.run(
        program("saga-recoveryd", "--once", "--json-logs", "--import", "no_such_module_anywhere"),
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 2
    [line] = run.stderr.splitlines()
    assert json.loads(line)["error"]["kind"] == "PluginError"


HOSTILE = "evil\x1b[2J\u202ename"


def test_what_models_chose_never_steers_a_terminal_in_an_error(cli: Cli, log: Any) -> None:
    log.begin("x", HOSTILE)
    call = {"tool": HOSTILE, "semantics": "COMPENSABLE"}
    log.add(Ev.STEP_INTENT, {"call": call, "args": {}}, saga="x", step="s1")
    log.add(Ev.STEP_COMMITTED, {"result": 1, "missing": HOSTILE}, saga="x", step="s1")
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []}, saga="x")
    log.close()
    for words in (
        ("undo", "x", *WHO),
        ("undo", "x", *WHO, "--dry-run"),
        ("undo", "x", *WHO, "--to", "nothing"),
        ("queue", "show", "x"),
        ("show", HOSTILE + "2"),
        (HOSTILE,),
        ("list", f"--{HOSTILE}"),
        ("show", "x", HOSTILE),
    ):
        run = cli(*words)
        assert run.code in (2, 3, 4)
        for character in "\x1b\u202e":
            assert character not in run.out + run.err


def test_words_that_are_no_text_are_told_like_any_other(tmp_path: Path, log: Any) -> None:
    log.begin("x")
    log.close()
    for words in ([b"show", b"\xff"], [b"list", b"--wal-path", b"\xfe"], [b"\xff"]):
        run = subprocess.run(
            [os.fsencode(sys.executable), b"-m", b"agent_saga.cli", *words, b"--json"],
            cwd=tmp_path, capture_output=True, check=False,
        )  # fmt: skip
        assert run.returncode in (2, 3)
        assert b"Traceback" not in run.stderr
        json.loads(run.stdout)


@pytest.mark.parametrize("words", [*LISTING, *NAMING, ("recover",), ("doctor",)], ids=" ".join)
def test_a_path_that_is_no_log_is_an_error_that_names_it(
    cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not a log")
    run = cli(*filled(words, "x"), "--wal-path", plain)
    assert run.code != 0
    assert str(plain) in run.out + run.err
    assert plain.read_text() == "not a log"
    inside = cli(*filled(words, "x"), "--wal-path", plain / "below")
    assert inside.code != 0 or words == ("doctor",)


@pytest.mark.parametrize("words", [*LISTING, *NAMING, ("recover",)], ids=" ".join)
def test_a_path_that_no_disk_can_have_is_no_traceback(cli: Cli, words: tuple[str, ...]) -> None:
    for path in ("x" * 5000, "a\0b", ""):
        run = cli(*filled(words, "x"), "--wal-path", path)
        assert run.code in (2, 3)


def test_a_quarantined_saga_says_how_it_is_let_go(cli: Cli, log: Any) -> None:
    log.begin("x")
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []}, saga="x")
    log.close()
    KillSwitch(FileSwitchStore(log.path)).quarantine("x", reason="odd", by="soc")
    for more in ((), ("--dry-run",)):
        run = cli("undo", "x", *WHO, *more)
        assert run.code == 4
        assert "agent-saga resume --scope saga:x" in run.err


def test_a_quarantine_is_lifted_by_any_name_of_its_saga(cli: Cli, log: Any) -> None:
    log.begin("saga-1", "checkout")
    log.close()
    for wanted in ("checkout", "saga", "saga-1"):
        assert cli("quarantine", wanted, *WHO).code == 0
        lifted = cli("resume", "--scope", f"saga:{wanted}", "--by", "ann")
        assert (lifted.code, "was quarantined by ann" in lifted.out) == (0, True)
    assert cli("resume", "--scope", "saga:checkout", "--by", "ann").code == 3


def test_an_inverse_that_is_not_registered_is_to_be_imported(cli: Cli, log: Any) -> None:
    log.begin("x")
    log.charged("x", {"handler": "gone.handler", "kwargs": {}})
    log.add(Ev.SAGA_COMMITTED, {"unsettled": []}, saga="x")
    log.close()
    run = cli("undo", "x", *WHO)
    assert run.code == 4
    assert "Name the modules that register gone.handler with --import MODULE." in run.err
